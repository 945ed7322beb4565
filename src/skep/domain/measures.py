"""What hosts measure of the guests that run on them."""

from __future__ import annotations

import msgspec


class GuestMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one guest, since it was started; None: the hypervisor does not count that."""

    cpu_seconds: float | None = None
    """Of all its CPUs."""
    memory_bytes: int | None = None
    """That it has."""
    memory_resident_bytes: int | None = None
    """That it takes of the host."""
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    disk_reads: int | None = None
    disk_writes: int | None = None
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
