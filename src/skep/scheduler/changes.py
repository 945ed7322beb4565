"""How records change: functions from a value to the next one. They run again on the fresh value after a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from skep.domain.cells import Cell
from skep.domain.claims import Claim, ClaimKey
from skep.domain.groups import GroupRule
from skep.domain.hosts import HostUsage, RefusedReport, Report
from skep.domain.ids import CellUuid
from skep.domain.nested.wanted import Wanted
from skep.messages.to_scheduler import HostReport
from skep.messages.to_scheduler_liveness import HeardPage
from skep.placement.groups import GroupSlot, allows
from skep.scheduler.parts import has_parts, with_parts
from skep.scheduler.records import BeatValue, CellValue, ComputeValue, GroupValue, HearingValue

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
    younger: int | None = None
    """The record's incarnation, when the report's is an older one."""


def merge_report(report: HostReport) -> Changing[Merged]:
    """Set the usage and remove the settled claims, unless the record has a younger report."""

    def change(value: ComputeValue | None) -> Change[Merged]:
        held = value.report if value is not None else None
        claims = value.claims if value is not None else ()
        if held is not None and (report.incarnation, report.seq) < (held.incarnation, held.seq):
            younger = held.incarnation if report.incarnation < held.incarnation else None
            return Change(value, Merged(claims, stale=True, younger=younger))
        settled = {(key.instance, key.attempt) for key in report.settled if key.node == report.node}
        left = tuple(claim for claim in claims if claim.key not in settled)
        if value is not None and _repeats(value, report) and len(left) == len(claims):
            return Change(value, Merged(left, stale=False))
        fresh = Report(incarnation=report.incarnation, seq=report.seq, usage=report.usage)
        incomplete = value is not None and value.incomplete
        after = ComputeValue(cell=report.cell, report=fresh, claims=left, incomplete=incomplete)
        return Change(after, Merged(left, stale=False))

    return change


def _repeats(value: ComputeValue, report: HostReport) -> bool:
    """Tell whether a report is the record's own once more: then nothing is to be written."""
    held = value.report
    return (
        held is not None
        and (report.incarnation, report.seq) == (held.incarnation, held.seq)
        and value.refused is None
        and value.cell == report.cell
        and report.usage == held.usage
    )


def note_refused(report: HostReport, reason: str, at: int) -> Changing[bool]:
    """Note that a report makes no sense; the last good one stays. Answer whether that is news.

    Not when the record knows of a younger report, and not again for the same reason. `at`: microseconds since the
    epoch.
    """

    def change(value: ComputeValue | None) -> Change[bool]:
        before = value if value is not None else ComputeValue(cell=report.cell)
        spoken = (report.incarnation, report.seq)
        if before.report is not None and spoken < (before.report.incarnation, before.report.seq):
            return Change(value, answer=False)
        if before.refused is not None and before.refused.reason == reason:
            return Change(value, answer=False)
        refused = RefusedReport(reason=reason, since=at, incarnation=report.incarnation, seq=report.seq)
        return Change(replace(before, refused=refused), answer=True)

    return change


StillFits = Callable[[HostUsage, tuple[Claim, ...]], bool]
"""Whether limits that no record knows of itself allow one more claim beside those."""


def add_claim(claim: Claim, asked: Wanted | None = None, still_fits: StillFits | None = None) -> Changing[Claim | None]:
    """Claim, if the record has room by its own account; answer the claim as it is stored, None where it is not.

    `asked`: of the inside of the host. Parts that others hold by now are replaced by others of the same host. A claim
    that is there already is a yes. `still_fits`: judges the record, too.
    """

    def change(value: ComputeValue | None) -> Change[Claim | None]:
        if value is None or value.report is None or value.incomplete:
            return Change(value, None)
        for held in value.claims:
            if held.instance == claim.instance and held.attempt == claim.attempt:
                return Change(value, held)
        if still_fits is not None and not still_fits(value.report.usage, value.claims):
            return Change(value, None)
        fitted = with_parts(value, claim, asked) if _has_amounts(value, claim) else None
        if fitted is None:
            return Change(value, None)
        return Change(replace(value, claims=(*value.claims, fitted)), fitted)

    return change


def has_room(value: ComputeValue, claim: Claim) -> bool:
    """Tell whether the claim fits beside what the host uses and what is claimed on it."""
    return _has_amounts(value, claim) and has_parts(value, claim)


def _has_amounts(value: ComputeValue, claim: Claim) -> bool:
    assert value.report is not None
    usage = value.report.usage
    claimed = [held.resources for held in value.claims]
    for name, amount in claim.resources.items():
        inventory = usage.inventory.get(name)
        taken = usage.used.get(name, 0) + sum([one[name] for one in claimed if name in one])
        if inventory is None or taken + amount > inventory.capacity:
            return False
    return True


