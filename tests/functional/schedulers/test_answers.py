"""What a request is answered while others decide, while news are late, and when the epoch ends under it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.domain.builds import NotReady, NoValidHost, Placed
from skep.domain.claims import ClaimKey
from skep.domain.errors import Unavailable
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.placement.groups import GroupSlot
from skep.scheduler.changes import Changing, free_slot, take_slot
from skep.synchronizer.base import Key, Write
from tests.functional.schedulers.crowd import Crowd
from tests.functional.schedulers.killable import Process


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    crowd = Crowd(seed=0, hosts=2, vcpus=2)
    await crowd.start(2)
    for process in crowd.processes:
        await process.service._mirror.look()
        process.backend.turns = process.backend.lag = 1
    yield crowd
    await crowd.close()


async def ask(process: Process, *names: str, vcpus: int = 1, minimum: int = 1, **facts: Any) -> Any:
    spec = RequestSpec(
        project_id=ProjectId("p"),
        user_id=UserId("u"),
        flavor=Flavor(flavorid="1", name="f", vcpus=vcpus, memory_mb=1, root_gb=0),
        **facts,
    )
    members = tuple(Member(InstanceUuid(name), 1) for name in names)
    decisions = (await process.here.call(SelectDestinations(spec=spec, members=members, min_count=minimum))).decisions
    return decisions[0] if len(names) == 1 else decisions


async def claims(crowd: Crowd) -> list[tuple[str, str]]:
    contents = await crowd.contents()
    return sorted(
        (claim.instance, name)
        for (namespace, name), value in contents.items()
        if namespace == "compute"
        for claim in value.claims
    )


async def places(crowd: Crowd, group: GroupRule) -> list[tuple[str, str]]:
    """Return who has a slot in the group, and where."""
    return sorted((slot.instance, slot.node) for slot in (await crowd.contents())["groups", group.uuid].slots)


async def change_group(crowd: Crowd, group: GroupRule, changing: Changing[bool]) -> None:
    """Change the group's record as a scheduler does whose own story was cut off after it."""
    changed = await crowd.processes[1].service._commits.change(Key("groups", group.uuid), changing)
    assert changed.answer
    for process in crowd.processes:
        await process.service._mirror.look()


def hold(process: Process, *, compute: bool = True) -> asyncio.Event:
    """Hold back what the scheduler writes of hosts until the event is set."""
    gate = asyncio.Event()
    process.gates.append(gate)

    async def before(writes: tuple[Write, ...]) -> None:
        if any(write.key.namespace == "compute" for write in writes) is compute:
            await gate.wait()

    process.backend.before = before
    return gate


