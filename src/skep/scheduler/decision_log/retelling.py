"""Host states as a decision log tells of them: entry by entry, what the scheduler knew."""

from __future__ import annotations

from typing import Any

from skep.domain.claims import Claim
from skep.domain.ids import NodeUuid
from skep.placement.deciding import Deciding, Seat
from skep.placement.groups import GroupSlot
from skep.placement.knowledge import Knowledge
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.entries import (
    Applied,
    Begun,
    Kept,
    Known,
    LoggedAnswer,
    LoggedRequest,
    Observed,
    Shared,
)
from skep.scheduler.records import BEATS, HEARING
from skep.scheduler.seating import seats_of
from skep.scheduler.states import NOT_APPLICABLE, Held, HostStates
from skep.synchronizer.base import Key

Change = Kept | Known | Applied | Begun | Observed | Shared


class RetoldStates(HostStates):
    """Knowledge that follows a log. Between changes `settle` puts what waits into the columns."""

    def take_change(self, entry: Change) -> None:
        """Take what a line says of records, beats, epochs or other schedulers."""
        match entry:
            case Kept():
                self._keep(Key(entry.namespace, entry.name), entry.value)
            case Applied():
                self._change(Key(entry.namespace, entry.name), entry.value, entry.now)
            case Known():
                self.settle()
                self.hearing.restore(entry.heard)
                self.restore_unrecorded(entry.unrecorded)
            case Begun():
                self.settle()
                self.begin(entry.epoch)
            case Observed():
                self.settle()
                self.observe(entry.now)
            case Shared():
                self.share_hosts(entry.run, entry.others)

    def settle(self) -> None:
        """Put all that was taken into the columns: before anything is decided."""
        self._intake.flush()

    def _keep(self, key: Key, value: Any) -> None:
        if key.namespace in {BEATS, HEARING}:
            # When they were seen, and together with what else, says the end of the snapshot.
            self._hold(key, Held(1, value))
        else:
            self._change(key, value, None)

    def _change(self, key: Key, value: Any, now: float | None) -> None:
        before = self.held(key)
        value = self._sharing.shared(before.value, value)
        self._hold(key, Held(before.generation + 1, value))
        try:
            self._apply(key, before.value, value, now)
        except NOT_APPLICABLE:
            # As it did when it was recorded. What the scheduler made of it is the next line.
            return


class RetoldDeciding(Deciding):
    """A request that is decided once more, one member at a time, as the log says."""

    def __init__(self, known: Knowledge, settings: SchedulerSettings, logged: LoggedRequest) -> None:
        message = logged.message
        seats = seats_of(message, settings)
        super().__init__(known, seats, min_count=message.min_count, seed=logged.seed, dry_run=message.dry_run)

    def find(self, seat: Seat) -> bool:
        """Find the claim that an earlier call of the same attempt made; tell whether there is one."""
        return self._find(seat)

    def follow(self, seat: Seat, answer: LoggedAnswer) -> None:
        """Let count what was decided instead of what is."""
        self.drop(seat)
        if answer.claim is not None:
            self._choose(seat, answer.claim)
            self._known.claims.assume(answer.claim)
            if seat.slot is not None and seat.request.spec.group is not None:
                self._known.groups.assume(seat.request.spec.group.uuid, seat.slot)

    def drop_from(self, seat: Seat, node: NodeUuid) -> None:
        """Let a choice count no longer, which may have been made before the segment began."""
        if seat.claim is None or seat.claim.node != node:
            self._choose(seat, Claim(instance=seat.instance, attempt=seat.attempt, node=node, resources={}))
        self.drop(seat)

    @staticmethod
    def _choose(seat: Seat, claim: Claim) -> None:
        seat.claim = claim
        if seat.request.spec.group is not None:
            seat.slot = GroupSlot(seat.instance, seat.attempt, claim.node)
