"""The data of the schedulers is lost while the cloud runs: what was promised before is known again, or not built."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.domain.groups import GroupRule, Policy
from skep.domain.ids import GroupUuid, new_uuid
from skep.domain.instances import State
from skep.messages.to_scheduler import GetHostStates, ListClaims
from skep.testing.cloud import Cloud, running_cloud
from skep.testing.eventually import eventually
from skep.transport.base import SCHEDULER


def rule_of(policy: Policy) -> GroupRule:
    return GroupRule(uuid=GroupUuid(new_uuid()), policy=policy)


async def is_ready(cloud: Cloud) -> bool:
    states = (await cloud.plane.transport.call(SCHEDULER, GetHostStates())).hosts
    return sum(state.up for state in states) == cloud.hosts * len(cloud.names)


async def test_a_new_epoch_stops_placement_for_moments_only(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=2, hosts=2) as cloud:
        await cloud.settled(await cloud.create(4))
        cloud.plane.backend.wipe()
        await eventually(lambda: is_ready(cloud), "all hosts may get servers again", seconds=10)
        servers = await cloud.settled(await cloud.create(4), seconds=10)
        assert {server.state for server in servers} == {State.ACTIVE}


@pytest.mark.parametrize("policy", ["soft-anti-affinity", "soft-affinity", "anti-affinity", "affinity"])
async def test_the_members_of_all_groups_are_known_after_a_restart(tmp_path: Path, policy: Policy) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=2) as cloud:
        uuids = await cloud.create(2, group=rule_of(policy))
        await cloud.settled(uuids)
        await cloud.restart()
        slots = (await cloud.plane.transport.call(SCHEDULER, ListClaims())).slots
        assert {slot.key.instance for slot in slots} == set(uuids)
