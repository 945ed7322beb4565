"""Hard group policies hold always: over both cells, for creates and deletes at once, for any order of them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.config.sections import Config
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.domain.groups import GroupRule, Policy
from skep.domain.ids import GroupUuid, InstanceUuid, new_uuid
from skep.domain.instances import State

CELLS, HOSTS = 2, 6


async def judged(cloud: Cloud, members: dict[InstanceUuid, GroupRule]) -> None:
    """Assert by the hypervisors' own guests that no policy is broken."""
    hosts: dict[str, list[str]] = {}
    for name, driver in cloud.plane.drivers.items():
        for guest in await driver.guests():
            if guest.instance in members:
                hosts.setdefault(members[guest.instance].uuid, []).append(name)
    rules = {rule.uuid: rule for rule in members.values()}
    for group, used in hosts.items():
        rule = rules[GroupUuid(group)]
        if rule.policy == "affinity":
            assert len(set(used)) == 1, f"affinity over {sorted(set(used))}"
        else:
            most = max(Counter(used).values())
            assert most <= rule.max_server_per_host, f"{most} members on one host"


async def play(cloud: Cloud, seed: int, creates: int, groups: list[GroupRule]) -> None:
    """Create members of random groups and delete some, all at once; judge in the middle and at the end."""
    dice = random.Random(seed)
    members: dict[InstanceUuid, GroupRule] = {}
    deleted: set[InstanceUuid] = set()

    async def create() -> None:
        rule = dice.choice(groups)
        for uuid in await cloud.create(dice.choice([1, 1, 1, 3]), group=rule):
            members[uuid] = rule
            if dice.random() < 0.4:
                deleted.add(uuid)
                await cloud.delete(uuid)

    for start in range(0, creates, 50):
        await asyncio.gather(*(create() for _ in range(min(50, creates - start))))
        await judged(cloud, members)
    await cloud.gone(sorted(deleted))
    await cloud.settled([uuid for uuid in members if uuid not in deleted], seconds=60)
    await judged(cloud, members)
    await every_free_place_is_usable(cloud, members, deleted)


async def every_free_place_is_usable(
    cloud: Cloud, members: dict[InstanceUuid, GroupRule], deleted: set[InstanceUuid]
) -> None:
    """A slot that a deleted member held is free again: a group takes as many members as its policy allows."""
    living = {uuid: rule for uuid, rule in members.items() if uuid not in deleted}
    apart = [rule for rule in living.values() if rule.policy == "anti-affinity"]
    if not apart:
        return
    rule = apart[0]
    servers = [await cloud.find(uuid) for uuid, of in living.items() if of.uuid == rule.uuid]
    active = sum(server is not None and server.state is State.ACTIVE for server in servers)
    free = CELLS * HOSTS * rule.max_server_per_host - active

    async def filled() -> bool:
        nonlocal free
        more = await cloud.settled(await cloud.create(free, group=rule)) if free else []
        failed = [server.uuid for server in more if server.state is State.ERROR]
        for uuid in failed:
            await cloud.delete(uuid)
        free = len(failed)
        return free == 0

    # A slot is given up a moment after its server is gone, so the first try may come too early for some.
    await eventually(filled, "the group is full")


def rules(policies: list[tuple[Policy, int]]) -> list[GroupRule]:
    """Return one new group for each policy."""
    return [GroupRule(uuid=GroupUuid(new_uuid()), policy=policy, max_server_per_host=most) for policy, most in policies]


policy = st.one_of(st.tuples(st.just("affinity"), st.just(1)), st.tuples(st.just("anti-affinity"), st.integers(1, 2)))


@given(seed=st.integers(0, 2**32), policies=st.lists(policy, min_size=1, max_size=4))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_the_order(
    seed: int, policies: list[tuple[Policy, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def story() -> None:
        async with running_cloud(tmp_path_factory.mktemp("groups"), roomy(), cells=CELLS, hosts=HOSTS) as cloud:
            await play(cloud, seed, 60, rules(policies))

    asyncio.run(story())


async def test_a_thousand_at_once(tmp_path: Path) -> None:
    groups = rules([("affinity", 1), ("anti-affinity", 1), ("anti-affinity", 3), ("affinity", 1)])
    async with running_cloud(tmp_path, roomy(), cells=CELLS, hosts=HOSTS) as cloud:
        await play(cloud, 1, 1000, groups)


def roomy() -> Config:
    """Return a configuration whose hosts have room for all, so that only policies say no."""
    return quick_config(vcpus=2000, memory_mb=4_000_000, disk_gb=20_000)
