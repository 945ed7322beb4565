"""What is measured of a guest that runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import libvirt

from skep.compute.drivers.libvirt.arrivals import links_of
from skep.compute.drivers.libvirt.domains import label_of
from skep.domain.ids import InstanceUuid
from skep.domain.measures import GuestMeasures
from skep.domain.questions import CpuDiagnostics, DiskDiagnostics, GuestDiagnostics, NicDiagnostics

_RAW = (int, float, str)
MEASURED = (
    libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
    | libvirt.VIR_DOMAIN_STATS_BALLOON
    | libvirt.VIR_DOMAIN_STATS_BLOCK
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
)
OF_DISKS = {"rd.reqs": "read_req", "rd.bytes": "read", "wr.reqs": "write_req", "wr.bytes": "write", "errors": "errors"}
OF_LINKS = {
    f"{way}.{of_libvirt}": f"{way}{of_nova}"
    for way in ("rx", "tx")
    for of_libvirt, of_nova in (("bytes", ""), ("pkts", "_packets"), ("errs", "_errors"), ("drop", "_drop"))
}
"""libvirt's names of figures -> Nova's, behind the name of a disk or a link."""

SSH_PORT = "ssh.port"
"""Among the figures: the loopback port that leads to port 22 of the guest."""


def diagnostics(domain: libvirt.virDomain, virt_type: str, ssh_port: int | None) -> GuestDiagnostics:
    """Return what libvirt says of a guest that runs, and its loopback port. Raises libvirt.libvirtError."""
    ((_, stats),) = domain.connect().domainListGetStats([domain], 0, 0)
    links = links_of(domain.XMLDesc())
    if ssh_port is not None:
        stats[SSH_PORT] = ssh_port
    raw = {name: value for name, value in sorted(stats.items()) if isinstance(value, _RAW) and ".path" not in name}
    return GuestDiagnostics(
        driver="libvirt",
        hypervisor=virt_type,
        hypervisor_os="linux",
        memory_maximum=_mib(stats.get("balloon.maximum")),
        memory_used=_mib(_used(stats)),
        cpus=tuple(CpuDiagnostics(id=number, time=stats.get(f"vcpu.{number}.time")) for number in _cpus(stats)),
        nics=tuple(_nics(stats, links)),
        disks=tuple(_disk(stats, number) for number in range(int(stats.get("block.count", 0)))),
        raw=raw | dict(_as_nova_says(stats)),
    )


def measures(connection: libvirt.virConnect) -> dict[InstanceUuid, GuestMeasures]:
    """Return what libvirt measures of all our guests that run, by one call. Raises libvirt.libvirtError."""
    found = connection.getAllDomainStats(MEASURED, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE)
    return {label.instance: _measures(stats) for domain, stats in found if (label := label_of(domain)) is not None}


def _measures(stats: dict[str, Any]) -> GuestMeasures:
    cpu, current, resident = stats.get("cpu.time"), stats.get("balloon.current"), stats.get("balloon.rss")
    return GuestMeasures(
        cpu_seconds=None if cpu is None else cpu / 1e9,
        memory_bytes=None if current is None else current << 10,
        memory_resident_bytes=None if resident is None else resident << 10,
        disk_read_bytes=_sum(stats, "block", "rd.bytes"),
        disk_written_bytes=_sum(stats, "block", "wr.bytes"),
        disk_reads=_sum(stats, "block", "rd.reqs"),
        disk_writes=_sum(stats, "block", "wr.reqs"),
        network_received_bytes=_sum(stats, "net", "rx.bytes"),
        network_sent_bytes=_sum(stats, "net", "tx.bytes"),
    )


def _sum(stats: dict[str, Any], kind: str, field: str) -> int | None:
    """Add up what is counted of each device of a kind; None: nothing is."""
    found = [stats.get(f"{kind}.{number}.{field}") for number in range(int(stats.get(f"{kind}.count", 0)))]
    counted = [int(one) for one in found if one is not None]
    return sum(counted) if counted else None


def _disk(stats: dict[str, Any], number: int) -> DiskDiagnostics:
    return DiskDiagnostics(
        read_bytes=stats.get(f"block.{number}.rd.bytes"),
        read_requests=stats.get(f"block.{number}.rd.reqs"),
        write_bytes=stats.get(f"block.{number}.wr.bytes"),
        write_requests=stats.get(f"block.{number}.wr.reqs"),
        errors_count=stats.get(f"block.{number}.errors"),
    )


def _cpus(stats: Mapping[str, Any]) -> list[int]:
    return [number for number in range(int(stats.get("vcpu.maximum", 0))) if f"vcpu.{number}.state" in stats]


def _used(stats: Mapping[str, Any]) -> int | None:
    """Return how many KiB a guest uses, as its balloon tells; where none does, how many QEMU has for it."""
    available, unused = stats.get("balloon.available"), stats.get("balloon.unused")
    if available is None or unused is None:
        return stats.get("balloon.rss")
    return int(available - unused)


def _nics(stats: Mapping[str, Any], links: Mapping[str, str]) -> Iterator[NicDiagnostics]:
    """Yield the interfaces that are plugged into links, from the guest's view of what comes and goes."""
    numbers = {stats.get(f"net.{number}.name"): number for number in range(int(stats.get("net.count", 0)))}
    for mac, link in links.items():
        figures = {
            f"{way}_{name}": stats.get(f"net.{numbers.get(link)}.{way}.{of_libvirt}")
            for way in ("rx", "tx")
            for name, of_libvirt in (("octets", "bytes"), ("errors", "errs"), ("drop", "drop"), ("packets", "pkts"))
        }
        yield NicDiagnostics(mac_address=mac, **figures)


def _as_nova_says(stats: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield figures under the names that they have with Nova's driver before 2.48: `cpu0_time`, `vda_read` ..."""
    found: dict[str, Any] = {f"cpu{number}_time": stats.get(f"vcpu.{number}.time") for number in _cpus(stats)}
    for kind, names in (("block", OF_DISKS), ("net", OF_LINKS)):
        for number in range(int(stats.get(f"{kind}.count", 0))):
            device = stats.get(f"{kind}.{number}.name")
            found |= {f"{device}_{name}": stats.get(f"{kind}.{number}.{key}") for key, name in names.items()}
    for key, value in stats.items():
        kind, _, name = key.partition(".")
        if kind == "balloon":
            found[_OF_MEMORY.get(name, f"memory-{name.replace('-', '_')}")] = value
    return ((name, value) for name, value in found.items() if value is not None)


_OF_MEMORY = {"maximum": "memory", "current": "memory-actual"}


def _mib(kib: int | None) -> int | None:
    return None if kib is None else kib // 1024
