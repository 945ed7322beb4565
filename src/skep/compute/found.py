"""Tells the cell conductor, when its database went back in time, of all guests and builds that the host has."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from skep.compute.attempts import InstanceRecord, OpenAttempt
from skep.compute.drivers.base import Guest
from skep.compute.host import Host
from skep.domain.builds import BuildFailure
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.recovery import FoundPhase
from skep.messages.to_cell_conductor import GuestHere, GuestsFound
from skep.messages.to_compute import TellGuests

log = structlog.get_logger("skep.compute")

IN_ONE_MESSAGE = 100
"""Guests with what the host was told of them: some hundred kB."""


class GuestTelling:
    """One telling at a time; a later question than the one under way is answered after it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._wanted: TellGuests | None = None
        self._telling = False

    def take(self, message: TellGuests) -> None:
        """Tell all, soon."""
        self._wanted = message
        if not self._telling and not self._host.work.stopping:
            self._telling = True
            self._host.work.start(self._tell(), name=f"guests {self._host.name}")

    async def _tell(self) -> None:
        try:
            while (wanted := self._wanted) is not None:
                guests = await self._host.calls.read("guests", self._host.driver.guests)
                if isinstance(guests, BuildFailure):
                    # Nothing is said rather than something wrong: it is asked again.
                    log.error("guests not read, so not reported", host=self._host.name, error=guests.message)
                    return
                self._wanted = None
                await self._send(wanted.timeline, list(self._here(guests, aside=wanted.aside)))
        finally:
            self._telling = False

    async def _send(self, timeline: int, here: list[GuestHere]) -> None:
        host = self._host
        for start in range(0, len(here) or 1, IN_ONE_MESSAGE):
            await host.upcalls.ask(
                GuestsFound(
                    node=host.node,
                    host=host.name,
                    timeline=timeline,
                    guests=tuple(here[start : start + IN_ONE_MESSAGE]),
                    more=start + IN_ONE_MESSAGE < len(here),
                ),
                wanted=lambda: self._wanted is None,
            )
        log.info(
            "guests reported after a database went back in time",
            host=host.name,
            guests=sum(one.phase != "none" for one in here),
            timeline=timeline,
        )

    def _here(self, guests: tuple[Guest, ...], *, aside: bool) -> Iterator[GuestHere]:
        """Read the journal beside the hypervisor: what either knows is here. `aside`: so is what was put aside."""
        there = {(guest.instance, guest.attempt): guest for guest in guests}
        for instance, record in self._host.journal.attempts.records.items():
            found = {number for uuid, number in there if uuid == instance}
            kept = {number for number, opened in record.open.items() if opened.aside} - found
            attempts = {*record.open, *record.left_behind, *found} - (set() if aside else kept)
            for attempt in sorted(attempts):
                yield _told(instance, attempt, record, there.pop((instance, attempt), None))
            if not attempts:
                yield GuestHere(instance, 0, _highest(record), "none", deleted=_was_deleted(record))
        for (instance, attempt), guest in there.items():
            yield _told(instance, attempt, None, guest)


def _told(instance: InstanceUuid, attempt: int, record: InstanceRecord | None, guest: Guest | None) -> GuestHere:
    opened = record.open.get(attempt) if record is not None else None
    built = opened.built if opened is not None else None
    return GuestHere(
        instance=instance,
        attempt=attempt,
        highest=max(attempt, _highest(record) if record is not None else 0),
        phase=_phase(opened, guest),
        power_state=guest.power_state if guest is not None else PowerState.NOSTATE,
        launched_at=built.launched_at if built is not None else 0,
        described=None if opened is None else opened.described,
    )


def _phase(opened: OpenAttempt | None, guest: Guest | None) -> FoundPhase:
    """Return how far an attempt is; `spawning`: the hypervisor has something of it, or may have any moment."""
    if guest is not None:
        return "whole" if guest.whole else "spawning"
    if opened is not None and opened.aside:
        return "aside"
    return "spawning" if opened is not None and opened.granted else "building"


def _was_deleted(record: InstanceRecord) -> bool:
    """Tell whether nothing newer was heard of the instance than that its server was deleted."""
    return 0 < record.deleted_up_to >= _highest(record)


def _highest(record: InstanceRecord) -> int:
    """Return the newest attempt that the host has heard of; a delete names the one that it raised."""
    return max(record.highest, record.terminate_up_to)
