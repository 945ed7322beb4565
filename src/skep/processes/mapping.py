"""Maps the configuration onto the settings of each part."""

from __future__ import annotations

from skep.compute.drivers.fake import FailureRule, FakeSettings
from skep.compute.settings import ComputeSettings
from skep.config.sections import Config, FakeDriverSettings
from skep.scheduler.settings import DEFAULT_FILTERS, DEFAULT_WEIGHERS, SchedulerSettings


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
        host_subset_size=section.host_subset_size,
        shuffle=section.shuffle_best_same_weighed_hosts,
    )


def compute_settings(config: Config) -> ComputeSettings:
    """Return how agents count and report."""
    section = config.compute
    return ComputeSettings(
        cpu_allocation_ratio=section.cpu_allocation_ratio,
        ram_allocation_ratio=section.ram_allocation_ratio,
        disk_allocation_ratio=section.disk_allocation_ratio,
        reserved_host_cpus=section.reserved_host_cpus,
        reserved_host_memory_mb=section.reserved_host_memory_mb,
        reserved_host_disk_mb=section.reserved_host_disk_mb,
        max_concurrent_builds=section.max_concurrent_builds,
        report_interval_seconds=section.report_interval,
        resend_seconds=min(1.0, config.conductor.resend_seconds),
    )


def fake_settings(section: FakeDriverSettings) -> FakeSettings:
    """Return what fake hosts have and how they behave."""
    return FakeSettings(
        vcpus=section.vcpus,
        memory_mb=section.memory_mb,
        disk_gb=section.disk_gb,
        spawn_delay=section.spawn_delay,
        destroy_delay=section.destroy_delay,
        power_delay=section.power_delay,
        failures=tuple(
            FailureRule(
                operation=rule.operation,
                host=rule.host,
                server=rule.server,
                error=rule.kind,
                times=None if rule.times < 0 else rule.times,
            )
            for rule in section.failures
        ),
    )
