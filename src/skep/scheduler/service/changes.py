"""How records change: functions from a value to the next one. They run again on the fresh value after a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from skep.domain.claims import Claim, ClaimKey
from skep.domain.groups import GroupRule
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler import CellWish, HostReport
from skep.scheduler.groups import GroupSlot, allows
from skep.scheduler.service.records import BeatValue, CellValue, ComputeValue, GroupValue, Report

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Change(Generic[AnswerT]):
    """The next value of a record (the same object: nothing to store; None: remove it) and what to tell the asker."""

    value: Any
    answer: AnswerT


Changing = Callable[[Any], Change[AnswerT]]
"""From the record's value, None if there is none, to its change."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of a report: the claims left, or that it was older than the record's."""

    claims: tuple[Claim, ...]
    stale: bool


def merge_report(report: HostReport) -> Changing[Merged]:
    """Set the usage and remove the settled claims, unless the record has a younger report."""

    def change(value: ComputeValue | None) -> Change[Merged]:
        held = value.report if value is not None else None
        claims = value.claims if value is not None else ()
        if held is not None and (report.incarnation, report.seq) < (held.incarnation, held.seq):
            return Change(value, Merged(claims, stale=True))
        settled = {(key.instance, key.attempt) for key in report.settled if key.node == report.node}
        left = tuple(claim for claim in claims if claim.key not in settled)
        fresh = Report(incarnation=report.incarnation, seq=report.seq, usage=report.usage)
        return Change(ComputeValue(cell=report.cell, report=fresh, claims=left), Merged(left, stale=False))

    return change


def add_claim(claim: Claim) -> Changing[bool]:
    """Claim, if the record has room by its own account; a claim that is there already is a yes."""

    def change(value: ComputeValue | None) -> Change[bool]:
        if value is None or value.report is None:
            return Change(value, answer=False)
        if any(held.key == claim.key for held in value.claims):
            return Change(value, answer=True)
        if not has_room(value, claim):
            return Change(value, answer=False)
        grown = ComputeValue(cell=value.cell, report=value.report, claims=(*value.claims, claim))
        return Change(grown, answer=True)

    return change


def has_room(value: ComputeValue, claim: Claim) -> bool:
    """Tell whether the claim fits beside what the host uses and what is claimed on it."""
    assert value.report is not None
    usage = value.report.usage
    for name, amount in claim.resources.items():
        inventory = usage.inventory.get(name)
        taken = usage.used.get(name, 0) + sum(held.resources.get(name, 0) for held in value.claims)
        if inventory is None or taken + amount > inventory.capacity:
            return False
    return True


def assert_claims(claims: tuple[Claim, ...], cell: Any, *, checked: bool) -> Changing[tuple[Claim, ...]]:
    """Add what a cell's rows say is claimed; answer those that do not fit, which are left out.

    Not `checked`: they were there before anything else in this epoch, so all are taken.
    """

    def change(value: ComputeValue | None) -> Change[tuple[Claim, ...]]:
        grown = value if value is not None else ComputeValue(cell=cell)
        refused = []
        for claim in claims:
            if any(held.key == claim.key for held in grown.claims):
                continue
            if checked and grown.report is not None and not has_room(grown, claim):
                refused.append(claim)
                continue
            grown = replace(grown, claims=(*grown.claims, claim))
        same = value is not None and grown.claims == value.claims
        return Change(value if same else grown, tuple(refused))

    return change


def remove_claim(key: ClaimKey) -> Changing[bool]:
    """Free one claim; answer whether it was there."""

    def change(value: ComputeValue | None) -> Change[bool]:
        if value is None:
            return Change(None, answer=False)
        left = tuple(claim for claim in value.claims if claim.key != (key.instance, key.attempt))
        if len(left) == len(value.claims):
            return Change(value, answer=False)
        return Change(replace(value, claims=left), answer=True)

    return change


def take_slot(rule: GroupRule, slot: GroupSlot, *, checked: bool = True) -> Changing[bool]:
    """Take a member's place, if the policy allows it beside the others; a place that is there already is a yes.

    An attempt has one place: an older choice of the same attempt, whose claim was not stored, gives way.
    """

    def change(value: GroupValue | None) -> Change[bool]:
        slots = value.slots if value is not None else ()
        if slot in slots:
            return Change(value, answer=True)
        if checked and not allows(rule, slots, slot):
            return Change(value, answer=False)
        mine = (slot.instance, slot.attempt)
        others = (held for held in slots if (held.instance, held.attempt) != mine)
        return Change(GroupValue(slots=(*others, slot)), answer=True)

    return change


def free_slot(key: ClaimKey) -> Changing[bool]:
    """Free the place of one attempt on one node; answer whether there was one. An empty group leaves no record."""

    def change(value: GroupValue | None) -> Change[bool]:
        slots = value.slots if value is not None else ()
        gone = GroupSlot(key.instance, key.attempt, key.node)
        left = tuple(slot for slot in slots if slot != gone)
        if len(left) == len(slots):
            return Change(value, answer=False)
        return Change(GroupValue(slots=left) if left else None, answer=True)

    return change


def set_wish(wish: Any) -> Changing[None]:
    """Set what the operator wants of a host or an aggregate; None removes it."""

    def change(value: Any) -> Change[None]:
        return Change(value if value == wish else wish, None)

    return change


def set_cell_wish(wish: CellWish | None) -> Changing[None]:
    """Set what the operator wants of a cell; whether it has asserted is not touched."""

    def change(value: CellValue | None) -> Change[None]:
        before = value if value is not None else CellValue()
        after = replace(before, wish=wish)
        if after == before:
            return Change(value, None)
        return Change(after if after != CellValue() else None, None)

    return change


def set_asserted() -> Changing[None]:
    """Note that the cell has told all its claims under this epoch."""

    def change(value: CellValue | None) -> Change[None]:
        before = value if value is not None else CellValue()
        return Change(before if before.asserted else replace(before, asserted=True), None)

    return change


def set_beat(heard: Iterable[NodeUuid], at: int, *, listening: bool = False) -> Changing[None]:
    """Set a cell's beat. Every beat is a change: readers see from it that the cell lives."""
    beat = BeatValue(heard=tuple(heard), at=at, listening=listening)

    def change(value: BeatValue | None) -> Change[None]:  # noqa: ARG001  # the signature of changes
        return Change(beat, None)

    return change
