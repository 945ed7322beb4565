"""Claims and slots that go, and those that a cell asserts under a new epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from skep.domain.claims import ClaimKey
from skep.messages.to_scheduler import SelectDestinations
from skep.scheduler import changes
from skep.scheduler.commits import Commits
from skep.scheduler.records import COMPUTE, GROUPS
from skep.scheduler.reporting import claim_key
from skep.scheduler.states import HostStates
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
    return sum(freed) + sum(await free_slots(states, commits, keys))


async def release_slots(states: HostStates, commits: Commits, keys: tuple[ClaimKey, ...]) -> int:
    """Free only the slots of these attempts, on the nodes named; return how many there were."""
    freed = await free_slots(states, commits, keys)
    missed = tuple(key for key, found in zip(keys, freed, strict=True) if not found)
    if missed:
        await commits.look()
        freed += await free_slots(states, commits, missed)
    return sum(freed)


async def _free_claims(commits: Commits, keys: Iterable[ClaimKey]) -> list[int]:
    stored = await asyncio.gather(*(commits.change(Key(COMPUTE, key.node), changes.remove_claim(key)) for key in keys))
    return [int(result.answer) for result in stored]


async def free_slots(states: HostStates, commits: Commits, keys: Iterable[ClaimKey]) -> list[int]:
    """Free the slots of these attempts; return how many each had."""
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
    return freed + sum(await free_slots(states, commits, {*keys, *slots}))
