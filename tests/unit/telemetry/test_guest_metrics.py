"""What Prometheus hears of guests: the latest measures of those that there are."""

from __future__ import annotations

from skep.domain.ids import InstanceUuid
from skep.domain.measures import GuestMeasures
from skep.telemetry.guest_metrics import COUNTERS, GAUGES
from skep.telemetry.metrics import Metrics

ONE, TWO = InstanceUuid("one"), InstanceUuid("two")


def value(metrics: Metrics, name: str, instance: InstanceUuid) -> float | None:
    return metrics.registry.get_sample_value(f"skep_guest_{name}", {"host": "host-1", "instance": instance})


def test_guests_come_change_and_go() -> None:
    metrics = Metrics()
    metrics.guests.tell("host-1", {ONE: GuestMeasures(cpu_seconds=1.5, memory_bytes=7), TWO: GuestMeasures()})
    assert value(metrics, "cpu_seconds_total", ONE) == 1.5
    assert value(metrics, "memory_bytes", ONE) == 7
    assert value(metrics, "disk_reads_total", ONE) is None, "what is not counted is not 0"
    assert value(metrics, "cpu_seconds_total", TWO) is None
    metrics.guests.tell("host-1", {ONE: GuestMeasures(cpu_seconds=2)})
    assert value(metrics, "cpu_seconds_total", ONE) == 2
    metrics.guests.forget("host-1")
    assert value(metrics, "cpu_seconds_total", ONE) is None


def test_each_measure_is_shown() -> None:
    assert {*COUNTERS, *GAUGES} == set(GuestMeasures.__struct_fields__)