def assert_claims(claims: tuple[Claim, ...], cell: CellUuid, *, checked: bool) -> Changing[tuple[Claim, ...]]:
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


def tell_again(claims: tuple[Claim, ...], cell: CellUuid) -> Changing[tuple[Claim, ...]]:
    """Complete the record of a node that was lost with all claims that its cell knows of.

    Nobody claimed there meanwhile, so all are taken. A record that is complete by now takes what fits.
    """
    checked = assert_claims(claims, cell, checked=True)
    unchecked = assert_claims(claims, cell, checked=False)

    def change(value: ComputeValue | None) -> Change[tuple[Claim, ...]]:
        if value is None or not value.incomplete:
            return checked(value)
        grown = unchecked(value).value
        return Change(replace(grown, cell=cell, incomplete=False), ())

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


def take_slot(
    rule: GroupRule,
    slot: GroupSlot,
    *,
    checked: bool = True,
    spreads: Callable[[Iterable[GroupSlot]], bool] | None = None,
) -> Changing[bool]:
    """Take a member's place, if the policy allows it beside the others; a place that is there already is a yes.

    `spreads`: whether the topology spread that the server asks for allows it, too.

    An attempt has one place: an older choice of the same attempt, whose claim was not stored, gives way.
    """

    def change(value: GroupValue | None) -> Change[bool]:
        before = value if value is not None else GroupValue(slots=())
        if slot in before.slots:
            return Change(value, answer=True)
        if checked and rule.is_hard:
            allowed = allows(rule, before.slots, slot) and (spreads is None or spreads(before.slots))
            if before.incomplete or not allowed:
                return Change(value, answer=False)
        mine = (slot.instance, slot.attempt)
        others = (held for held in before.slots if (held.instance, held.attempt) != mine)
        return Change(replace(before, slots=(*others, slot)), answer=True)

    return change


def tell_members(
    slots: Iterable[GroupSlot], cell: CellUuid, cells: Iterable[CellUuid], *, more: bool = False
) -> Changing[None]:
    """Take slots of one cell into the record of a group that was lost.

    It is complete when all `cells` have told theirs; `more`: this one has not told all of its own yet.
    """

    def change(value: GroupValue | None) -> Change[None]:
        if value is None or not value.incomplete:
            return Change(value, None)
        merged = tuple(dict.fromkeys((*value.slots, *slots)))
        told = value.told if more else tuple(sorted({*value.told, cell}))
        if not set(cells) <= set(told):
            return Change(replace(value, slots=merged, told=told), None)
        return Change(GroupValue(slots=merged) if merged else None, None)

    return change


def free_slot(key: ClaimKey) -> Changing[bool]:
    """Free the place of one attempt on one node; answer whether there was one. An empty group leaves no record."""

    def change(value: GroupValue | None) -> Change[bool]:
        slots = value.slots if value is not None else ()
        gone = GroupSlot(key.instance, key.attempt, key.node)
        left = tuple(slot for slot in slots if slot != gone)
        if len(left) == len(slots):
            return Change(value, answer=False)
        kept = value is not None and (value.incomplete or left)
        return Change(replace(value, slots=left) if value is not None and kept else None, answer=True)

    return change


def set_value(wanted: Any) -> Changing[None]:
    """Set the whole value of a record, such as the operator's intent for a host; None removes the record."""

    def change(value: Any) -> Change[None]:
        return Change(value if value == wanted else wanted, None)

    return change


def remove_unchanged(judged: Any) -> Changing[bool]:
    """Remove a record that still is what was judged to be of no use; answer whether it was.

    Whoever was halted finds everybody else's records old by his own clock, until he has read what came meanwhile.
    """

    def change(value: Any) -> Change[bool]:
        if value is None or value is not judged:
            return Change(value, answer=False)
        return Change(None, answer=True)

    return change


def set_cell_intent(intent: Cell | None) -> Changing[None]:
    """Set the operator's intent for a cell; whether it has asserted is not touched."""

    def change(value: CellValue | None) -> Change[None]:
        before = value if value is not None else CellValue()
        after = replace(before, intent=intent)
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


def set_hearing(page: HeardPage) -> Changing[None]:
    """Set a page of the nodes that a conductor hears."""

    def change(value: HearingValue | None) -> Change[None]:
        if value is not None and value.version == page.version:
            return Change(value, None)
        return Change(HearingValue(version=page.version, nodes=page.nodes), None)

    return change


def set_beat(pages: tuple[int, ...], at: int, *, listening: bool = False) -> Changing[None]:
    """Set a conductor's beat. Every beat is a change: readers see from it that the cell lives."""
    beat = BeatValue(pages=pages, at=at, listening=listening)

    def change(value: BeatValue | None) -> Change[None]:  # noqa: ARG001  # the signature of changes
        return Change(beat, None)

    return change
