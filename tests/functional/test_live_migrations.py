"""Live migrations in a whole cell: the guest goes on with its memory and its disk, and never runs twice."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.fake import GUESTS_FILE, FailureRule, FakeSettings
from skep.compute.drivers.guest_log import GuestEvent, memories, read_events
from skep.config.compute import FakeFailure
from skep.config.sections import ConductorSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database import Connection
from skep.database.cell import instances, live_moves, row_actions, tasks
from skep.domain.actions import ACTIONS, ActionRequest
from skep.domain.errors import BadRequest
from skep.domain.instances import Instance, PowerState, State
from skep.domain.moves import ABORTED
from skep.domain.server_migrations import ABORTED_WHILE_WAITING
from skep.telemetry.steps import CrashPoint
from tests.functional.test_cold_moves import (
    CONTENT,
    asked,
    becomes,
    context,
    disk_of,
    disks,
    move_of,
    only_attempt,
    server_with_disk,
)


class _Stopped(Exception):
    """What a step raises where a test holds the migration."""


QUICK = quick_config(
    copy_delay=0, conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.1, move_deadline=30.0)
)


async def migrate(cloud: Cloud, server: Instance, host: str | None = None) -> str:
    """Ask for a live migration as the API does; return the migration."""

    def unit(connection: Connection) -> object:
        row = instances.get(connection, server.uuid)
        assert row is not None
        action = ACTIONS["live_migrate"]
        return live_moves.begin(connection, row, action, context(), cloud.clock.now(), wanted_host=host)

    assert await asked(cloud, unit) is not None
    return (await move_of(cloud, server.uuid)).uuid


async def wish(cloud: Cloud, server: Instance, action: str, migration: str) -> None:
    """Ask for an abort or a forced end as the API does."""
    arguments = {"migration": migration, "statuses": list(ABORTED_WHILE_WAITING)}

    def unit(connection: Connection) -> object:
        return row_actions.carry_out(
            connection,
            server.uuid,
            ACTIONS[action],
            ActionRequest(action=action, context=context(), arguments=arguments),
            check=lambda _server: None,
            host="api",
            now=cloud.clock.now(),
        )

    await asked(cloud, unit)


ENDS = ("powered_off", "destroyed")
"""Events after which a guest does not run."""


def history(cloud: Cloud) -> list[tuple[str, GuestEvent]]:
    """Return what happened to all guests, by time, each with its host; of what was at one moment, ends come first."""
    homes = {host: cloud.directory.host("cell1", host) for host in cloud.fakes}
    happened = [(host, event) for host, home in homes.items() for event in read_events(home / GUESTS_FILE)]
    return sorted(happened, key=lambda one: (one[1].at, one[1].event not in ENDS))


def never_two(cloud: Cloud) -> None:
    """See that at no time two guests ran."""
    running: set[tuple[str, int]] = set()
    for host, event in history(cloud):
        key = (host, event.attempt)
        if event.event in ("spawned", "powered_on", "rebooted"):
            running.add(key)
        elif event.event in ENDS:
            running.discard(key)
        assert len(running) < 2, running


def memory_of(cloud: Cloud, server: Instance) -> str:
    """Return of which boot the memory of a server's guest is."""
    assert server.host is not None
    return memories(read_events(cloud.directory.host("cell1", server.host) / GUESTS_FILE))[server.uuid]


def behave(cloud: Cloud, *rules: FailureRule, copy_delay: float = 0.0) -> None:
    for driver in cloud.fakes.values():
        driver.settings = FakeSettings(failures=rules, copy_delay=copy_delay)


async def is_running(cloud: Cloud, server: Instance) -> None:
    """Wait until the guest is being copied."""

    async def probe() -> bool:
        found = await move_of(cloud, server.uuid)
        return found.status == "running" and found.memory_total is not None

    await eventually(probe, "the guest is copied")


async def goes_on(cloud: Cloud, before: Instance, memory: str) -> Instance:
    """See that a server is where it was, and was never stopped."""
    after = await becomes(cloud, before.uuid, State.ACTIVE)
    assert (after.host, after.attempt, after.power_state) == (before.host, before.attempt, PowerState.RUNNING)
    assert memory_of(cloud, after) == memory
    assert disk_of(cloud, after) == CONTENT
    await only_attempt(cloud, after)
    never_two(cloud)
    return after


