"""What the hypervisors did, counted from the logs of the fake hosts: outside Skep's databases, and nothing is removed.

A life is one guest on one host, from the moment that its making began until it was destroyed. While its host has no
power it is off, and harms nobody; a guest that was stopped in order still counts as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path

import msgspec
from msgspec.structs import replace

from skep.compute.drivers.fake import DISKS, DRIVES, GUESTS_FILE
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.fake_drives import HALF_MADE
from skep.compute.drivers.guest_log import GuestEvent, read_events
from skep.domain.ids import InstanceUuid
from skep.domain.resources import Resources

Span = tuple[int, int | None]
"""From and to; None: it lasts."""


def _before(moment: int, end: int | None) -> bool:
    return end is None or moment < end


class Life(msgspec.Struct, kw_only=True):
    """One guest. Times are microseconds since the epoch."""

    host: str
    instance: InstanceUuid
    attempt: int
    began: int
    ended: int | None = None
    finished: int = 0
    """How often its making was finished: once, if all is well; never, of one that stayed partial."""
    resources: Resources = {}
    off: list[Span] = msgspec.field(default_factory=list)
    """When its host had no power, from and to."""

    def overlaps(self, other: Life) -> bool:
        """Tell whether both guests existed at one moment at which both had power."""
        return any(
            _before(one[0], another[1]) and _before(another[0], one[1])
            for one in self._there()
            for another in other._there()
        )

    def _there(self) -> Iterator[Span]:
        """Return the times at which the guest could run."""
        since = self.began
        for lost, back in self.off:
            yield since, lost
            if back is None:
                return
            since = back
        yield since, self.ended

    def __str__(self) -> str:
        """Return what a report says of it."""
        return f"{self.instance} attempt {self.attempt} on {self.host}"


STARTS = ("spawned", "powered_on", "rebooted")
"""Events after which a guest runs."""

Ahead = Callable[[str, int], int]
"""By how many microseconds the clock of a host was ahead when it wrote an event, by its name and the event's number."""


def _right(_host: str, _number: int) -> int:
    return 0


def lives(state: Path, ahead: Ahead = _right) -> list[Life]:
    """Return all guests that the hosts of a state directory ever had; logs say when as the clocks of hosts have it."""
    found: list[Life] = []
    for path in sorted(state.glob(f"hosts/*/*/{GUESTS_FILE}")):
        host = path.parent.name
        events = [replace(event, at=event.at - ahead(host, number)) for number, event in enumerate(read_events(path))]
        found += lives_on(host, events)
    return found


def lives_on(host: str, events: Iterable[GuestEvent]) -> Iterator[Life]:
    """Return the guests of one host, from its log."""
    there: dict[tuple[InstanceUuid, int], Life] = {}
    for event in events:
        key = (event.instance, event.attempt)
        if event.event in STARTS and key in there and there[key].off and there[key].off[-1][1] is None:
            there[key].off[-1] = (there[key].off[-1][0], event.at)
        if event.event == "spawn_begun":
            if key in there:
                yield there[key]
            there[key] = Life(
                host=host,
                instance=event.instance,
                attempt=event.attempt,
                began=event.at,
                resources=event.resources,
            )
        elif event.event == "spawned" and key in there:
            there[key].finished += 1
        elif event.event == "powered_off" and event.hard and key in there:
            there[key].off.append((event.at, None))
        elif event.event == "powered_off" and key in there and not there[key].finished:
            # A move of a server that is stopped makes a guest that does not run.
            there[key].finished = 1
        elif event.event == "destroyed" and key in there:
            life = there.pop(key)
            life.ended = event.at
            yield life
    yield from there.values()


def disks(state: Path) -> list[tuple[str, InstanceUuid, int]]:
    """Return whose disks there are: host, instance and attempt of each."""
    return [
        (home.parent.name, instance, attempt)
        for home in sorted(state.glob(f"hosts/*/*/{DISKS}"))
        for instance, attempt in FakeDisks(home).labels()
    ]


def drives(state: Path) -> list[tuple[str, InstanceUuid, int]]:
    """Return whose config drives there are, whole or half made: host, instance and attempt of each."""
    found: list[tuple[str, InstanceUuid, int]] = []
    for home in sorted(state.glob(f"hosts/*/*/{DRIVES}/*")):
        uuid, _, attempt = home.name.removesuffix(HALF_MADE).partition("_")
        found.append((home.parents[1].name, InstanceUuid(uuid), int(attempt)))
    return found


def disk(state: Path, host: str, instance: str, attempt: int) -> Path:
    """Return the file of a disk. Raises ValueError where its host has none."""
    [home] = state.glob(f"hosts/*/{host}/{DISKS}")
    return FakeDisks(home).path(InstanceUuid(instance), attempt)


def double_built(all_lives: Iterable[Life]) -> list[str]:
    """Return servers that had two guests at one moment, ever, and guests that were made twice."""
    by_instance: dict[InstanceUuid, list[Life]] = {}
    for life in all_lives:
        by_instance.setdefault(life.instance, []).append(life)
    found = [
        f"{life} was finished {life.finished} times"
        for one in by_instance.values()
        for life in one
        if life.finished > 1
    ]
    for one in by_instance.values():
        found += [f"{first} beside {second}" for first, second in combinations(one, 2) if first.overlaps(second)]
    return found


def living(all_lives: Iterable[Life]) -> list[Life]:
    """Return the guests that are there now."""
    return [life for life in all_lives if life.ended is None]
