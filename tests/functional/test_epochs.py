"""The data of the schedulers is lost while the cloud runs: what was promised before is known again, or not built."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from skep.config.sections import ConductorSettings
from skep.contracts.cloud import PROJECT, SMALL, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.domain.builds import Placed
from skep.domain.groups import GroupRule, Policy
from skep.domain.ids import GroupUuid, InstanceUuid, new_uuid
from skep.domain.instances import State
from skep.domain.request_specs import RequestSpec
from skep.messages.to_scheduler import GetHostStates, ListClaims, Member, SelectDestinations
from skep.synchronizer.memory import MemoryBackend
from skep.telemetry.steps import CrashPoint
from skep.transport.base import SCHEDULER


def spec(group: GroupRule) -> RequestSpec:
    return RequestSpec(project_id=PROJECT, user_id=USER, flavor=SMALL, group=group)


def rule_of(policy: Policy) -> GroupRule:
    return GroupRule(uuid=GroupUuid(new_uuid()), policy=policy)


def backend_of(cloud: Cloud) -> MemoryBackend:
    assert isinstance(cloud.plane.backend, MemoryBackend)
    return cloud.plane.backend


async def is_ready(cloud: Cloud) -> bool:
    reply = await cloud.plane.transport.call(SCHEDULER, GetHostStates())
    current = reply.epoch == await backend_of(cloud).epoch()
    return current and sum(state.up for state in reply.hosts) == cloud.hosts * len(cloud.names)


async def test_a_new_epoch_stops_placement_for_moments_only(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=2, hosts=2) as cloud:
        await cloud.settled(await cloud.create(4))
        backend_of(cloud).wipe()
        await eventually(lambda: is_ready(cloud), "all hosts may get servers again")
        servers = await cloud.settled(await cloud.create(4))
        assert {server.state for server in servers} == {State.ACTIVE}


@pytest.mark.parametrize("policy", ["soft-anti-affinity", "soft-affinity", "anti-affinity", "affinity"])
async def test_the_members_of_all_groups_are_known_after_a_restart(tmp_path: Path, policy: Policy) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=2) as cloud:
        uuids = await cloud.create(2, group=rule_of(policy))
        await cloud.settled(uuids)
        await cloud.restart()
        slots = (await cloud.plane.transport.call(SCHEDULER, ListClaims())).slots
        assert {slot.key.instance for slot in slots} == set(uuids)


def lose_data_before(cloud: Cloud, step: str, *, then: Callable[[], Awaitable[None]] | None = None) -> None:
    """Lose the schedulers' data just before a step of the next build; go on when the cell has asserted."""
    left = [1]

    async def hold(point: CrashPoint) -> None:
        if (point.step, point.when) == (step, "before") and left:
            left.pop()
            backend_of(cloud).wipe()
            await eventually(lambda: is_ready(cloud), "the cell has asserted, hosts reported")
            if then is not None:
                await then()

    cloud.plane.steps.crash_hook = hold


async def slots_of(cloud: Cloud) -> list[InstanceUuid]:
    return [slot.key.instance for slot in (await cloud.plane.transport.call(SCHEDULER, ListClaims())).slots]


async def test_a_row_of_an_older_epoch_has_its_place_before_its_host_hears_of_it(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=2) as cloud:
        rule = rule_of("anti-affinity")
        lose_data_before(cloud, "stage")
        first = await cloud.create(group=rule)
        [built] = await cloud.settled(first)
        assert (built.state, built.attempt) == (State.ACTIVE, 1)
        assert await slots_of(cloud) == first
        second, third = await cloud.settled(await cloud.create(2, group=rule))
        assert sorted([second.state, third.state]) == [State.ACTIVE, State.ERROR]
        assert built.host not in (second.host, third.host)


async def test_a_row_of_an_older_epoch_whose_place_is_taken_goes_to_another_host(tmp_path: Path) -> None:
    config = quick_config(conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.2, sweep_seconds=600.0))
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        rule = rule_of("anti-affinity")

        async def taken_by_another() -> None:
            message = SelectDestinations(spec=spec(rule), members=(Member(InstanceUuid(new_uuid()), 1),))
            reply = await cloud.plane.transport.call(SCHEDULER, message)
            assert isinstance(reply.decisions[0], Placed)

        lose_data_before(cloud, "stage", then=taken_by_another)
        [server] = await cloud.settled(await cloud.create(group=rule))
        assert server.state is State.ERROR
        assert await cloud.guests() == []


async def test_what_was_built_under_an_older_epoch_is_asserted_with_the_rest(tmp_path: Path) -> None:
    """The data is lost while the host prepares: nobody dispatches it again, its place is known all the same."""
    async with running_cloud(tmp_path, cells=1, hosts=2) as cloud:
        rule = rule_of("anti-affinity")
        lose_data_before(cloud, "prepare")
        uuids = await cloud.create(2, group=rule)
        servers = await cloud.settled(uuids)
        assert {server.state for server in servers} == {State.ACTIVE}
        assert len({server.host for server in servers}) == 2
        assert sorted(await slots_of(cloud)) == sorted(uuids)
