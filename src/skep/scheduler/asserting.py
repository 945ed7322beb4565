"""What a cell tells from its rows: everything under a new epoch, and again what belongs to a record that was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.groups import GroupRule, Policy
from skep.domain.ids import CellUuid, GroupUuid, NodeUuid
from skep.messages.to_scheduler import AssertClaims, AssertReply, Slot
from skep.placement.groups import GroupSlot
from skep.scheduler import changes
from skep.scheduler.changes import Change, Changing
from skep.scheduler.commits import Commits
from skep.scheduler.records import CELLS, COMPUTE, GROUPS, OPERATOR, CellValue, ComputeValue, GroupValue
from skep.scheduler.releasing import free_slots
from skep.scheduler.reporting import claim_key
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key

AnswerT = TypeVar("AnswerT")
MOST_LOST = 500
"""Nodes, and groups, that one beat's answer names."""
_NONE: tuple[Claim, ...] = ()


async def assert_claims(states: HostStates, commits: Commits, message: AssertClaims) -> AssertReply:
    """Take what a cell's rows say, slots first; with the last page the cell's hosts may become candidates.

    Until a cell has asserted in this epoch nobody else can have claimed there, so its first assertion is taken as a
    whole. Later ones must fit beside what was claimed meanwhile.
    """
    if message.epoch != states.epoch:
        return AssertReply(epoch=states.epoch)
    if message.nodes is not None:
        return await _complete(states, commits, message, message.nodes)
    if not states.asserted(message.cell):
        # Another conductor of the cell may have asserted by another scheduler, and others claimed there since.
        await commits.look()
    told = _Told(states, message)
    taken = await asyncio.gather(*(_take_slot(commits, told, slot) for slot in message.slots))
    no_place = {slot.key for slot, yes in zip(message.slots, taken, strict=True) if not yes}
    refused = [slot.key for slot in message.slots if slot.key in no_place]
    without_place = {(key.instance, key.attempt) for key in no_place}
    by_node = _by_node(claim for claim in message.claims if claim.key not in without_place)
    stored = await asyncio.gather(
        *(
            commits.change(Key(COMPUTE, node), told.guarded(_asserting(told, tuple(claims)), _NONE))
            for node, claims in by_node.items()
        )
    )
    refused += [claim_key(claim) for result in stored for claim in result.answer]
    await free_slots(states, commits, [key for key in refused if key not in no_place])
    if states.epoch == message.epoch and not message.more:
        await commits.change(Key(CELLS, message.cell), _set_asserted(states, message.epoch))
    return AssertReply(epoch=states.epoch, refused=tuple(refused))


class _Told:
    """What a cell tells, judged when it is written: by then others may have, or another epoch has begun."""

    def __init__(self, states: HostStates, message: AssertClaims) -> None:
        self._states = states
        self._epoch = message.epoch
        self.cell = message.cell

    @property
    def checked(self) -> bool:
        """Whether the cell has asserted already, so that others may have claimed beside it."""
        return self._states.asserted(self.cell)

    def guarded(self, changing: Changing[AnswerT], unchanged: AnswerT) -> Changing[AnswerT]:
        """Change nothing, and answer `unchanged`, under another epoch than that for which it was told."""

        def change(value: Any) -> Change[AnswerT]:
            return changing(value) if self._states.epoch == self._epoch else Change(value, unchanged)

        return change


def _asserting(told: _Told, claims: tuple[Claim, ...]) -> Changing[tuple[Claim, ...]]:
    def change(value: ComputeValue | None) -> Change[tuple[Claim, ...]]:
        return changes.assert_claims(claims, told.cell, checked=told.checked)(value)

    return change


def _set_asserted(states: HostStates, epoch: str) -> Changing[None]:
    """Note that the cell has told everything, unless another epoch has begun by the time that this is written."""

    def change(value: CellValue | None) -> Change[None]:
        return changes.set_asserted()(value) if states.epoch == epoch else Change(value, None)

    return change


def lost_records(states: HostStates, cell: CellUuid) -> tuple[tuple[NodeUuid, ...], tuple[GroupUuid, ...]]:
    """Return nodes of the cell whose records were lost, and the groups of which it has to tell its members again.

    A group of which every cell has told is asked for once more: the last that had not may be removed, and a group
    is complete only when one tells.
    """
    if not states.lost_nodes and not states.lost_groups:
        return (), ()
    nodes = sorted(node for node in states.lost_nodes if _is_of(states, node, cell))
    known = set(states.known_cells())
    groups = sorted(group for group, told in states.lost_groups.items() if cell not in told or known <= set(told))
    return tuple(nodes[:MOST_LOST]), tuple(groups[:MOST_LOST])


async def _complete(
    states: HostStates, commits: Commits, message: AssertClaims, nodes: tuple[NodeUuid, ...]
) -> AssertReply:
    """Complete lost records: of these nodes with all claims, of these groups with all slots that the cell knows of.

    Groups come first, as ever; a claim whose slot has no place in a record that was completed by others is none.
    """
    members: dict[GroupUuid, list[GroupSlot]] = {group: [] for group in message.groups}
    for slot in message.slots:
        if slot.key.group in members:
            members[slot.key.group].append(GroupSlot(slot.key.instance, slot.key.attempt, slot.key.node))
    cells = states.known_cells()
    told = _Told(states, message)
    await asyncio.gather(
        *(
            commits.change(
                Key(GROUPS, group),
                told.guarded(changes.tell_members(slots, message.cell, cells, more=message.more), None),
            )
            for group, slots in members.items()
        )
    )
    by_node = _by_node(message.claims)
    stored = await asyncio.gather(
        *(
            commits.change(
                Key(COMPUTE, node), told.guarded(changes.tell_again(tuple(by_node.get(node, ())), message.cell), _NONE)
            )
            for node in nodes
            if _is_of(states, node, message.cell)
        )
    )
    refused = tuple(claim_key(claim) for result in stored for claim in result.answer)
    return AssertReply(epoch=states.epoch, refused=refused)


def _is_of(states: HostStates, node: NodeUuid, cell: CellUuid) -> bool:
    intent: HostIntent | None = states.held(Key(OPERATOR, node)).value
    return intent is not None and intent.cell == cell


def _by_node(claims: Iterable[Claim]) -> dict[NodeUuid, list[Claim]]:
    by_node: dict[NodeUuid, list[Claim]] = {}
    for claim in claims:
        by_node.setdefault(claim.node, []).append(claim)
    return by_node


async def _take_slot(commits: Commits, told: _Told, slot: Slot) -> bool:
    group = slot.key.group
    if group is None:
        return True
    rule = GroupRule(
        uuid=GroupUuid(group),
        policy=cast("Policy", slot.policy),
        max_server_per_host=slot.max_server_per_host,
    )
    place = GroupSlot(slot.key.instance, slot.key.attempt, slot.key.node)

    def taking(value: GroupValue | None) -> Change[bool]:
        return changes.take_slot(rule, place, checked=told.checked)(value)

    return (await commits.change(Key(GROUPS, group), told.guarded(taking, unchanged=True))).answer
