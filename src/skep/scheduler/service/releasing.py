"""Claims and slots that go, and those that a cell asserts under a new epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

from skep.domain.claims import Claim, ClaimKey
from skep.domain.groups import GroupRule, Policy
from skep.domain.ids import GroupUuid, NodeUuid
from skep.messages.to_scheduler import AssertClaims, AssertReply, SelectDestinations, Slot
from skep.scheduler.groups import GroupSlot
from skep.scheduler.service import changes
from skep.scheduler.service.commits import Commits
from skep.scheduler.service.records import CELLS, COMPUTE, GROUPS
from skep.scheduler.service.reporting import claim_key
from skep.scheduler.service.states import HostStates
from skep.synchronizer.base import Key


async def release_claims(states: HostStates, commits: Commits, keys: tuple[ClaimKey, ...]) -> int:
    """Free claims and the slots of their attempts; return how many of both there were.

    A claim that this scheduler does not know may be another's, made a moment ago: it reads the changes once, then looks
    again.
    """
    freed = await _free_claims(commits, keys)
    missed = tuple(key for key, found in zip(keys, freed, strict=True) if not found)
    if missed:
        await commits.look()
        freed += await _free_claims(commits, missed)
    return sum(freed) + sum(await _free_slots(states, commits, keys))


async def release_slots(states: HostStates, commits: Commits, keys: tuple[ClaimKey, ...]) -> int:
    """Free only the slots of these attempts, on the nodes named; return how many there were."""
    freed = await _free_slots(states, commits, keys)
    missed = tuple(key for key, found in zip(keys, freed, strict=True) if not found)
    if missed:
        await commits.look()
        freed += await _free_slots(states, commits, missed)
    return sum(freed)


async def _free_claims(commits: Commits, keys: Iterable[ClaimKey]) -> list[int]:
    stored = await asyncio.gather(*(commits.change(Key(COMPUTE, key.node), changes.remove_claim(key)) for key in keys))
    return [int(result.answer) for result in stored]


async def _free_slots(states: HostStates, commits: Commits, keys: Iterable[ClaimKey]) -> list[int]:
    return list(await asyncio.gather(*(_free_slots_of(states, commits, key) for key in keys)))


async def _free_slots_of(states: HostStates, commits: Commits, key: ClaimKey) -> int:
    groups = set(states.groups.groups_of(key.instance, key.attempt))
    if key.group is not None:
        groups.add(key.group)
    if not groups:
        return 0
    stored = await asyncio.gather(
        *(commits.change(Key(GROUPS, group), changes.free_slot(key)) for group in sorted(groups))
    )
    return sum(int(result.answer) for result in stored)


async def supersede(states: HostStates, commits: Commits, message: SelectDestinations) -> int:
    """Free what earlier attempts of the members hold, as far as the message says that nothing was dispatched for them.

    Else a server that is selected again could be refused by its own older claim. Return how many claims and slots went.
    """
    if message.supersedes_above is None or message.dry_run:
        return 0
    lowest = message.supersedes_above + 1
    earlier = {member.instance: range(lowest, member.attempt) for member in message.members if member.attempt > lowest}
    if not earlier:
        return 0
    await commits.look()
    keys = [
        claim_key(claim)
        for instance, attempts in earlier.items()
        for attempt in attempts
        for claim in states.claims.all_of((instance, attempt))
    ]
    slots: list[ClaimKey] = []
    if (group := message.spec.group) is not None:
        slots = [
            ClaimKey(slot.instance, slot.attempt, slot.node, group.uuid)
            for slot in states.groups.slots(group.uuid)
            if slot.attempt in earlier.get(slot.instance, ())
        ]
    freed = sum(await _free_claims(commits, keys))
    return freed + sum(await _free_slots(states, commits, {*keys, *slots}))


async def assert_claims(states: HostStates, commits: Commits, message: AssertClaims) -> AssertReply:
    """Take what a cell's rows say, slots first; then the cell's hosts may become candidates.

    Until a cell has asserted in this epoch nobody else can have claimed there, so its first assertion is taken as a
    whole. Later ones must fit beside what was claimed meanwhile.
    """
    if message.epoch != states.epoch:
        return AssertReply(epoch=states.epoch)
    checked = states.asserted(message.cell)
    taken = await asyncio.gather(*(_take_slot(commits, slot, checked=checked) for slot in message.slots))
    no_place = {slot.key for slot, yes in zip(message.slots, taken, strict=True) if not yes}
    by_node: dict[NodeUuid, list[Claim]] = {}
    refused = [slot.key for slot in message.slots if slot.key in no_place]
    without_place = {(key.instance, key.attempt) for key in no_place}
    for claim in message.claims:
        if claim.key not in without_place:
            by_node.setdefault(claim.node, []).append(claim)
    stored = await asyncio.gather(
        *(
            commits.change(Key(COMPUTE, node), changes.assert_claims(tuple(claims), message.cell, checked=checked))
            for node, claims in by_node.items()
        )
    )
    refused += [claim_key(claim) for result in stored for claim in result.answer]
    await _free_slots(states, commits, [key for key in refused if key not in no_place])
    if states.epoch == message.epoch:
        await commits.change(Key(CELLS, message.cell), changes.set_asserted())
    return AssertReply(epoch=states.epoch, refused=tuple(refused))


async def _take_slot(commits: Commits, slot: Slot, *, checked: bool) -> bool:
    group = slot.key.group
    if group is None:
        return True
    rule = GroupRule(
        uuid=GroupUuid(group),
        policy=cast("Policy", slot.policy),
        max_server_per_host=slot.max_server_per_host,
    )
    place = GroupSlot(slot.key.instance, slot.key.attempt, slot.key.node)
    stored = await commits.change(Key(GROUPS, group), changes.take_slot(rule, place, checked=checked))
    return stored.answer
