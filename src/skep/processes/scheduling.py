"""Makes the scheduler of a process: inside the whole cloud, or alone."""

from __future__ import annotations

from msgspec.structs import replace

from skep.config.sections import Config
from skep.processes.process import Process
from skep.scheduler.service import SchedulerService
from skep.scheduler.settings import DEFAULT_FILTERS, DEFAULT_WEIGHERS, SchedulerSettings
from skep.synchronizer.base import Backend
from skep.transport.base import Transport


def scheduler_settings(config: Config) -> SchedulerSettings:
    """Return how this installation chooses hosts."""
    section = config.scheduler
    return SchedulerSettings(
        filters=section.enabled_filters or DEFAULT_FILTERS,
        weighers={
            **DEFAULT_WEIGHERS,
            "CPUWeigher": section.cpu_weight_multiplier,
            "RAMWeigher": section.ram_weight_multiplier,
            "DiskWeigher": section.disk_weight_multiplier,
            "BuildFailureWeigher": section.build_failure_weight_multiplier,
        },
        normalization=section.normalization,
        host_subset_size=section.host_subset_size,
        shuffle=section.shuffle_best_same_weighed_hosts,
        partition=section.partition,
    )


def make_scheduler(process: Process, transport: Transport, backend: Backend) -> SchedulerService:
    """Return a scheduler that counts what it does; it has not started. Raises Misconfigured for an unknown filter."""

    metrics = process.metrics

    def on_decision(seconds: float, outcome: str) -> None:
        metrics.decision_seconds.observe(seconds)
        metrics.decisions.labels(outcome).inc()

    return SchedulerService(
        transport,
        backend,
        replace(scheduler_settings(process.config), host=process.host),
        process.clock,
        on_decision=on_decision,
        on_conflict=metrics.claim_conflicts.inc,
        on_refused=metrics.reports_refused.inc,
    )
