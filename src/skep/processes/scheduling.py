"""Makes the scheduler of a process: inside the whole cloud, or alone."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from msgspec.structs import replace

from skep.config.sections import Config
from skep.placement.settings import DEFAULT_FILTERS, DEFAULT_WEIGHERS, SchedulerSettings
from skep.processes.placement_options import multipliers, numbers, placement_options
from skep.processes.process import Process
from skep.scheduler.clocks import OnClock, ignore
from skep.scheduler.decision_log.files import MEBIBYTE, DecisionLog
from skep.scheduler.service import SchedulerService
from skep.synchronizer.base import Backend
from skep.transport.base import Transport


def scheduler_settings(config: Config) -> SchedulerSettings:
    """Return how this installation chooses hosts. Raises Misconfigured for a multiplier that is no number."""
    section = config.scheduler
    return SchedulerSettings(
        filters=section.enabled_filters or DEFAULT_FILTERS,
        weighers={
            **DEFAULT_WEIGHERS,
            **multipliers(config),
            **numbers("scheduler.enabled_weighers", section.enabled_weighers),
        },
        options=placement_options(config),
        normalization=section.normalization,
        host_subset_size=section.host_subset_size,
        shuffle=section.shuffle_best_same_weighed_hosts,
        partition=section.partition,
        on_plugin_error=section.on_plugin_error,
    )


def make_scheduler(
    process: Process, transport: Transport, backend: Backend, *, on_clock: OnClock = ignore
) -> SchedulerService:
    """Return a scheduler that counts what it does; it has not started. Raises Misconfigured for an unknown filter.

    `on_clock` is told how far the clock is off: not where it is that of a process that looks at it itself.
    """

    metrics = process.metrics

    def on_decision(seconds: float, outcome: str) -> None:
        metrics.decision_seconds.observe(seconds)
        metrics.decisions.labels(outcome).inc()

    settings = replace(scheduler_settings(process.config), host=process.host)
    return SchedulerService(
        transport,
        backend,
        settings,
        process.clock,
        on_decision=on_decision,
        on_conflict=metrics.claim_conflicts.inc,
        on_refused=metrics.reports_refused.inc,
        on_plugin_failure=lambda name: metrics.plugin_failures.labels(name).inc(),
        on_plugin_slow=lambda name: metrics.plugins_slow.labels(name).inc(),
        on_clock=on_clock,
        decision_log=decision_log(process, settings),
    )


def decision_log(process: Process, settings: SchedulerSettings) -> DecisionLog | None:
    """Return where the scheduler of a process writes down what it decides, if anywhere."""
    section = process.config.scheduler
    if not section.decision_log:
        return None
    return DecisionLog(
        Path(section.decision_log).expanduser(),
        settings,
        process.clock,
        most_bytes=section.decision_log_mib * MEBIBYTE,
        release=importlib.metadata.version("skep"),
    )
