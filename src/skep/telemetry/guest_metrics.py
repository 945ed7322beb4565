"""What Prometheus hears of the guests of a process: the latest measures, and nothing of guests that are gone.

The labels are bounded by the guests that there are: their host and their server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skep.domain.ids import InstanceUuid
from skep.domain.measures import GuestMeasures

LABELS = ("host", "instance")
COUNTERS = {
    "cpu_seconds": "Processor time of a guest, of all its CPUs",
    "disk_read_bytes": "Bytes that a guest read of its disks",
    "disk_written_bytes": "Bytes that a guest wrote to its disks",
    "disk_reads": "Requests of a guest that read its disks",
    "disk_writes": "Requests of a guest that write to its disks",
    "network_received_bytes": "Bytes that a guest received by its interfaces",
    "network_sent_bytes": "Bytes that a guest sent by its interfaces",
}
"""Fields of the measures that only grow while a guest runs."""
GAUGES = {
    "memory_bytes": "Memory that a guest has",
    "memory_resident_bytes": "Memory of the host that a guest takes",
}


class GuestMetrics(Collector):
    """The latest measures of each host."""

    def __init__(self) -> None:
        self._hosts: dict[str, Mapping[InstanceUuid, GuestMeasures]] = {}

    def tell(self, host: str, measures: Mapping[InstanceUuid, GuestMeasures]) -> None:
        """Take what was measured of all guests of a host that run."""
        self._hosts[host] = measures

    def forget(self, host: str) -> None:
        """Show nothing more of a host whose agent has stopped."""
        self._hosts.pop(host, None)

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each field."""
        for kind, fields in ((CounterMetricFamily, COUNTERS), (GaugeMetricFamily, GAUGES)):
            for field, text in fields.items():
                family = kind(f"skep_guest_{field}", text, labels=LABELS)
                for host, guests in self._hosts.items():
                    for instance, measures in guests.items():
                        if (value := getattr(measures, field)) is not None:
                            family.add_metric((host, instance), value)
                yield family
