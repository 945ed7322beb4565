"""Cold moves in a whole cell: a server is on its source or on its target, once, with its disk, whatever happens.

`migrate` goes to another host, `resize` to another host and another flavor, `resize_here` to another flavor where the
server is. `_wired`: hosts share no directory, disks go from agent to agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from skep.audit.difference import Difference
from skep.audit.look import look_twice
from skep.compute.agent import ARRIVALS
from skep.compute.drivers.fake import DISKS, FailureRule, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks, RootDisk
from skep.config.sections import ConductorSettings
from skep.contracts.cloud import NO_LIMITS, PROJECT, SMALL, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database import Connection
from skep.database.api import build_requests, quotas, task_charges
from skep.database.api.tables import quota_charges
from skep.database.cell import actions, cold_moves, instances, listing, row_actions, server_migrations
from skep.database.cell.listing import ListQuery
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.actions import ACTIONS, ActionRequest
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, new_request_id, new_uuid
from skep.domain.instances import Instance, PowerState, State
from skep.domain.moves import Size
from skep.domain.quotas import QuotaCharge, charge_of
from skep.domain.resources import MEMORY_MB, VCPU
from skep.domain.server_migrations import MigrationType, ServerMigration
from skep.messages.to_cell_conductor import InstancesChanged
from skep.telemetry.notifier import Notification
from skep.telemetry.steps import CrashPoint
from skep.transport.base import cell_conductor


class _Stopped(Exception):
    """What a step raises where a test holds the move."""


QUICK = quick_config(conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.1, move_deadline=30.0))
CONTENT = b"written by the guest"
BIG = Flavor(flavorid="big", name="m1.big", vcpus=2, memory_mb=1024, root_gb=3)
KINDS = ("migrate", "resize", "resize_here", "migrate_wired")
WIRED = msgspec.structs.replace(QUICK, compute=msgspec.structs.replace(QUICK.compute, move_address="127.0.0.1"))


@asynccontextmanager
async def cloud_for(tmp_path: Path, kind: str) -> AsyncIterator[Cloud]:
    """Run a cloud in which a move of this kind has one host to go to."""
    here = kind.startswith("resize_here")
    conductor = msgspec.structs.replace(QUICK.conductor, allow_resize_to_same_host=here)
    config = msgspec.structs.replace(WIRED if kind.endswith("_wired") else QUICK, conductor=conductor)
    async with running_cloud(tmp_path, config, cells=1, hosts=1 if here else 2) as cloud:
        yield cloud


def context() -> RequestContext:
    return RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)


async def server_with_disk(cloud: Cloud) -> Instance:
    """Make a server whose disk has content."""
    [server] = await cloud.settled(await cloud.create())
    assert server.state is State.ACTIVE
    disk_file(cloud, server, server.attempt).write_bytes(CONTENT)
    return server


def disk_file(cloud: Cloud, server: Instance, attempt: int) -> Path:
    assert server.host is not None
    return cloud.directory.host("cell1", server.host) / DISKS / f"{server.uuid}_{attempt}"


def disk_of(cloud: Cloud, server: Instance) -> bytes:
    return disk_file(cloud, server, server.attempt).read_bytes()


def disks(cloud: Cloud) -> int:
    """Return how many disks there are on all hosts, those that are on their way included."""
    homes = [cloud.directory.host("cell1", host) for host in cloud.fakes]
    coming = sum(len(list((home / ARRIVALS).glob("*"))) for home in homes)
    return coming + sum(len(FakeDisks(home / DISKS).labels()) for home in homes)


async def asked(cloud: Cloud, unit: Callable[[Connection], object]) -> object:
    result = await cloud.plane.databases.cells["cell1"].write(unit)
    await told(cloud)
    return result


async def told(cloud: Cloud) -> None:
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.transport.cast(cell_conductor(cell.uuid), InstancesChanged())


async def move(cloud: Cloud, server: Instance, kind: str = "migrate", *, flavor: Flavor = BIG) -> RequestContext:
    """Ask for a move as the API does."""
    who, size = context(), None if kind.startswith("migrate") else Size(flavor=flavor)
    if size is not None:
        charge = partial(task_charges.charge_larger, server=server, flavor=flavor, task_id=who.request_id)
        await cloud.plane.databases.api.write(partial(charge, now=cloud.clock.now(), limits=NO_LIMITS), intake=True)

    def unit(connection: Connection) -> object:
        row = instances.get(connection, server.uuid)
        assert row is not None
        action = ACTIONS["migrate" if size is None else "resize"]
        return cold_moves.begin(connection, row, action, who, cloud.clock.now(), size=size)

    assert await asked(cloud, unit) is not None
    return who


async def charged(cloud: Cloud) -> dict[str, int]:
    return await cloud.plane.databases.api.read(partial(quotas.used, project=PROJECT))


async def is_charged(cloud: Cloud, server: Instance, flavor: Flavor) -> None:
    """Wait until no charge waits for anything, and a server is charged for this flavor; all sums are right."""
    api, of = cloud.plane.databases.api, quota_charges.c
    query = sa.select(of.instances, of.cores, of.ram).where(of.instance == server.uuid)

    async def probe() -> bool:
        found = await api.read(lambda connection: connection.execute(query).one())
        return not await api.read(task_charges.waiting) and QuotaCharge(**found._mapping) == charge_of(flavor)

    await eventually(probe, f"the server is charged for {flavor.name}")
    assert await api.read(quotas.charged) == await api.read(quotas.sums)


async def revert(cloud: Cloud, uuid: InstanceUuid) -> RequestContext:
    who = context()

    def unit(connection: Connection) -> object:
        row = instances.get(connection, uuid)
        assert row is not None
        return cold_moves.begin_revert(connection, row, ACTIONS["revert_resize"], who, cloud.clock.now())

    assert await asked(cloud, unit) is not None
    return who


async def events_of(cloud: Cloud, uuid: InstanceUuid, who: RequestContext) -> set[str]:
    """Return the events of an action, each of which stands there once."""
    read = partial(actions.events_of, instance=uuid, request_id=who.request_id)
    found = [event.event for event in await cloud.plane.databases.cells["cell1"].read(read)]
    assert len(found) == len(set(found))
    return set(found)


async def confirm(cloud: Cloud, uuid: InstanceUuid) -> None:
    action = ACTIONS["confirm_resize"]
    request = ActionRequest(action=action.name, context=context())
    carry = partial(
        row_actions.carry_out,
        uuid=uuid,
        action=action,
        request=request,
        check=lambda _server: None,
        host="api",
        now=cloud.clock.now(),
    )
    assert await asked(cloud, carry)


async def becomes(cloud: Cloud, uuid: InstanceUuid, state: State) -> Instance:
    """Wait until nothing is done to a server and it is in this state."""

    async def probe() -> Instance | None:
        found = await cloud.find(uuid)
        return found if found is not None and found.task is None and found.state is state else None

    found = await eventually(probe, f"the server is {state.value}")
    assert found is not None
    return found


async def only_attempt(cloud: Cloud, server: Instance) -> None:
    """Wait until nothing but the attempt that holds the server is left anywhere."""

    async def probe() -> bool:
        open_ones = [one.attempt for one in await cloud.attempts(server.uuid) if one.open]
        cpus = server.flavor.vcpus
        return open_ones == [server.attempt] and disks(cloud) == 1 and await cloud.used_vcpus() == cpus

    await eventually(probe, "only the holder is left")
    await cloud.no_claims()
    [guest] = await cloud.guests()
    assert (guest.attempt, guest.whole) == (server.attempt, True)
    assert guest.resources == server.flavor.resources()
    await is_charged(cloud, server, server.flavor)


async def move_of(cloud: Cloud, uuid: InstanceUuid) -> ServerMigration:
    read = partial(server_migrations.listed, query=MigrationQuery(instance=uuid))
    return (await cloud.plane.databases.cells["cell1"].read(read))[0]


async def test_a_server_goes_to_another_host_and_is_confirmed(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        await move(cloud, before)
        moved = await becomes(cloud, before.uuid, State.RESIZED)
        assert moved.host != before.host
        assert moved.attempt > before.attempt
        assert moved.power_state is PowerState.RUNNING
        assert disk_of(cloud, moved) == CONTENT
        assert [guest.attempt for guest in await cloud.guests()] == [moved.attempt]
        found = await move_of(cloud, before.uuid)
        assert (found.status, found.source_host, found.dest_host) == ("finished", before.host, moved.host)

        await confirm(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt) == (moved.host, moved.attempt)
        await only_attempt(cloud, after)
        assert (await move_of(cloud, before.uuid)).status == "confirmed"
        await cloud.delete(before.uuid)
        await cloud.gone([before.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


async def test_a_server_goes_back(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        who = await move(cloud, before)
        moved = await becomes(cloud, before.uuid, State.RESIZED)
        assert await events_of(cloud, before.uuid, who) == {
            "compute_prep_resize",
            "compute_resize_instance",
            "compute_finish_resize",
            "cold_migrate",
        }
        who = await revert(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert await events_of(cloud, before.uuid, who) == {"compute_revert_resize", "compute_finish_revert_resize"}
        assert after.host == before.host
        assert after.attempt > moved.attempt
        assert disk_of(cloud, after) == CONTENT
        await only_attempt(cloud, after)
        assert (await move_of(cloud, before.uuid)).status == "reverted"
        await move(cloud, after)
        again = await becomes(cloud, before.uuid, State.RESIZED)
        assert again.host == moved.host
        await cloud.delete(before.uuid)
        await cloud.gone([before.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


async def test_a_member_of_a_group_that_went_back_keeps_its_place(tmp_path: Path) -> None:
    apart = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        [before] = await cloud.settled(await cloud.create(group=apart))
        await move(cloud, before)
        await becomes(cloud, before.uuid, State.RESIZED)
        [none] = await cloud.settled(await cloud.create(group=apart))
        assert none.state is State.ERROR, "it may go back"
        await revert(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        await only_attempt(cloud, after)
        [other] = await cloud.settled(await cloud.create(group=apart))
        assert other.state is State.ACTIVE
        assert other.host != after.host
        [none] = await cloud.settled(await cloud.create(group=apart))
        assert none.state is State.ERROR


async def test_without_a_host_the_server_stays_as_it_was(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud)
        await move(cloud, before)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt) == (before.host, before.attempt)
        assert after.fault is not None
        assert "; it would fit on its own host, which is not taken" in after.fault.message
        assert (await move_of(cloud, before.uuid)).status == "error"
        [told] = [one for one in cloud.notifications if one.event_type == "compute_task.migrate_server.error"]
        reason = told.payload["nova_object.data"]["reason"]["nova_object.data"]
        assert (reason["exception"], reason["exception_message"]) == ("NoValidHost", after.fault.message)
        await only_attempt(cloud, after)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", ["put_aside", "kept", "receive"])
async def test_what_fails_before_the_switch_leaves_the_server_running(
    tmp_path: Path, kind: str, operation: str
) -> None:
    async with cloud_for(tmp_path, kind) as cloud:
        before = await server_with_disk(cloud)
        failing = FakeSettings(failures=(FailureRule(operation=operation, times=1),))
        for driver in cloud.fakes.values():
            driver.settings = failing
        await move(cloud, before, kind)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt, after.power_state) == (before.host, before.attempt, PowerState.RUNNING)
        assert after.fault is not None
        assert disk_of(cloud, after) == CONTENT
        await only_attempt(cloud, after)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_target_that_cannot_start_it_is_error_until_it_can(tmp_path: Path, kind: str) -> None:
    async with cloud_for(tmp_path, kind) as cloud:
        before = await server_with_disk(cloud)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings(failures=(FailureRule(operation="take_up"),))
        await move(cloud, before, kind)

        async def error() -> bool:
            found = await cloud.find(before.uuid)
            return found is not None and found.state is State.ERROR

        await eventually(error, "the server is ERROR")
        assert [one.open for one in await cloud.attempts(before.uuid)] == [True, True], "both are kept"
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings()
        moved = await becomes(cloud, before.uuid, State.RESIZED)
        assert moved.fault is None
        assert disk_of(cloud, moved) == CONTENT


POINTS = [
    (kind, step, when)
    for kind in (*KINDS, "resize_wired", "resize_here_wired")
    for step in (
        "move_select",
        "move_prepare",
        "move_put_aside",
        "move_transfer",
        "move_take_up",
        "may_move",
        "moved",
    )
    for when in ("before", "after")
]


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("kind", "step", "when"), POINTS)
async def test_a_delete_at_any_point_leaves_nothing(tmp_path: Path, kind: str, step: str, when: str) -> None:
    async with cloud_for(tmp_path, kind) as cloud:
        server = await server_with_disk(cloud)
        deleted = asyncio.Event()

        async def delete_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when and not deleted.is_set():
                deleted.set()
                await cloud.delete(server.uuid)

        cloud.plane.steps.crash_hook = delete_there
        await move(cloud, server, kind)
        async with asyncio.timeout(PATIENCE):
            await deleted.wait()
        await cloud.gone([server.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


async def stopped_move(cloud: Cloud, server: Instance, kind: str, step: str, when: str) -> None:
    """Begin to move a server, and wait until it stands still before or after a step."""
    stopped = asyncio.Event()

    async def stop_there(point: CrashPoint) -> None:
        if point.step == step and point.when == when:
            stopped.set()
            raise _Stopped

    cloud.plane.steps.crash_hook = stop_there
    await move(cloud, server, kind)
    async with asyncio.timeout(PATIENCE):
        await stopped.wait()


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("kind", "step", "when"), POINTS)
async def test_a_restart_at_any_point_goes_on(tmp_path: Path, kind: str, step: str, when: str) -> None:
    async with cloud_for(tmp_path, kind) as cloud:
        server = await server_with_disk(cloud)
        await stopped_move(cloud, server, kind, step, when)
        await cloud.restart()
        moved = await becomes(cloud, server.uuid, State.RESIZED)
        assert disk_of(cloud, moved) == CONTENT
        assert [guest.attempt for guest in await cloud.guests()] == [moved.attempt]
        assert moved.flavor == (SMALL if kind.startswith("migrate") else BIG)
        await confirm(cloud, server.uuid)
        await only_attempt(cloud, await becomes(cloud, server.uuid, State.ACTIVE))


def root_of(cloud: Cloud, server: Instance) -> RootDisk | None:
    assert server.host is not None
    return FakeDisks(cloud.directory.host("cell1", server.host) / DISKS).root(server.uuid, server.attempt)


async def differences(cloud: Cloud) -> list[Difference]:
    """Return what an audit finds."""
    assert cloud.plane._super_conductor is not None
    return list((await look_twice(cloud.plane._super_conductor._parts.sources, 0.1)).differences)


async def listed_by_flavor(cloud: Cloud, flavor: Flavor) -> list[InstanceUuid]:
    query = partial(listing.list_all, query=ListQuery(flavorid=flavor.flavorid))
    return [one.uuid for one in await cloud.plane.databases.cells["cell1"].read(query)]


@pytest.mark.parametrize("kind", ["resize", "resize_here", "resize_wired"])
async def test_a_server_gets_another_flavor_and_is_confirmed(tmp_path: Path, kind: str) -> None:
    async with cloud_for(tmp_path, kind) as cloud:
        before = await server_with_disk(cloud)
        await move(cloud, before, kind)
        moved = await becomes(cloud, before.uuid, State.RESIZED)
        assert moved.flavor == BIG
        assert await listed_by_flavor(cloud, BIG) == [before.uuid]
        assert await listed_by_flavor(cloud, SMALL) == []
        assert (moved.host == before.host) == (kind == "resize_here")
        assert disk_of(cloud, moved) == CONTENT
        assert root_of(cloud, moved) == RootDisk(gb=3, generation=2)
        [guest] = await cloud.guests()
        assert (guest.attempt, guest.resources[VCPU], guest.resources[MEMORY_MB]) == (moved.attempt, 2, 1024)
        found = await move_of(cloud, before.uuid)
        assert (found.type, found.status) == (MigrationType.RESIZE, "finished")
        assert (found.old_flavor, found.new_flavor) == (SMALL.flavorid, BIG.flavorid)

        async def both_count() -> bool:
            return await cloud.used_vcpus() == SMALL.vcpus + BIG.vcpus

        await eventually(both_count, "both hosts count what they keep")
        assert await charged(cloud) == {"instances": 1, "cores": 2, "ram": 1024}
        await confirm(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.flavor == BIG
        await only_attempt(cloud, after)
        spec = await cloud.plane.databases.api.read(partial(build_requests.spec_of, instance=before.uuid))
        assert spec is not None
        assert spec.flavor == BIG
        assert await differences(cloud) == []


@pytest.mark.parametrize("kind", ["resize", "resize_here", "resize_wired"])
async def test_a_resized_server_goes_back_to_its_flavor(tmp_path: Path, kind: str) -> None:
    async with cloud_for(tmp_path, kind) as cloud:
        before = await server_with_disk(cloud)
        await move(cloud, before, kind)
        moved = await becomes(cloud, before.uuid, State.RESIZED)
        disk_file(cloud, moved, moved.attempt).write_bytes(b"written since")
        await revert(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.flavor, after.host) == (SMALL, before.host)
        assert disk_of(cloud, after) == CONTENT
        assert root_of(cloud, after) == RootDisk(gb=1, generation=2)
        await only_attempt(cloud, after)
        assert (await move_of(cloud, before.uuid)).status == "reverted"
        assert await differences(cloud) == []
        await move(cloud, after, kind)
        await becomes(cloud, before.uuid, State.RESIZED)
        await cloud.delete(before.uuid)
        await cloud.gone([before.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


async def test_a_smaller_flavor_frees_its_surplus_at_the_confirmation(tmp_path: Path) -> None:
    async with cloud_for(tmp_path, "resize") as cloud:
        [before] = await cloud.settled(await cloud.create(flavor=BIG))
        small = msgspec.structs.replace(SMALL, root_gb=3)
        await move(cloud, before, "resize", flavor=small)
        await becomes(cloud, before.uuid, State.RESIZED)
        both = {"instances": 1, "cores": 2, "ram": 1024}
        assert await charged(cloud) == both, "it may go back"

        # Another one was asked for at the same time, and its cell refused it.
        huge = msgspec.structs.replace(BIG, vcpus=7, memory_mb=9000)
        charge = partial(task_charges.charge_larger, server=before, flavor=huge, task_id="req-refused", now=1)
        await cloud.plane.databases.api.write(partial(charge, limits=NO_LIMITS))

        async def corrected() -> bool:
            return await charged(cloud) == both

        await eventually(corrected, "the resize that rests is charged for its two flavors")
        await confirm(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.flavor == small
        await is_charged(cloud, before, small)


async def test_without_another_host_a_resize_leaves_the_server_and_its_quota(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud)
        await move(cloud, before, "resize")
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt, after.flavor) == (before.host, before.attempt, SMALL)
        assert after.fault is not None
        await only_attempt(cloud, after)


async def test_a_host_has_room_for_both_sizes_or_gets_none(tmp_path: Path) -> None:
    async with cloud_for(tmp_path, "resize_here") as cloud:
        before = await server_with_disk(cloud)
        whole = msgspec.structs.replace(BIG, vcpus=16 * 16)
        await move(cloud, before, "resize_here", flavor=whole)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.attempt, after.flavor) == (before.attempt, SMALL)
        await only_attempt(cloud, after)


def resizes(cloud: Cloud) -> list[Notification]:
    return [one for one in cloud.notifications if one.event_type.startswith("instance.resize")]


async def test_what_is_told_of_a_resize(tmp_path: Path) -> None:
    async with cloud_for(tmp_path, "resize") as cloud:
        before = await server_with_disk(cloud)
        cloud.notifications.clear()
        await move(cloud, before, "resize")
        await becomes(cloud, before.uuid, State.RESIZED)
        told = {one.event_type: one.payload["nova_object.data"] for one in resizes(cloud)}
        flavors = {
            event: (
                data["flavor"]["nova_object.data"]["name"],
                data["new_flavor"]["nova_object.data"]["name"] if "new_flavor" in data else None,
            )
            for event, data in told.items()
        }
        small, big = SMALL.name, BIG.name
        assert flavors == {
            "instance.resize_prep.start": (small, big),
            "instance.resize_prep.end": (small, big),
            "instance.resize.start": (small, None),
            "instance.resize.end": (small, None),
            "instance.resize_finish.start": (big, None),
            "instance.resize_finish.end": (big, None),
        }


async def test_a_resize_that_was_charged_and_not_begun_is_given_back(tmp_path: Path) -> None:
    async with cloud_for(tmp_path, "resize") as cloud:
        before = await server_with_disk(cloud)
        database = cloud.plane.databases.api
        charge = partial(task_charges.charge_larger, server=before, flavor=BIG, task_id="req-lost", now=1)
        await database.write(partial(charge, limits=NO_LIMITS))
        await is_charged(cloud, before, SMALL)
        await move(cloud, before, "resize")
        await becomes(cloud, before.uuid, State.RESIZED)
