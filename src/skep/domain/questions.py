"""Questions that users ask and only hosts can answer, most of them about guests. An answer is bounded."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from skep.domain.capabilities import Capability
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid

MOST_BYTES = 100 * 1024
"""Of an answer (Nova's bound of a console's log)."""
MOST_CHARACTERS = 2000
"""Of an error that is told instead of an answer."""
MOST_OF_ONE = 4
"""So many questions about one server may wait for their answers at a time."""
FORGOTTEN_AFTER = 300 * SECOND
"""A question whose asker has gone is removed after that time."""
SLOW_AFTER = 2 * SECOND
"""A host that has not answered is told again: an order is a hint."""


class Topic(enum.StrEnum):
    """What is asked; the name goes into rows and messages and never changes."""

    CONSOLE_OUTPUT = "console_output"
    """The argument `length`: how many of the last lines; -1: all but the first; None: all."""
    DIAGNOSTICS = "diagnostics"
    """Answered by the JSON of `GuestDiagnostics`."""
    SERIAL_LINE = "serial_line"
    """Answered by the JSON of `consoles.ConsoleDoor`. The argument `seconds`: how long the door stays open."""
    VNC_LINE = "vnc_line"
    """Likewise, of a door to the screen."""
    CACHE_IMAGES = "cache_images"
    """About no guest: the host fetches images, and answers when it has (the JSON of a list of
    `image_caching.CachedImage`). The arguments: `images`, and `sealed`, a `SealedCaching` in base64."""
    DISKS = "disks"
    """The target of a cold move asks where it gets the disks of a guest that is put aside. Answered by a
    `disk_doors.DiskDoor`, sealed for the run of the target's agent. The arguments, bytes in base64: `move`,
    `certificate` of that run, `key` for which it is sealed."""


NEEDS: Mapping[Topic, Capability] = MappingProxyType(
    {
        Topic.CONSOLE_OUTPUT: Capability.CONSOLE_OUTPUT,
        Topic.DIAGNOSTICS: Capability.DIAGNOSTICS,
        Topic.SERIAL_LINE: Capability.SERIAL_CONSOLE,
        Topic.VNC_LINE: Capability.VNC_CONSOLE,
        Topic.CACHE_IMAGES: Capability.IMAGE,
        Topic.DISKS: Capability.MOVE_BY_WIRE,
    }
)
"""What the driver has to be able to do."""


class GuestQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question."""

    id: str
    instance: InstanceUuid
    """Of a question about no guest: its own id."""
    attempt: int
    host: str
    topic: str
    context: RequestContext
    arguments: dict[str, Any] = {}


class GuestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a host said: the bytes that were asked for, or why there are none."""

    content: bytes = b""
    error: str | None = None
    """Name and text, as `InstanceNotRunning: it is off`."""


class CpuDiagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """One CPU of a guest."""

    id: int
    time: int | None = None
    """Nanoseconds"""
    utilisation: int | None = None
    """Percent"""


class NicDiagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface of a guest; None: not known."""

    mac_address: str
    rx_octets: int | None = None
    rx_errors: int | None = None
    rx_drop: int | None = None
    rx_packets: int | None = None
    rx_rate: int | None = None
    tx_octets: int | None = None
    tx_errors: int | None = None
    tx_drop: int | None = None
    tx_packets: int | None = None
    tx_rate: int | None = None


class DiskDiagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """One disk of a guest; None: not known."""

    read_bytes: int | None = None
    read_requests: int | None = None
    write_bytes: int | None = None
    write_requests: int | None = None
    errors_count: int | None = None


class GuestDiagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """What a hypervisor measures of a guest that runs; None: not known."""

    driver: str
    hypervisor: str
    hypervisor_os: str | None = None
    state: str = "running"
    uptime: int | None = None
    """Seconds"""
    memory_maximum: int | None = None
    """MiB"""
    memory_used: int | None = None
    """MiB"""
    cpus: tuple[CpuDiagnostics, ...] = ()
    nics: tuple[NicDiagnostics, ...] = ()
    disks: tuple[DiskDiagnostics, ...] = ()
    raw: dict[str, int | float | str] = {}
    """In the hypervisor's own words: what clients of before 2.48 get."""
