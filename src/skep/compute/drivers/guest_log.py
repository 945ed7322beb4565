"""The guests of a `fake` host: an append-only file of JSON lines, and the replay that makes guests of it.

It plays the part of a hypervisor's own memory, so it stands outside Skep's databases and outlives every process of
Skep. Nothing in it is ever removed: how often something was spawned or destroyed can be counted afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from skep.compute.drivers.base import Guest
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.providers import Allocation
from skep.domain.resources import Resources

EventName = Literal["spawn_begun", "spawned", "destroyed", "powered_on", "powered_off", "rebooted"]


class VolumeOnPaper(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that a guest uses."""

    device: str
    """The name of its disk in the guest."""
    volume_id: str
    attachment_id: str
    size: int | None = None
    """GiB, as far as it was told: of one that became larger while the guest had it."""
    file: str = ""
    """The name of the file that it writes to, as far as it was told: since a snapshot of the volume was made."""
    snapshots: tuple[str, ...] = ()
    """Ids of those that were made while the guest had it, and not deleted."""
    gone: bool = False
    """The guest has let go of it. Releases before 0.11.0 do not see that."""


class InterfaceOnPaper(msgspec.Struct, frozen=True, kw_only=True):
    """An interface that a guest got or lost while it was there."""

    port_id: str
    gone: bool = False


class GuestEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a guest. `at` is microseconds since the epoch."""

    at: int
    event: EventName
    instance: InstanceUuid
    attempt: int
    name: str = ""
    resources: Resources = {}
    allocation: Allocation | None = None
    hard: bool = False
    """Of a reboot; of a guest that stopped: its host lost its power."""
    kept: bool = False
    """Of a guest that is destroyed: its disk stays, for a move. Releases before 0.7.0 take it for gone."""
    left: PowerState | None = None
    """How a guest that stopped was left if it is not off: paused, suspended. Releases before 0.7.0 take it for off."""
    rescued: bool = False
    """Afterwards the guest has a rescue disk in front of its own."""
    memory: str = ""
    """Of a guest that is made: the boot that its memory is of, on another host (`memories`); empty: it boots, or is
    off. Releases before 0.7.0 take it for a boot."""
    volume: VolumeOnPaper | None = None
    """The guest uses this one from now on; all else of it is as before. Releases before 0.10.0 do not see that."""

    interface: InterfaceOnPaper | None = None
    """The guest gets this one, or loses it; all else of it is as before. Releases before 0.11.0 do not see that."""

    @property
    def is_of_device(self) -> bool:
        """Whether it is about something that the guest uses: a volume, an interface."""
        return self.volume is not None or self.interface is not None


_encoder = msgspec.json.Encoder()
_decoder = json_decoder(GuestEvent)


def read_events(path: Path) -> tuple[GuestEvent, ...]:
    """Read the whole history of a host; a last line that was torn is left out.

    Raises msgspec.DecodeError for any other line that cannot be read.
    """
    if not path.exists():
        return ()
    return tuple(_decoder.decode(line) for line in path.read_bytes().split(b"\n")[:-1])


def replay(events: Iterable[GuestEvent]) -> dict[InstanceUuid, Guest]:
    """Return the guests that are there after all these events."""
    guests: dict[InstanceUuid, Guest] = {}
    for event in events:
        apply(guests, event)
    return guests


def apply(guests: dict[InstanceUuid, Guest], event: GuestEvent) -> None:
    """Take one event into account."""
    if event.event == "spawn_begun":
        guests[event.instance] = Guest(
            instance=event.instance,
            attempt=event.attempt,
            name=event.name,
            resources=event.resources,
            allocation=event.allocation,
            power_state=PowerState.NOSTATE,
            whole=False,
        )
        return
    guest = guests.get(event.instance)
    if guest is None or guest.attempt != event.attempt:
        return
    if event.event == "destroyed":
        del guests[event.instance]
        return
    state = event.left or (PowerState.SHUTDOWN if event.event == "powered_off" else PowerState.RUNNING)
    guests[event.instance] = msgspec.structs.replace(guest, whole=True, power_state=state, rescued=event.rescued)


def memories(events: Iterable[GuestEvent]) -> dict[InstanceUuid, str]:
    """Return of which boot the memory of each guest is: the attempt and time of the event that began it."""
    found: dict[InstanceUuid, str] = {}
    for event in events:
        remember(found, event)
    return found


def remember(found: dict[InstanceUuid, str], event: GuestEvent) -> None:
    """Take one event into account."""
    if event.is_of_device:
        return
    boots = event.event in ("spawned", "rebooted") or (event.event == "powered_on" and event.instance not in found)
    if event.memory:
        found[event.instance] = event.memory
    elif boots:
        found[event.instance] = f"{event.attempt}@{event.at}"
    elif event.event == "destroyed" or (event.event == "powered_off" and event.left is None):
        found.pop(event.instance, None)


def use(found: dict[InstanceUuid, dict[str, VolumeOnPaper]], event: GuestEvent) -> None:
    """Take into account which volumes guests use, by the names of their disks, as far as that was told."""
    if event.event == "destroyed":
        found.pop(event.instance, None)
    elif event.volume is not None and event.volume.gone:
        found.get(event.instance, {}).pop(event.volume.device, None)
    elif event.volume is not None:
        found.setdefault(event.instance, {})[event.volume.device] = event.volume


def get(found: dict[InstanceUuid, set[str]], event: GuestEvent) -> None:
    """Take into account which interfaces guests got while they were there, by their ports."""
    if event.event == "destroyed":
        found.pop(event.instance, None)
    elif event.interface is not None and event.interface.gone:
        found.get(event.instance, set()).discard(event.interface.port_id)
    elif event.interface is not None:
        found.setdefault(event.instance, set()).add(event.interface.port_id)


class GuestLog:
    """A host's guests, as its file tells them."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        events = read_events(path)
        self.guests = replay(events)
        self.memories = memories(events)
        self.volumes: dict[InstanceUuid, dict[str, VolumeOnPaper]] = {}
        self.interfaces: dict[InstanceUuid, set[str]] = {}
        for event in events:
            use(self.volumes, event)
            get(self.interfaces, event)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _cut_torn_end(self._file)

    def write(self, event: GuestEvent) -> None:
        """Append an event and take it into account. Raises OSError."""
        line = _encoder.encode(event) + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError("the guests' file cannot be written: no space left")
        apply(self.guests, event)
        remember(self.memories, event)
        use(self.volumes, event)
        get(self.interfaces, event)

    def close(self) -> None:
        """Close the file. The guests stay."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _cut_torn_end(file: int) -> None:
    size = os.fstat(file).st_size
    data = os.pread(file, size, 0)
    if data and not data.endswith(b"\n"):
        os.ftruncate(file, data.rfind(b"\n") + 1)
