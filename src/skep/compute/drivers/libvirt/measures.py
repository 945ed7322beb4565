"""What is measured of a guest that runs."""

from __future__ import annotations

from typing import Any

import libvirt

from skep.domain.questions import CpuDiagnostics, DiskDiagnostics, GuestDiagnostics

_RAW = (int, float, str)


SSH_PORT = "ssh.port"
"""Among the figures: the loopback port that leads to port 22 of the guest."""


def diagnostics(domain: libvirt.virDomain, virt_type: str, ssh_port: int | None) -> GuestDiagnostics:
    """Return what libvirt says of a guest that runs, and its loopback port. Raises libvirt.libvirtError."""
    ((_, stats),) = domain.connect().domainListGetStats([domain], 0, 0)
    if ssh_port is not None:
        stats[SSH_PORT] = ssh_port
    cpus = [number for number in range(int(stats.get("vcpu.maximum", 0))) if f"vcpu.{number}.state" in stats]
    return GuestDiagnostics(
        driver="libvirt",
        hypervisor=virt_type,
        hypervisor_os="linux",
        memory_maximum=_mib(stats.get("balloon.maximum")),
        memory_used=_mib(stats.get("balloon.rss")),
        cpus=tuple(CpuDiagnostics(id=number, time=stats.get(f"vcpu.{number}.time")) for number in cpus),
        disks=tuple(_disk(stats, number) for number in range(int(stats.get("block.count", 0)))),
        raw={name: value for name, value in sorted(stats.items()) if isinstance(value, _RAW) and ".path" not in name},
    )


def _disk(stats: dict[str, Any], number: int) -> DiskDiagnostics:
    return DiskDiagnostics(
        read_bytes=stats.get(f"block.{number}.rd.bytes"),
        read_requests=stats.get(f"block.{number}.rd.reqs"),
        write_bytes=stats.get(f"block.{number}.wr.bytes"),
        write_requests=stats.get(f"block.{number}.wr.reqs"),
        errors_count=stats.get(f"block.{number}.errors"),
    )


def _mib(kib: int | None) -> int | None:
    return None if kib is None else kib // 1024
