"""The way of a build through a whole cloud in one loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.config.compute import FakeFailure
from skep.contracts.cloud import quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, new_uuid
from skep.domain.instances import State

HUGE = Flavor(flavorid="9", name="huge", vcpus=1, memory_mb=10_000_000, root_gb=1)
HALF = Flavor(flavorid="8", name="half", vcpus=1, memory_mb=16_000, root_gb=1)


@pytest.mark.parametrize("cells", [1, 2])
async def test_servers_are_built_spread_and_deleted(tmp_path: Path, cells: int) -> None:
    async with running_cloud(tmp_path, cells=cells) as cloud:
        uuids = await cloud.create(6)
        servers = await cloud.settled(uuids)
        assert {server.state for server in servers} == {State.ACTIVE}
        assert {guest.instance for guest in await cloud.guests()} == set(uuids)
        assert len({server.host for server in servers}) == 3 * cells
        await cloud.no_claims()
        for uuid in uuids:
            await cloud.delete(uuid)
        await cloud.gone(uuids)
        assert await cloud.guests() == []
        await cloud.nothing_left()


async def test_no_valid_host_goes_to_cell0_with_its_reasons(tmp_path: Path) -> None:
    async with running_cloud(tmp_path) as cloud:
        [uuid] = await cloud.create(flavor=HUGE)
        [server] = await cloud.settled([uuid])
        assert server.state is State.ERROR
        assert server.host is None
        assert server.fault is not None
        assert server.fault.message.startswith(
            "No valid host: 6 hosts considered; 0 left by capacity (nearest miss lacks"
        )
        assert "MEMORY_MB" in server.fault.message
        assert "host1" not in server.fault.message
        assert await cloud.cell_of(uuid) == "cell0"
        await cloud.delete(uuid)
        await cloud.gone([uuid])
        await cloud.nothing_left()


async def test_members_beyond_capacity_fail_alone(tmp_path: Path) -> None:
    async with running_cloud(tmp_path) as cloud:
        uuids = await cloud.create(14, flavor=HALF)
        servers = await cloud.settled(uuids)
        assert sum(server.state is State.ACTIVE for server in servers) == 12
        assert sum(server.state is State.ERROR for server in servers) == 2


async def test_fewer_than_min_count_means_none(tmp_path: Path) -> None:
    async with running_cloud(tmp_path) as cloud:
        uuids = await cloud.create(14, min_count=13, flavor=HALF)
        servers = await cloud.settled(uuids)
        assert {server.state for server in servers} == {State.ERROR}
        assert await cloud.guests() == []
        await cloud.no_claims()


async def test_failed_builds_go_to_another_host_of_their_cell(tmp_path: Path) -> None:
    failures = [FakeFailure(operation="spawn", error="SpawnFailed", host=f"*-host{number}") for number in (1, 2)]
    async with running_cloud(tmp_path, quick_config(failures=failures)) as cloud:
        uuids = await cloud.create(6)
        servers = await cloud.settled(uuids)
        assert {server.state for server in servers} == {State.ACTIVE}
        assert {server.host for server in servers} == {"cell1-host3", "cell2-host3"}
        histories = [await cloud.attempts(uuid) for uuid in uuids]
        assert max(len(history) for history in histories) > 1
        for uuid, history in zip(uuids, histories, strict=True):
            hosts = [attempt.host for attempt in history]
            assert len(hosts) == len(set(hosts))
            assert {host.split("-")[0] for host in hosts if host} == {await cloud.cell_of(uuid)}
            assert [attempt.outcome for attempt in history] == ["failed"] * (len(history) - 1) + ["built"]
            assert [attempt.open for attempt in history] == [False] * (len(history) - 1) + [True]
        await cloud.no_claims()


async def test_after_max_attempts_hosts_the_server_is_error_in_its_cell(tmp_path: Path) -> None:
    failures = [FakeFailure(operation="spawn", error="SpawnFailed", host="cell1-*")]
    async with running_cloud(tmp_path, quick_config(failures=failures), cells=1, hosts=4) as cloud:
        [uuid] = await cloud.create()
        [server] = await cloud.settled([uuid])
        assert server.state is State.ERROR
        assert await cloud.cell_of(uuid) == "cell1"
        assert server.fault is not None
        assert "3 hosts" in server.fault.message
        tried = [one.explanation for one in await cloud.attempts(uuid)]
        assert [one is not None and one.preferred for one in tried] == [False, True, True], "alternates of the first"
        assert await cloud.guests() == []
        await cloud.no_claims()


async def test_an_aborting_failure_is_not_tried_elsewhere(tmp_path: Path) -> None:
    failures = [FakeFailure(operation="prepare", error="ImageUnacceptable")]
    async with running_cloud(tmp_path, quick_config(failures=failures)) as cloud:
        [uuid] = await cloud.create()
        [server] = await cloud.settled([uuid])
        assert server.state is State.ERROR
        assert len(await cloud.attempts(uuid)) == 1
        await cloud.no_claims()


async def test_hard_anti_affinity_keeps_members_apart(tmp_path: Path) -> None:
    group = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")
    async with running_cloud(tmp_path) as cloud:
        first = await cloud.create(3, group=group)
        second = await cloud.create(5, group=group)
        servers = await cloud.settled(first + second)
        active = [server for server in servers if server.state is State.ACTIVE]
        assert len(active) == 6
        assert len({server.host for server in active}) == 6
        await cloud.delete(active[0].uuid)
        await cloud.gone([active[0].uuid])
        [late] = await cloud.settled_again(group=group)
        assert late.host == active[0].host


async def test_events_come_in_order(tmp_path: Path) -> None:
    async with running_cloud(tmp_path) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])

        async def ended() -> bool:
            return any(event.event_type == "instance.create.end" for event in cloud.notifications)

        await eventually(ended, "the last event is emitted")
        names = [event.event_type for event in cloud.notifications]
        wanted = [
            "scheduler.select_destinations.start",
            "scheduler.select_destinations.end",
            "instance.update",
            "instance.create.start",
            "instance.create.end",
        ]
        places = [names.index(name) for name in wanted]
        assert places == sorted(places)
