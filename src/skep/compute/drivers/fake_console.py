"""The console of a `fake` guest: what a small system would write as it starts and stops, made of what happened to it.

Each line begins with the time of its event, in microseconds since the epoch, and the name of the guest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skep.compute.drivers.base import Guest
from skep.compute.drivers.guest_log import GuestEvent
from skep.domain.instances import PowerState
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU

_OWN_DISK = "its own disk"
_WITH_RESCUE = "its rescue disk and its own disk"


def console_lines(events: Iterable[GuestEvent], guest: Guest) -> list[bytes]:
    """Return what a guest has written to its console since it was made; `events` are those of its whole host."""
    lines: list[bytes] = []
    left, boots = PowerState.NOSTATE, 0
    for event in events:
        if (event.instance, event.attempt) != (guest.instance, guest.attempt) or event.event == "spawn_begun":
            continue
        if event.volume is not None:
            continue
        said, boots = _said(event, guest, left, boots)
        lines += [f"[{event.at}] {guest.name} {one}\n".encode() for one in said]
        left = event.left or (PowerState.SHUTDOWN if event.event == "powered_off" else PowerState.RUNNING)
    return lines


def _said(event: GuestEvent, guest: Guest, left: PowerState, boots: int) -> tuple[list[str], int]:
    """Return what a guest writes of an event, and how often it has booted then; `left` is how it was before."""
    if event.memory:
        return [f"came from another host with its memory, as attempt {event.attempt}"], boots
    match event.event:
        case "powered_off":
            return [_stopped(event)], boots
        case "powered_on" if left in (PowerState.PAUSED, PowerState.SUSPENDED):
            return ["goes on where it was"], boots
        case "rebooted":
            how = "was reset" if event.hard else "goes down for a reboot"
            return [how, *_boots(event, guest, boots + 1)], boots + 1
        case _:
            return list(_boots(event, guest, boots + 1)), boots + 1


def _stopped(event: GuestEvent) -> str:
    if event.left is PowerState.PAUSED:
        return "was paused"
    if event.left is PowerState.SUSPENDED:
        return "stored its memory and was suspended"
    return "lost its power" if event.hard else "halted"


def _boots(event: GuestEvent, guest: Guest, number: int) -> Iterator[str]:
    has = guest.resources
    disks = _WITH_RESCUE if event.rescued else _OWN_DISK
    yield f"firmware: boot {number} of attempt {event.attempt}"
    yield f"firmware: server {guest.instance}"
    yield f"firmware: starts from {disks}"
    yield "kernel: console on the first serial port"
    yield f"kernel: processors brought up: {has.get(VCPU, 0)}"
    yield f"kernel: memory: {has.get(MEMORY_MB, 0)} MiB"
    yield f"kernel: disks: {2 if event.rescued else 1}, {has.get(DISK_GB, 0)} GiB in all"
    yield "init: root file system checked and mounted"
    yield f"init: hostname is {guest.name}"
    yield "init: no network"
    yield "init: services started"
    yield f"booted from {disks}"
