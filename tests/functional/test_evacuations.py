"""Evacuations in a whole cell: a server of a lost host runs elsewhere, once; a host that returns undoes what it had."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from skep.compute.agent import JOURNAL_FILE
from skep.compute.drivers.fake import GUESTS_FILE, FailureRule, FakeSettings
from skep.compute.drivers.guest_log import GuestEvent
from skep.config.sections import ConductorSettings
from skep.contracts.cloud import PROJECT, USER, Cloud, hosts_up, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database import Connection
from skep.database.api import quotas
from skep.database.cell import actions, agents, evacuations, fences, instances, server_migrations
from skep.database.cell.server_migrations import MigrationQuery
from skep.database.cell.tables import instances as rows
from skep.domain.actions import ACTIONS, EvacuateTo
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.decoding import json_decoder
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid, new_request_id, new_uuid
from skep.domain.instances import Instance, PowerState, State, Task
from skep.domain.server_migrations import MigrationType, ServerMigration
from skep.messages.to_cell_conductor import InstancesChanged
from skep.messages.to_scheduler import GetHostStates
from skep.telemetry.steps import CrashPoint
from skep.transport.base import SCHEDULER, cell_conductor
from tests.functional.test_cold_moves import differences
from tests.functional.test_cold_moves import move as cold_move
from tests.functional.test_live_migrations import migrate as live_migrate


class _Stopped(Exception):
    """What a step raises where a test holds the evacuation."""


CONDUCTOR = ConductorSettings(lease_seconds=2.0, resend_seconds=0.1, move_deadline=30.0, fence_grace_seconds=0.0)
QUICK = quick_config(conductor=CONDUCTOR)
ALONE = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")
TO = EvacuateTo()


async def built(cloud: Cloud, count: int = 1) -> list[Instance]:
    servers = await cloud.settled(await cloud.create(count))
    assert {server.state for server in servers} == {State.ACTIVE}
    return servers


async def node_of(cloud: Cloud, host: str) -> NodeUuid:
    known = await cloud.plane.databases.cells["cell1"].read(agents.list_all)
    return next(agent.node for agent in known if agent.host == host)


async def told(cloud: Cloud) -> None:
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.transport.cast(cell_conductor(cell.uuid), InstancesChanged())


async def is_silent(cloud: Cloud, host: str) -> bool:
    node = await node_of(cloud, host)
    return node in (await cloud.plane.transport.call(SCHEDULER, GetHostStates(nodes=(node,)))).silent


async def dies(cloud: Cloud, host: str | None) -> str:
    """Let the agent of a host end, its guests live on; wait until the host is silent."""
    assert host is not None
    await cloud.stop_agent(host)
    await eventually(partial(is_silent, cloud, host), "the host is silent")
    return host


async def returns(cloud: Cloud, host: str) -> None:
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.start_agent(cell, host)


async def forgets(cloud: Cloud, host: str) -> None:
    """Start the agent of a host again over an empty journal: its guests are unknown to it from then on."""
    await cloud.stop_agent(host)
    (cloud.directory.host("cell1", host) / JOURNAL_FILE).unlink()
    await returns(cloud, host)
    await eventually(partial(hosts_up, cloud.plane), "the host may get servers")


async def fence(cloud: Cloud, host: str, grace: float = 0.0) -> None:
    node, now = await node_of(cloud, host), cloud.clock.now()
    mark = partial(fences.mark, node=node, now=now, due_at=now + round(grace * SECOND))
    assert await cloud.plane.databases.cells["cell1"].write(mark)
    await told(cloud)


async def evacuate(
    cloud: Cloud, uuid: InstanceUuid, host: str | None = None, to: EvacuateTo = TO, secrets: bytes | None = None
) -> RequestContext:
    """Ask for an evacuation as the API does."""
    who = RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)

    def unit(connection: Connection) -> object:
        row = instances.get(connection, uuid)
        assert row is not None
        action, now = ACTIONS["evacuate"], cloud.clock.now()
        return evacuations.begin(connection, row, action, who, now, to=to, wanted_host=host, secrets=secrets)

    assert await cloud.plane.databases.cells["cell1"].write(unit) is not None
    await told(cloud)
    return who


async def becomes(cloud: Cloud, uuid: InstanceUuid, *states: State) -> Instance:
    """Wait until nothing is done to a server and it is in one of these states."""

    async def probe() -> Instance | None:
        found = await cloud.find(uuid)
        return found if found is not None and found.task is None and found.state in states else None

    found = await eventually(probe, f"the server is {states}")
    assert found is not None
    return found


async def move_of(cloud: Cloud, uuid: InstanceUuid) -> ServerMigration:
    read = partial(server_migrations.listed, query=MigrationQuery(instance=uuid))
    return (await cloud.plane.databases.cells["cell1"].read(read))[0]


async def only_attempt(cloud: Cloud, server: Instance) -> None:
    """Wait until nothing but the attempt that holds the server is left anywhere."""

    async def probe() -> bool:
        open_ones = [one.attempt for one in await cloud.attempts(server.uuid) if one.open]
        guests = [(guest.attempt, guest.whole) for guest in await cloud.guests() if guest.instance == server.uuid]
        return open_ones == [server.attempt] and guests == [(server.attempt, True)]

    await eventually(probe, "only the holder is left")
    await cloud.no_claims()


def events(cloud: Cloud, host: str) -> list[GuestEvent]:
    """Read what happened to the guests of a host, as its hypervisor wrote it."""
    log = cloud.directory.host("cell1", host) / GUESTS_FILE
    decoder = json_decoder(GuestEvent)
    return [decoder.decode(line) for line in log.read_bytes().splitlines()]


async def charged(cloud: Cloud) -> dict[str, int]:
    return dict(await cloud.plane.databases.api.read(partial(quotas.used, project=PROJECT)))


async def test_a_server_of_a_lost_host_runs_on_another_and_the_host_that_comes_back_starts_nothing(
    tmp_path: Path,
) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        quota = await charged(cloud)
        lost = await dies(cloud, before.host)
        asked = await evacuate(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host != lost
        assert after.attempt > before.attempt
        assert (after.power_state, after.fault) == (PowerState.RUNNING, None)
        found = await move_of(cloud, before.uuid)
        assert (found.type, found.status) == (MigrationType.EVACUATION, "done")
        assert (found.source_host, found.dest_host, found.old_flavor) == (lost, after.host, None)
        assert [one.open for one in await cloud.attempts(before.uuid)] == [True, True], "the host may still have it"

        came = cloud.clock.now()
        await returns(cloud, lost)
        await only_attempt(cloud, after)
        assert (await move_of(cloud, before.uuid)).status == "completed", "the host has nothing of it any more"
        since = [event.event for event in events(cloud, lost) if event.at >= came]
        assert since == ["destroyed"], "the lost host has started nothing"
        assert await charged(cloud) == quota
        of_action = partial(actions.events_of, instance=before.uuid, request_id=asked.request_id)
        done = await cloud.plane.databases.cells["cell1"].read(of_action)
        assert {(one.event, one.result) for one in done} == {
            ("rebuild_server", "Success"),
            ("compute_rebuild_instance", "Success"),
        }
        sent = [one.event_type for one in cloud.notifications if "rebuild" in one.event_type]
        assert sent == ["instance.rebuild_scheduled", "instance.rebuild.start", "instance.rebuild.end"]
        await cloud.delete(before.uuid)
        await cloud.gone([before.uuid])
        await cloud.nothing_left()


@pytest.mark.parametrize("journal", ["whole", "lost"])
async def test_a_host_that_lives_releases_its_guest_before_another_makes_it(tmp_path: Path, journal: str) -> None:
    """An operator may have forced down a host that is heard. Its hypervisor has the guest, its journal may not."""
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        assert before.host is not None
        if journal == "lost":
            await forgets(cloud, before.host)
        cloud.fakes[before.host].settings = FakeSettings(destroy_delay=1.0)
        await evacuate(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host is not None
        assert after.host != before.host
        [ended] = [event.at for event in events(cloud, before.host) if event.event == "destroyed"]
        begun = min(event.at for event in events(cloud, after.host))
        assert ended <= begun, "never two guests"
        await only_attempt(cloud, after)
        assert (await move_of(cloud, before.uuid)).status == "completed"


@pytest.mark.parametrize("journal", ["whole", "lost"])
async def test_a_host_that_lives_and_cannot_stop_its_guest_keeps_it(tmp_path: Path, journal: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        assert before.host is not None
        if journal == "lost":
            await forgets(cloud, before.host)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings(failures=(FailureRule(operation="put_aside"),))
        await evacuate(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt) == (before.host, before.attempt)
        assert after.fault is not None
        await only_attempt(cloud, after)
        assert (await move_of(cloud, before.uuid)).status == "error"


@pytest.mark.parametrize(
    ("state", "to", "ends"),
    [
        (State.STOPPED, EvacuateTo(), State.STOPPED),
        (State.ACTIVE, EvacuateTo(stopped=True), State.STOPPED),
        (State.ERROR, EvacuateTo(stopped=True), State.ACTIVE),
    ],
)
async def test_the_server_is_left_as_it_was_or_as_asked(
    tmp_path: Path, state: State, to: EvacuateTo, ends: State
) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        lost = await dies(cloud, before.host)

        def unit(connection: Connection) -> None:
            connection.execute(rows.update().values(state=state.value))

        await cloud.plane.databases.cells["cell1"].write(unit)
        await evacuate(cloud, before.uuid, to=to)
        after = await becomes(cloud, before.uuid, ends)
        assert after.host != lost
        [guest] = [one for one in await cloud.guests() if one.attempt == after.attempt]
        running = ends is State.ACTIVE
        assert guest.power_state is (PowerState.RUNNING if running else PowerState.SHUTDOWN)


async def test_without_a_host_the_server_stays_as_it_was(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        [before] = await built(cloud)
        lost = await dies(cloud, before.host)
        await evacuate(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt) == (before.host, before.attempt)
        assert after.fault is not None
        assert "No valid host" in after.fault.message
        assert (await move_of(cloud, before.uuid)).status == "error"

        async def is_told() -> bool:
            return "compute_task.rebuild_server.error" in {one.event_type for one in cloud.notifications}

        await eventually(is_told, "the end is told after it is written")
        await returns(cloud, lost)
        await only_attempt(cloud, after)


async def test_a_target_that_refuses_is_followed_by_another(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=3) as cloud:
        [before] = await built(cloud)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings(failures=(FailureRule(operation="prepare", times=1),))
        others = [name for name in cloud.fakes if name != before.host]
        cloud.fakes[others[1]].settings = FakeSettings()
        await dies(cloud, before.host)
        await evacuate(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host in others
        open_ones = {one.host for one in await cloud.attempts(before.uuid) if one.open}
        assert open_ones == {before.host, after.host}


async def test_a_guest_that_cannot_be_made_leaves_the_server_in_error_until_it_can(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        lost = await dies(cloud, before.host)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings(failures=(FailureRule(operation="spawn"),))
        await evacuate(cloud, before.uuid)

        async def error() -> bool:
            found = await cloud.find(before.uuid)
            return found is not None and found.state is State.ERROR and found.fault is not None

        await eventually(error, "the server is ERROR")
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings()
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.fault is None
        await returns(cloud, lost)
        await only_attempt(cloud, after)


async def test_a_server_whose_target_dies_too_is_evacuated_again(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=3) as cloud:
        [before] = await built(cloud)
        first = await dies(cloud, before.host)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings(failures=(FailureRule(operation="spawn"),))
        await evacuate(cloud, before.uuid)

        async def error() -> Instance | None:
            found = await cloud.find(before.uuid)
            return found if found is not None and found.state is State.ERROR else None

        stuck = await eventually(error, "the server is ERROR")
        assert stuck is not None
        assert stuck.task is Task.EVACUATE_SPAWNING
        second = await dies(cloud, stuck.host)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings()
        await evacuate(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host not in (first, second)
        await returns(cloud, first)
        await returns(cloud, second)
        await only_attempt(cloud, after)


@pytest.mark.parametrize(
    ("begin", "operation"), [(live_migrate, "take_over"), (cold_move, "take_up")], ids=["live", "cold"]
)
async def test_a_server_whose_move_lost_its_target_leaves_nothing_on_its_source(
    tmp_path: Path, begin: Callable[[Cloud, Instance], Awaitable[object]], operation: str
) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=3) as cloud:
        [before] = await built(cloud)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings(failures=(FailureRule(operation=operation),))
        await begin(cloud, before)

        async def error() -> Instance | None:
            found = await cloud.find(before.uuid)
            return found if found is not None and found.state is State.ERROR else None

        stuck = await eventually(error, "the server is ERROR")
        assert stuck is not None
        lost = await dies(cloud, stuck.host)
        assert lost != before.host
        await fence(cloud, lost)
        await becomes(cloud, before.uuid, State.ERROR)
        [source] = [one for one in await cloud.attempts(before.uuid) if one.open]
        assert source.attempt == before.attempt, "the source keeps what the server was, until it is elsewhere"
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings()
        await evacuate(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host not in (before.host, lost)
        await only_attempt(cloud, after)
        await returns(cloud, lost)
        await only_attempt(cloud, after)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_delete_does_not_wait_for_hosts_that_the_server_was_evacuated_from(tmp_path: Path, times: int) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=times + 1) as cloud:
        [server] = await built(cloud)
        lost = []
        for _ in range(times):
            lost.append(await dies(cloud, server.host))
            await evacuate(cloud, server.uuid)
            server = await becomes(cloud, server.uuid, State.ACTIVE)
        await cloud.delete(server.uuid)
        await cloud.gone([server.uuid])

        async def given_back() -> bool:
            return not any((await charged(cloud)).values())

        await eventually(given_back, "the quota is given back")
        left = [one.host for one in await cloud.attempts(server.uuid) if one.open]
        assert sorted(str(host) for host in left) == sorted(lost), "what is there is not forgotten"
        assert await differences(cloud) == []
        for host in lost:
            await returns(cloud, host)

        async def undone() -> bool:
            return not any(one.open for one in await cloud.attempts(server.uuid)) and not await cloud.guests()

        await eventually(undone, "what the lost hosts had is undone")
        assert await differences(cloud) == []
        for host in lost:
            assert [one.event for one in events(cloud, host)][-1] == "destroyed"


async def test_a_delete_waits_for_the_host_that_has_the_server(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [server] = await built(cloud)
        first = await dies(cloud, server.host)
        await evacuate(cloud, server.uuid)
        server = await becomes(cloud, server.uuid, State.ACTIVE)
        second = await dies(cloud, server.host)
        await cloud.delete(server.uuid)

        async def deleting() -> bool:
            found = await cloud.find(server.uuid)
            return found is not None and found.task is Task.DELETING

        await eventually(deleting, "its guest may run")
        assert any((await charged(cloud)).values())
        await returns(cloud, second)
        await cloud.gone([server.uuid])
        await returns(cloud, first)


async def test_all_servers_of_a_host_leave_it_at_once(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=3) as cloud:
        servers = await built(cloud, 12)
        quota = await charged(cloud)
        lost = await dies(cloud, servers[0].host)
        mine = [server for server in servers if server.host == lost]
        assert mine
        for server in mine:
            await evacuate(cloud, server.uuid)
        for server in mine:
            assert (await becomes(cloud, server.uuid, State.ACTIVE)).host != lost
        await returns(cloud, lost)
        for server in servers:
            await only_attempt(cloud, await becomes(cloud, server.uuid, State.ACTIVE))

        async def counted() -> bool:
            return await cloud.used_vcpus() == 12

        await eventually(counted, "each server is counted once")
        assert await charged(cloud) == quota


async def test_a_rule_of_its_group_holds(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        servers = [one for _ in range(2) for one in await cloud.settled(await cloud.create(group=ALONE))]
        lost = await dies(cloud, servers[0].host)
        await evacuate(cloud, servers[0].uuid)
        after = await becomes(cloud, servers[0].uuid, State.ACTIVE)
        assert after.host == lost, "the only other host has a member of the group"
        await evacuate(cloud, servers[0].uuid, host=servers[1].host, to=EvacuateTo(forced=True))
        again = await becomes(cloud, servers[0].uuid, State.ACTIVE)
        assert (again.host, again.attempt) == (lost, after.attempt), "not even by force"


async def test_a_fence_before_it_is_asked(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        lost = await dies(cloud, before.host)
        await fence(cloud, lost)
        await becomes(cloud, before.uuid, State.ERROR)
        await evacuate(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host != lost, after.fault) == (True, None)
        await returns(cloud, lost)
        await only_attempt(cloud, after)


POINTS = [
    (step, when)
    for step in ("move_select", "move_prepare_anew", "move_spawn", "may_move", "moved")
    for when in ("before", "after")
]


async def held_at(cloud: Cloud, step: str, when: str, then: Callable[[], Awaitable[None]]) -> asyncio.Event:
    """Do something the first time that a step comes to a point."""
    there = asyncio.Event()

    async def hook(point: CrashPoint) -> None:
        if point.step == step and point.when == when and not there.is_set():
            there.set()
            await then()

    cloud.plane.steps.crash_hook = hook
    return there


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_fence_at_any_point_does_not_stop_it(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=3) as cloud:
        [before] = await built(cloud)
        lost = await dies(cloud, before.host)
        there = await held_at(cloud, step, when, partial(fence, cloud, lost))
        await evacuate(cloud, before.uuid)
        async with asyncio.timeout(PATIENCE):
            await there.wait()
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host != lost

        async def in_effect() -> bool:
            return all(one.in_effect for one in await cloud.plane.databases.cells["cell1"].read(fences.fenced))

        await eventually(in_effect, "the fence is in effect")
        await returns(cloud, lost)
        await only_attempt(cloud, await becomes(cloud, before.uuid, State.ACTIVE))


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_delete_at_any_point_leaves_nothing(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [server] = await built(cloud)
        lost = await dies(cloud, server.host)
        there = await held_at(cloud, step, when, partial(cloud.delete, server.uuid))
        await evacuate(cloud, server.uuid)
        async with asyncio.timeout(PATIENCE):
            await there.wait()
        await returns(cloud, lost)
        await cloud.gone([server.uuid])
        await cloud.nothing_left()


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_lost_host_that_comes_back_at_any_point_never_makes_two(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        lost = await dies(cloud, before.host)
        there = await held_at(cloud, step, when, partial(returns, cloud, lost))
        await evacuate(cloud, before.uuid)
        async with asyncio.timeout(PATIENCE):
            await there.wait()
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host != lost
        await only_attempt(cloud, after)
        assert [event.event for event in events(cloud, lost)][-1] == "destroyed"
        assert [event.event for event in events(cloud, lost)].count("spawned") == 1


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_restart_at_any_point_goes_on(tmp_path: Path, step: str, when: str) -> None:
    """All processes but the lost host's start anew: it starts with them, so it is heard."""
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        await dies(cloud, before.host)
        stopped = asyncio.Event()

        async def stop_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when:
                stopped.set()
                raise _Stopped

        cloud.plane.steps.crash_hook = stop_there
        await evacuate(cloud, before.uuid)
        async with asyncio.timeout(PATIENCE):
            await stopped.wait()
        await cloud.restart()
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host != before.host
        await only_attempt(cloud, after)


async def test_the_password_goes_into_the_guest(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await built(cloud)
        await dies(cloud, before.host)
        plain = msgspec.json.encode({"admin_password": "opensesame", "files": []})
        await evacuate(cloud, before.uuid, secrets=cloud.directory.seal().encrypt(plain))
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host is not None
        home = cloud.directory.host("cell1", after.host)
        inside = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file() and "guests" in path.parts)
        assert b"opensesame" in inside
