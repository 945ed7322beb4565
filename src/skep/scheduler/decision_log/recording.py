"""Host states and decisions that write down what happens to them, in the order in which it does."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Protocol

from skep.domain.claims import Claim
from skep.messages.to_scheduler import SelectDestinations
from skep.placement.choice import NoHost
from skep.placement.deciding import Deciding, Seat
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.entries import (
    Applied,
    Begun,
    Decided,
    Dropped,
    EndedRequest,
    Entry,
    Found,
    Known,
    LoggedAnswer,
    LoggedRequest,
    Observed,
    Shared,
)
from skep.scheduler.records import SCHEDULERS
from skep.scheduler.seating import seats_of
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key


class Log(Protocol):
    """Where entries go: to files, or to a list in tests."""

    segment: int
    """Raised when a segment begins, which knows nothing of requests that stand in the one before."""

    @property
    def wants_snapshot(self) -> bool:
        """Whether the next segment is to begin."""

    def begin(self, records: dict[str, dict[str, Any]], known: Known) -> None:
        """Begin a segment by a snapshot: values of records by namespace and name, and what stands in none."""

    def note(self, entry: Entry) -> None:
        """Take the next entry. It may be left out until the next segment begins."""

    def open(self, run: str) -> None:
        """Begin to write in the name of a scheduler's life, at the next moment that suits."""

    def close(self) -> None:
        """Write what waits and end. May take its time."""


class RecordedStates(HostStates):
    """Host states that tell a log of each change before it happens."""

    def __init__(self, settings: SchedulerSettings, log: Log) -> None:
        """Raises Misconfigured for an unknown filter or weigher."""
        super().__init__(settings)
        self.log = log
        self.numbers = itertools.count(1)

    def observe(self, now: float) -> None:
        """Let what is too old by now lapse."""
        self.checkpoint()
        self.log.note(Observed(now))
        super().observe(now)

    def begin(self, epoch: str) -> None:
        """Forget every record: another epoch begins."""
        super().begin(epoch)
        self.log.note(Begun(epoch))

    def share_hosts(self, own: str, others: Iterable[str]) -> bool:
        """Share the hosts between this scheduler, `own`, and the others that live; tell whether these are new."""
        chosen = tuple(others)
        new = super().share_hosts(own, chosen)
        if new:
            self.log.note(Shared(own, chosen))
        return new

    def checkpoint(self) -> None:
        """Begin a segment if the log wants one. For moments at which no change is half done."""
        if not self.log.wants_snapshot:
            return
        values = {
            namespace: {name: held.value for name, held in names.items() if held.value is not None}
            for namespace, names in self._held.items()
            if namespace != SCHEDULERS
        }
        self.log.begin(values, Known(unrecorded=self.unrecorded(), heard=self.hearing.states()))
        self.table.mix.forget_request()

    def _apply(self, key: Key, before: Any, after: Any, now: float | None) -> None:
        if key.namespace != SCHEDULERS:
            self.log.note(Applied(key.namespace, key.name, now, after))
        super()._apply(key, before, after, now)


class RecordedDeciding(Deciding):
    """Decisions that tell a log what was asked and what was found."""

    def __init__(
        self, states: RecordedStates, settings: SchedulerSettings, message: SelectDestinations, seed: int
    ) -> None:
        seats = seats_of(message, settings)
        super().__init__(states, seats, min_count=message.min_count, seed=seed, dry_run=message.dry_run)
        states.checkpoint()
        self._states = states
        self._members = {id(seat): member for member, seat in enumerate(self.seats)}
        self._logged = LoggedRequest(next(states.numbers), message, seed)
        self._ends = False
        self._told_in = -1
        """The segment in which the request stands."""

    def decide(self, seat: Seat) -> None:
        """Choose a host, count the choice and note it."""
        super().decide(seat)
        self._note_decided(seat)

    def drop(self, seat: Seat) -> None:
        """Count a decision no longer that is not stored."""
        super().drop(seat)
        if seat.claim is not None and not self._ends:
            self._note(Dropped(self._logged.number, self._members[id(seat)], seat.claim.node))

    def drop_all(self) -> None:
        """Count none of the choices any longer that are not stored: the request is over."""
        self._ends = True
        super().drop_all()
        nodes = tuple(seat.claim.node if seat.claim is not None else None for seat in self.seats)
        self._note(EndedRequest(self._logged.number, nodes))

    def _decide_together(self, seats: list[Seat]) -> int:
        decided = super()._decide_together(seats)
        for seat in seats[:decided]:
            self._note_decided(seat)
        return decided

    def _find(self, seat: Seat) -> bool:
        found = super()._find(seat)
        if found:
            self._note(found_of(self._logged.number, self._members[id(seat)], seat))
        return found

    def _note_decided(self, seat: Seat) -> None:
        self._note(Decided(self._logged.number, self._members[id(seat)], seat.shunned, answer_of(seat)))

    def _note(self, entry: Entry) -> None:
        log = self._states.log
        if self._told_in != log.segment:
            self._told_in = log.segment
            log.note(self._logged)
        log.note(entry)


def answer_of(seat: Seat) -> LoggedAnswer:
    """Return what was found for a member that has just been decided."""
    choice = seat.choice
    if choice is not None:
        claim: Claim | None = seat.claim
        alternates = tuple(one.node for one in choice.alternates)
        return LoggedAnswer(claim, alternates, choice.explanation.considered, choice.explanation.stages)
    if isinstance(seat.no, NoHost):
        return LoggedAnswer(None, (), seat.no.considered, seat.no.stages, seat.no.reason)
    return LoggedAnswer(None, (), 0, (), seat.no.reason if seat.no is not None else "")


def found_of(number: int, member: int, seat: Seat) -> Found:
    """Return what is said of a member whose attempt had a claim."""
    assert seat.choice is not None
    alternates = tuple(one.node for one in seat.choice.alternates)
    return Found(number, member, seat.choice.node, alternates, seat.choice.explanation.considered)