async def turns(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def deafen(*processes: Process) -> None:
    """From now on they hear of others only what they ask for."""
    for process in processes:
        process.backend.deaf = True
    for process in processes:
        process.service._tasks[0].cancel()
        process.service._tasks[0] = asyncio.create_task(process.service._follow())
    await turns(5)


async def test_room_that_became_free_elsewhere_is_found_before_no_is_said(crowd: Crowd) -> None:
    first, second = crowd.processes
    for name in ("a", "b"):
        await crowd.create((name,), vcpus=2)
    for process in crowd.processes:
        await process.service._mirror.look()
    assert isinstance(await ask(second, "x"), NoValidHost)
    await deafen(second)
    crowd.processes = [first]
    await crowd.delete(("a", 1))
    crowd.processes = [first, second]
    assert second.service.states.claims.all_of(("a", 1))
    assert isinstance(await ask(second, "x"), Placed)


async def test_room_that_is_only_asked_for_is_no_reason_to_say_no(crowd: Crowd) -> None:
    (one, _) = crowd.processes
    group = GroupRule(uuid=GroupUuid("g"), policy="anti-affinity")
    slots = hold(one, compute=False)
    asked = [asyncio.create_task(ask(one, name, vcpus=2, group=group)) for name in ("a", "b")]
    await turns()
    late = asyncio.create_task(ask(one, "x", vcpus=2))
    await turns()
    claimed = hold(one)
    slots.set()
    await turns()
    assert not late.done()  # it has read all there is, and every host is taken by what is not stored yet
    one.backend.fates = ["call"]
    claimed.set()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    assert isinstance(await late, Placed)


async def test_a_request_of_which_too_few_fit_holds_nothing_while_it_looks(crowd: Crowd) -> None:
    (one, _) = crowd.processes
    refused, placed = await asyncio.gather(ask(one, "a", "b", "c", vcpus=2, minimum=3), ask(one, "x", vcpus=2))
    assert all(isinstance(decision, NoValidHost) for decision in refused)
    assert isinstance(placed, Placed)
    assert [instance for instance, _ in await claims(crowd)] == ["x"]


async def test_a_call_whose_answer_was_lost_is_answered_with_the_host_that_was_claimed(crowd: Crowd) -> None:
    (one, _) = crowd.processes
    await deafen(one)
    one.backend.fates = ["answer"]
    with pytest.raises(Unavailable):
        await ask(one, "a")
    ((_, node),) = await claims(crowd)
    assert (await ask(one, "a")).node == node
    assert await claims(crowd) == [("a", node)]


async def test_who_hears_of_a_claim_for_the_same_attempt_before_storing_his_own_takes_that_one(crowd: Crowd) -> None:
    one, other = crowd.processes
    low, high = crowd.nodes
    gate = hold(one)
    before = asyncio.create_task(ask(one, "z"))  # what is asked for meanwhile waits for this one's round trip
    await turns()
    mine = asyncio.create_task(ask(one, "a", forced_host=f"host-{high}"))
    await turns()
    assert (await ask(other, "a", forced_host=f"host-{low}")).node == low
    await turns()
    gate.set()
    assert (await mine).node == low
    assert [node for instance, node in await claims(crowd) if instance == "a"] == [low]
    assert isinstance(await before, Placed)


async def test_who_does_not_hear_of_it_keeps_his_own_so_that_no_answered_claim_is_freed(crowd: Crowd) -> None:
    one, other = crowd.processes
    low, high = crowd.nodes
    await deafen(one, other)
    mine = await ask(one, "a", forced_host=f"host-{high}")
    theirs = await ask(other, "a", forced_host=f"host-{low}")
    assert [mine.node, theirs.node] == [high, low]
    assert await claims(crowd) == [("a", low), ("a", high)]


async def test_two_asked_for_one_member_of_a_group_at_once_agree(crowd: Crowd) -> None:
    one, other = crowd.processes
    group = GroupRule(uuid=GroupUuid("g"), policy="anti-affinity")
    await deafen(one, other)
    for low, high in ((one, other), (other, one)):
        # Each of them would take another host.
        run = low.service._membership.run
        low.service.states.placement.partition.set_members(run, (high.service._membership.run,))
    gate = hold(one, compute=False)
    mine = asyncio.create_task(ask(one, "a", group=group))
    await turns()
    theirs = await ask(other, "a", group=group)
    gate.set()
    answer = await mine
    assert answer.node == theirs.node
    assert await claims(crowd) == [("a", answer.node)]
    assert isinstance(await ask(one, "b", group=group), Placed)
    await one.service._mirror.look()
    assert isinstance(await ask(one, "c", group=group), NoValidHost)


async def test_a_decision_of_an_epoch_that_ends_is_not_stored_in_the_next(crowd: Crowd) -> None:
    one, other = crowd.processes
    gate = hold(one)
    asked = asyncio.create_task(ask(one, "a"))
    await turns()
    await crowd.store.wipe()
    crowd.processes = [other]
    await crowd.publish()
    for node in crowd.nodes:
        await crowd.report(node)  # each record has a report in the new epoch, but no cell has asserted
    crowd.processes = [one, other]
    gate.set()
    assert isinstance(await asked, NotReady)
    assert await claims(crowd) == []


async def test_a_request_counts_as_one_conflict_however_often_it_was_refused(crowd: Crowd) -> None:
    one, other = crowd.processes
    await deafen(one)
    crowd.processes = [other]
    for node in crowd.nodes:
        await crowd.report(node)
    crowd.processes = [one, other]
    assert all(isinstance(decision, Placed) for decision in await ask(one, "a", "b", "c"))
    assert one.conflicts == 1
    assert isinstance(await ask(one, "d"), Placed)
    assert one.conflicts == 1


async def test_a_claim_that_lost_its_place_in_the_group_is_no_answer_before_it_has_it_again(crowd: Crowd) -> None:
    """Its answer was lost, and the call repeated where the host seemed full and news of the claim were late."""
    one, other = crowd.processes
    low, high = crowd.nodes
    group = GroupRule(uuid=GroupUuid("g"), policy="affinity")
    one.backend.fates = ["none", "answer"]
    with pytest.raises(Unavailable):
        await ask(one, "a", forced_host=f"host-{low}", group=group)
    await change_group(crowd, group, take_slot(group, GroupSlot(InstanceUuid("a"), 1, high)))
    for process in (other, one):
        answer = await ask(process, "a", group=group)
        assert answer.node == low
        assert await places(crowd, group) == [("a", low)]
    assert await claims(crowd) == [("a", low)]


async def test_a_claim_without_a_place_goes_where_others_took_it(crowd: Crowd) -> None:
    one, other = crowd.processes
    low, high = crowd.nodes
    group = GroupRule(uuid=GroupUuid("g"), policy="anti-affinity")
    one.backend.fates = ["none", "answer"]
    with pytest.raises(Unavailable):
        await ask(one, "a", forced_host=f"host-{low}", group=group)
    await change_group(crowd, group, free_slot(ClaimKey(InstanceUuid("a"), 1, low, group.uuid)))
    assert (await ask(other, "b", forced_host=f"host-{low}", group=group)).node == low
    answer = await ask(other, "a", group=group)
    assert answer.node == high
    assert await places(crowd, group) == [("a", high), ("b", low)]
    assert await claims(crowd) == [("a", high), ("b", low)]


async def test_of_two_claims_the_one_with_the_place_is_answered(crowd: Crowd) -> None:
    one, other = crowd.processes
    low, high = crowd.nodes
    group = GroupRule(uuid=GroupUuid("g"), policy="affinity")
    await deafen(one, other)
    assert (await ask(one, "a", forced_host=f"host-{low}")).node == low
    assert (await ask(other, "a", forced_host=f"host-{high}", group=group)).node == high
    for process in (one, other):
        await process.service._mirror.look()
        assert (await ask(process, "a", group=group)).node == high
    assert await places(crowd, group) == [("a", high)]
