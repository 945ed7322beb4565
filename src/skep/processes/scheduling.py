"""Makes the scheduler of a process: inside the whole cloud, or alone."""

from __future__ import annotations

import importlib.metadata
import math
from pathlib import Path

from msgspec.structs import replace

from skep.config.sections import Config
from skep.domain.errors import Misconfigured
from skep.processes.process import Process
from skep.scheduler.service import SchedulerService
from skep.scheduler.service.decision_log.files import MEBIBYTE, DecisionLog
from skep.scheduler.settings import DEFAULT_FILTERS, DEFAULT_WEIGHERS, SchedulerSettings
from skep.synchronizer.base import Backend
from skep.transport.base import Transport


def scheduler_settings(config: Config) -> SchedulerSettings:
    """Return how this installation chooses hosts. Raises Misconfigured for a multiplier that is no number."""
    section = config.scheduler
    return SchedulerSettings(
        filters=section.enabled_filters or DEFAULT_FILTERS,
        weighers={
            **DEFAULT_WEIGHERS,
            "CPUWeigher": section.cpu_weight_multiplier,
            "RAMWeigher": section.ram_weight_multiplier,
            "DiskWeigher": section.disk_weight_multiplier,
            "BuildFailureWeigher": section.build_failure_weight_multiplier,
            **_named_weighers(section.enabled_weighers),
        },
        normalization=section.normalization,
        host_subset_size=section.host_subset_size,
        shuffle=section.shuffle_best_same_weighed_hosts,
        partition=section.partition,
        on_plugin_error=section.on_plugin_error,
    )


def _named_weighers(named: tuple[str, ...]) -> dict[str, float]:
    """Read `NAME=NUMBER`. Raises Misconfigured for anything else."""
    found = {}
    for text in named:
        name, _, number = text.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError as error:
            raise Misconfigured(f"scheduler.enabled_weighers: expected NAME=NUMBER, got {text!r}") from error
        if not math.isfinite(found[name.strip()]):
            raise Misconfigured(f"scheduler.enabled_weighers: {text!r} has no finite number")
    return found


def make_scheduler(process: Process, transport: Transport, backend: Backend) -> SchedulerService:
    """Return a scheduler that counts what it does; it has not started. Raises Misconfigured for an unknown filter."""

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
