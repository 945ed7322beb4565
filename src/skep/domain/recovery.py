"""Decides about an instance whose row went back in time, by the hosts' reports of their guests. Pure.

A guest is never undone for a number that its row does not know yet: its host got
that number in the lost time. The row follows the guest if there is one, and waits for an operator if there are several,
or if a move had begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Instance, PowerState, State
from skep.domain.states import BUILT_BY_HOST, GUEST_ON_HOST

FoundPhase = Literal["whole", "aside", "spawning", "building", "none", "undo"]
"""Whole: the guest is there. Aside: it was put aside for a move, and its disks are kept; hosts tell it to those who ask
for it. Spawning: it was allowed, and may be there any moment. Building: before that, also the target of a move. None:
nothing of the instance is on the host, which only says which attempts it has heard of. Undo: an operator wants it
destroyed."""


class FoundGuest(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one host about one attempt."""

    node: NodeUuid
    host: str
    instance: InstanceUuid
    attempt: int
    highest: int
    """The newest attempt of the instance that the host has heard of."""
    phase: FoundPhase
    power_state: PowerState = PowerState.NOSTATE
    launched_at: int = 0
    described: Instance | None = None
    """The instance as in the host's order; None: the host does not remember it."""
    deleted: bool = False
    """Whether the host was ordered to undo the newest of these attempts because the server was deleted."""


class RowBefore(msgspec.Struct, frozen=True, kw_only=True):
    """A row as it went back."""

    state: State
    attempt: int
    host: str | None
    built: bool
    """Whether the row says that its guest ran."""
    deleting: bool
    host_told: bool
    """Whether its host has reported its guests."""


class Wait(msgspec.Struct, frozen=True):
    """Some hosts that may know of it have not reported yet."""


class Adopt(msgspec.Struct, frozen=True):
    """The row follows this guest, or this build."""

    guest: FoundGuest


class GoOn(msgspec.Struct, frozen=True):
    """Nothing of it is anywhere: the row goes on as it stood, its next attempt above all that hosts have heard of."""

    highest: int
    elsewhere: bool
    """Whether the attempt of the row is over on its host, so that another one is due."""


class Doubt(msgspec.Struct, frozen=True):
    """An operator has to decide."""

    reason: str


ENDED = Doubt("deleted in the time that is lost, as a host remembers")
"""About a server that would be built again. Nothing of it is anywhere, so a delete need not wait for the operator."""


Verdict = Wait | Adopt | GoOn | Doubt


def decide(row: RowBefore, found: Sequence[FoundGuest], *, all_told: bool) -> Verdict:
    """Decide about one instance. `all_told`: every host has told or was released, and the level above has looked."""
    ahead = [one for one in found if one.phase not in ("none", "undo") and _may_be_current(row, one)]
    whole = [one for one in ahead if one.phase == "whole"]
    if len(whole) > 1:
        return Doubt(f"guests of {_named(whole)}")
    if whole:
        beside = [one for one in ahead if one.attempt > whole[0].attempt]
        return Doubt(f"begun beside {_named(whole)}: {_named(beside)}") if beside else Adopt(whole[0])
    if not all_told:
        return Wait()
    if any(is_half_of_move(row, one) for one in ahead):
        return Doubt(f"a move had begun: {_named(ahead)}")
    if ahead:
        newest = max(one.attempt for one in ahead)
        same = [one for one in ahead if one.attempt == newest]
        return Adopt(same[0]) if len(same) == 1 else Doubt(f"builds of {_named(same)}")
    if was_deleted(found) and not row.deleting:
        return ENDED
    highest = max((one.highest for one in found), default=0)
    over = row.state in (State.BUILDING, State.SPAWNING) and row.host_told
    return GoOn(highest, elsewhere=over or (row.state in BUILT_BY_HOST and highest > row.attempt))


def go_on(row: RowBefore, highest: int) -> GoOn:
    """Return what becomes of a row by an operator's word that nothing of it is anywhere, whatever hosts reported."""
    lost = row.state in (State.BUILDING, State.SPAWNING)
    return GoOn(highest, elsewhere=lost or (row.state is State.SCHEDULED and highest >= row.attempt))


def was_deleted(found: Sequence[FoundGuest]) -> bool:
    """Tell whether the last that hosts have heard of an instance is that it was deleted."""
    ends = [one.highest for one in found if one.deleted]
    return bool(ends) and all(one.highest <= max(ends) for one in found)


def is_half_of_move(row: RowBefore | None, one: FoundGuest) -> bool:
    """Tell whether what a host has without a guest belongs to a move that began in the lost time.

    A server that has a guest is not built: what was begun beside it is the target of a move, a rebuild or an
    evacuation, and its disks may be anywhere between the two.
    """
    if row is None or one.phase in ("whole", "aside"):
        return one.phase == "aside"
    return row.built and row.state in (*GUEST_ON_HOST, State.ERROR) and one.attempt > row.attempt


def in_words(verdict: Verdict) -> str:
    """Return a verdict as operators read it."""
    match verdict:
        case Adopt(guest):
            what = "guest" if guest.phase == "whole" else "build"
            return f"follows the {what} of attempt {guest.attempt} on {guest.host}"
        case GoOn(highest, elsewhere):
            above = f", above attempt {highest}" if highest else ""
            return f"{'is built on another host' if elsewhere else 'goes on as it stood'}{above}"
        case Doubt(reason):
            return f"in doubt: {reason}"
        case Wait():
            return "waits for hosts that have not told"


def _may_be_current(row: RowBefore, one: FoundGuest) -> bool:
    """What is older than its row was replaced before the row went back; of a deleted one nothing is current."""
    return one.attempt > row.attempt or (one.attempt == row.attempt and not row.deleting)


def _named(found: Sequence[FoundGuest]) -> str:
    return ", ".join(
        f"attempt {one.attempt} on {one.host}" for one in sorted(found, key=lambda one: (one.attempt, one.host))
    )
