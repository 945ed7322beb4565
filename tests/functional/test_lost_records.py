"""Something that is no scheduler writes into the backend of a running cloud: what it spoiled is told again."""

from __future__ import annotations

from pathlib import Path

from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, new_uuid
from skep.domain.instances import State
from skep.messages.to_scheduler import GetHostStates, ListClaims, ListNamespaces
from skep.synchronizer.base import Key, Published, Write
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER


async def spoil(cloud: Cloud, *namespaces: str) -> int:
    """Overwrite every record of these namespaces with garbage; return how many there were."""
    backend = cloud.plane.backend
    assert isinstance(backend, MemoryBackend)
    records = [one for one in (await backend.snapshot()).records if one.key.namespace in namespaces]
    writes = tuple(
        Write(key=Key(one.key.namespace, one.key.name), expected=one.generation, body=b"{garbage") for one in records
    )
    assert all(isinstance(outcome, Published) for outcome in await backend.publish(writes))
    return len(records)


async def healed(cloud: Cloud) -> bool:
    listed = await cloud.plane.transport.call(SCHEDULER, ListNamespaces())
    states = (await cloud.plane.transport.call(SCHEDULER, GetHostStates())).hosts
    return not listed.quarantined and sum(state.up for state in states) == cloud.hosts * len(cloud.names)


async def test_spoiled_hosts_and_groups_are_told_again_and_hold_what_they_held(tmp_path: Path) -> None:
    rule = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")
    async with running_cloud(tmp_path, cells=2, hosts=2) as cloud:
        uuids = await cloud.create(3, group=rule)
        await cloud.settled(uuids)
        await cloud.no_claims()
        before = await cloud.used_vcpus()
        assert before == 3
        slots = {one.key for one in (await cloud.plane.transport.call(SCHEDULER, ListClaims())).slots}
        assert len(slots) == 3
        assert await spoil(cloud, "compute", "groups") == 5
        await eventually(lambda: healed(cloud), "all that was spoiled is known again")
        assert await cloud.used_vcpus() == before
        assert {one.key for one in (await cloud.plane.transport.call(SCHEDULER, ListClaims())).slots} == slots
        [fourth] = await cloud.settled(await cloud.create(1, group=rule))
        assert fourth.state is State.ACTIVE
        [fifth] = await cloud.settled(await cloud.create(1, group=rule))
        assert fifth.state is State.ERROR, "each host holds a member, as before"


async def test_servers_that_are_created_while_records_are_spoiled_are_built(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=3) as cloud:
        uuids = []
        for _ in range(3):
            uuids += await cloud.create(3)
            await spoil(cloud, "compute")
        servers = await cloud.settled(uuids, seconds=30)
        assert {server.state for server in servers} == {State.ACTIVE}
        await cloud.no_claims()
        assert await cloud.used_vcpus() == len(uuids)