async def test_a_server_goes_to_another_host_and_goes_on(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        await migrate(cloud, before)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host != before.host
        assert after.power_state is PowerState.RUNNING
        assert (memory_of(cloud, after), disk_of(cloud, after)) == (memory, CONTENT)
        await only_attempt(cloud, after)
        found = await move_of(cloud, before.uuid)
        assert (found.status, found.source_host, found.dest_host) == ("completed", before.host, after.host)
        never_two(cloud)
        await migrate(cloud, after, before.host)
        again = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (again.host, memory_of(cloud, again)) == (before.host, memory)
        await only_attempt(cloud, again)
        never_two(cloud)
        await cloud.delete(before.uuid)
        await cloud.gone([before.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


async def test_a_paused_server_stays_paused(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)

        def pause(connection: Connection) -> bool:
            return tasks.begin(connection, before.uuid, ACTIONS["pause"], context(), cloud.clock.now())

        assert await asked(cloud, pause)
        paused = await becomes(cloud, before.uuid, State.PAUSED)
        await migrate(cloud, paused)
        after = await becomes(cloud, before.uuid, State.PAUSED)
        assert after.host != before.host
        assert (after.power_state, memory_of(cloud, after)) == (PowerState.PAUSED, memory)
        await only_attempt(cloud, after)


async def test_without_a_host_the_server_stays_as_it_was(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        await migrate(cloud, before)
        after = await goes_on(cloud, before, memory)
        assert after.fault is not None
        assert "No valid host" in after.fault.message
        assert (await move_of(cloud, before.uuid)).status == "error"


@pytest.mark.parametrize("operation", ["copy_guest", "hand_over"])
async def test_what_fails_before_the_switch_leaves_the_server_running(tmp_path: Path, operation: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        behave(cloud, FailureRule(operation=operation, times=1))
        await migrate(cloud, before)
        await goes_on(cloud, before, memory)
        assert (await move_of(cloud, before.uuid)).status == "failed"


async def test_a_target_that_refuses_is_replaced(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=3) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        behave(cloud, FailureRule(operation="await_guest", times=1))
        refusing = [host for host in cloud.fakes if host != before.host]
        cloud.fakes[refusing[1]].settings = FakeSettings()
        await migrate(cloud, before)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host != before.host
        assert memory_of(cloud, after) == memory
        await only_attempt(cloud, after)


async def test_a_target_that_cannot_take_over_is_error_until_it_can(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        behave(cloud, FailureRule(operation="take_over"))
        await migrate(cloud, before)
        await becomes_error(cloud, before)
        assert [one.open for one in await cloud.attempts(before.uuid)] == [True, True], "both are kept"
        behave(cloud)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.fault is None
        assert after.host != before.host
        assert (memory_of(cloud, after), disk_of(cloud, after)) == (memory, CONTENT)
        await only_attempt(cloud, after)
        never_two(cloud)


async def becomes_error(cloud: Cloud, server: Instance) -> None:
    async def error() -> bool:
        found = await cloud.find(server.uuid)
        return found is not None and found.state is State.ERROR

    await eventually(error, "the server is ERROR")


async def test_an_abort_leaves_the_server_where_it_was(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        behave(cloud, FailureRule(operation="converge"))
        migration = await migrate(cloud, before)
        await is_running(cloud, before)
        await wish(cloud, before, "live_abort", migration)
        await goes_on(cloud, before, memory)
        found = await move_of(cloud, before.uuid)
        assert found.status == "cancelled"
        with pytest.raises(BadRequest, match="Cannot abort"):
            await wish(cloud, before, "live_abort", migration)


async def test_an_abort_before_the_copying(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        behave(cloud, FailureRule(operation="await_guest", hangs=True))
        migration = await migrate(cloud, before)

        async def preparing() -> bool:
            return (await move_of(cloud, before.uuid)).status == "preparing"

        await eventually(preparing, "the target is told")
        with pytest.raises(BadRequest, match="Cannot force_complete"):
            await wish(cloud, before, "live_complete", migration)
        await wish(cloud, before, "live_abort", migration)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.fault is None
        assert (await move_of(cloud, before.uuid)).status == "cancelled"
        for driver in cloud.fakes.values():
            driver.release()
        await goes_on(cloud, before, memory)


async def on_one_host(cloud: Cloud) -> list[Instance]:
    """Make servers until three are on one host; return these."""
    servers = await cloud.settled(await cloud.create(5))
    hosts = Counter(server.host for server in servers)
    return [server for server in servers if server.host == hosts.most_common(1)[0][0]][:3]


async def statuses(cloud: Cloud, servers: list[Instance]) -> list[str]:
    return [(await move_of(cloud, server.uuid)).status for server in servers]


@pytest.mark.parametrize("restart", [False, True])
async def test_one_guest_leaves_a_host_at_a_time(tmp_path: Path, restart: bool) -> None:
    never = quick_config(conductor=QUICK.conductor, copy_delay=0, failures=[FakeFailure(operation="converge")])
    async with running_cloud(tmp_path, never, cells=1, hosts=2) as cloud:
        servers = await on_one_host(cloud)
        migrations = [await migrate(cloud, server) for server in servers]
        first, second, third = servers

        async def queued() -> bool:
            return await statuses(cloud, servers) == ["running", "queued", "queued"]

        await eventually(queued, "two wait for the one that copies")
        if restart:
            await cloud.restart()
            await eventually(queued, "they wait still")

        async def one_target() -> bool:
            return await cloud.used_vcpus() == 5 + 1

        await eventually(one_target, "no target has begun but that of the first")
        await wish(cloud, second, "live_abort", migrations[1])
        assert (await becomes(cloud, second.uuid, State.ACTIVE)).host == second.host
        assert await statuses(cloud, servers) == ["running", "cancelled", "queued"]
        await wish(cloud, first, "live_abort", migrations[0])
        await becomes(cloud, first.uuid, State.ACTIVE)

        async def third_runs() -> bool:
            return await statuses(cloud, servers) == ["cancelled", "cancelled", "running"]

        await eventually(third_runs, "its turn has come")
        behave(cloud)
        after = await becomes(cloud, third.uuid, State.ACTIVE)
        assert after.host != third.host
        await cloud.no_claims()


async def test_one_that_ends_lets_another_begin_that_its_conductor_knows_nothing_of(tmp_path: Path) -> None:
    """Another conductor of the cell chose its host: nobody waits for the next look at all rows."""
    never = quick_config(conductor=QUICK.conductor, copy_delay=0, failures=[FakeFailure(operation="converge")])
    async with running_cloud(tmp_path, never, cells=1, hosts=2) as cloud:
        first, second, _ = servers = await on_one_host(cloud)
        migrations = [await migrate(cloud, server) for server in (first, second)]

        async def waits() -> bool:
            return [(await move_of(cloud, one.uuid)).status for one in servers[:2]] == ["running", "queued"]

        await eventually(waits, "one waits for the other")
        moves = cloud.plane._cell_conductors[0]._moves
        moves._look_at, moves._some_wait = math.inf, False
        await wish(cloud, first, "live_abort", migrations[0])

        async def runs() -> bool:
            return (await move_of(cloud, second.uuid)).status == "running"

        await eventually(runs, "its turn has come")


async def test_a_queued_migration_whose_server_is_deleted_holds_nothing(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        servers = await on_one_host(cloud)
        behave(cloud, FailureRule(operation="converge"))
        for server in servers:
            await migrate(cloud, server)
        first, second, third = servers

        async def queued() -> bool:
            return await statuses(cloud, servers) == ["running", "queued", "queued"]

        await eventually(queued, "two wait for the one that copies")
        for server in (second, first):
            await cloud.delete(server.uuid)
        await cloud.gone([first.uuid, second.uuid])
        behave(cloud)
        assert (await becomes(cloud, third.uuid, State.ACTIVE)).host != third.host
        await cloud.no_claims()


async def test_any_number_leaves_a_host_at_once_where_that_is_set(tmp_path: Path) -> None:
    conductor = msgspec.structs.replace(QUICK.conductor, max_concurrent_live_migrations=0)
    config = msgspec.structs.replace(QUICK, conductor=conductor)
    async with running_cloud(tmp_path, config, cells=1, hosts=2) as cloud:
        servers = await on_one_host(cloud)
        behave(cloud, FailureRule(operation="converge"))
        for server in servers:
            await migrate(cloud, server)

        async def all_run() -> bool:
            return await statuses(cloud, servers) == ["running"] * 3

        await eventually(all_run, "all copy at once")
        behave(cloud)
        for server in servers:
            assert (await becomes(cloud, server.uuid, State.ACTIVE)).host != server.host


async def test_a_forced_end_pauses_the_guest_and_moves_it(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        behave(cloud, FailureRule(operation="converge"))
        migration = await migrate(cloud, before)
        await is_running(cloud, before)
        found = await move_of(cloud, before.uuid)
        assert found.memory_total == before.flavor.memory_mb * 2**20
        assert found.memory_remaining is not None
        assert found.memory_processed is not None
        await wish(cloud, before, "live_complete", migration)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host != before.host
        assert memory_of(cloud, after) == memory
        await only_attempt(cloud, after)
        never_two(cloud)


@pytest.mark.parametrize("action", ["abort", "force_complete"])
async def test_a_copying_that_does_not_converge_ends_by_the_limit(tmp_path: Path, action: str) -> None:
    limits = ConductorSettings(
        lease_seconds=2.0,
        resend_seconds=0.1,
        move_deadline=30.0,
        live_migration_completion_timeout=0.05,
        live_migration_timeout_action=action,  # type: ignore[arg-type]
    )
    async with running_cloud(tmp_path, quick_config(copy_delay=0, conductor=limits), cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        memory = memory_of(cloud, before)
        behave(cloud, FailureRule(operation="converge"))
        await migrate(cloud, before)
        if action == "abort":
            after = await goes_on(cloud, before, memory)
            assert after.fault is not None
            assert "did not end within" in after.fault.message
            assert ABORTED in after.fault.message
            assert (await move_of(cloud, before.uuid)).status == "cancelled"
        else:
            after = await becomes(cloud, before.uuid, State.ACTIVE)
            assert after.host != before.host
            assert memory_of(cloud, after) == memory
            await only_attempt(cloud, after)
        never_two(cloud)


async def test_a_delete_ends_copying_that_would_never_end(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        server = await server_with_disk(cloud)
        behave(cloud, FailureRule(operation="converge"))
        await migrate(cloud, server)
        await is_running(cloud, server)
        await cloud.delete(server.uuid)
        await cloud.gone([server.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0
        assert left_in_exchange(tmp_path) == []


def left_in_exchange(home: Path) -> list[str]:
    return [str(path) for exchange in home.rglob("exchange") for path in exchange.rglob("*") if path.is_file()]


POINTS = [
    (step, when)
    for step in (
        "move_select",
        "move_live_prepare",
        "move_live_copy",
        "move_live_take_up",
        "may_move",
        "moved",
    )
    for when in ("before", "after")
]


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_delete_at_any_point_leaves_nothing(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        server = await server_with_disk(cloud)
        deleted = asyncio.Event()

        async def delete_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when and not deleted.is_set():
                deleted.set()
                await cloud.delete(server.uuid)

        cloud.plane.steps.crash_hook = delete_there
        await migrate(cloud, server)
        async with asyncio.timeout(PATIENCE):
            await deleted.wait()
        await cloud.gone([server.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0
        never_two(cloud)


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_restart_at_any_point_goes_on(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        server = await server_with_disk(cloud)
        memory = memory_of(cloud, server)
        await halted(cloud, step, when, lambda: migrate(cloud, server))
        await cloud.restart()
        after = await becomes(cloud, server.uuid, State.ACTIVE)
        assert after.host != server.host
        assert (memory_of(cloud, after), disk_of(cloud, after)) == (memory, CONTENT)
        await only_attempt(cloud, after)
        never_two(cloud)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", ["copy_guest", "hand_over"])
async def test_a_restart_while_the_guest_is_taken_back(tmp_path: Path, operation: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        server = await server_with_disk(cloud)
        memory = memory_of(cloud, server)
        behave(cloud, FailureRule(operation=operation, times=1))
        await halted(cloud, "move_live_take_back", when, lambda: migrate(cloud, server))
        await cloud.restart()
        await goes_on(cloud, server, memory)


@pytest.mark.parametrize("operation", ["copy_guest", "hand_over", "take_over"])
async def test_a_restart_in_the_middle_of_a_driver_call(tmp_path: Path, operation: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        server = await server_with_disk(cloud)
        memory = memory_of(cloud, server)
        behave(cloud, FailureRule(operation=operation, hangs=True))
        await migrate(cloud, server)
        hanging = {"copy_guest": "running", "hand_over": "running", "take_over": "post-migrating"}[operation]

        async def hangs() -> bool:
            found = await move_of(cloud, server.uuid)
            paused = [event for _, event in history(cloud) if event.left is PowerState.PAUSED]
            begun = [event for _, event in history(cloud) if event.event == "spawn_begun"]
            reached = {"copy_guest": True, "hand_over": bool(paused), "take_over": len(begun) == 2}[operation]
            return found.status == hanging and reached

        await eventually(hangs, "the driver hangs")
        await cloud.restart()
        after = await becomes(cloud, server.uuid, State.ACTIVE)
        assert after.host != server.host
        assert (memory_of(cloud, after), disk_of(cloud, after)) == (memory, CONTENT)
        await only_attempt(cloud, after)
        never_two(cloud)


async def halted(cloud: Cloud, step: str, when: str, begin: Callable[[], object]) -> None:
    """Begin something, and hold it at a point for good."""
    stopped = asyncio.Event()

    async def stop_there(point: CrashPoint) -> None:
        if point.step == step and point.when == when:
            stopped.set()
            raise _Stopped

    cloud.plane.steps.crash_hook = stop_there
    await begin()  # type: ignore[misc]
    async with asyncio.timeout(PATIENCE):
        await stopped.wait()
