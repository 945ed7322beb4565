"""A server for whose cold move its cell has no room goes to another cell: once, with its disk, there and back again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.compute.exchange import Exchange
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.database.api import recovery
from skep.database.api.tables import instance_mappings as mappings
from skep.database.cell import agents, between_cells, fences, hand_overs, moves
from skep.database.cell import attempts as attempts_in_cell
from skep.database.cell import recovery as cell_recovery
from skep.database.cell.tables import attempts, instances, leases, migrations
from skep.database.engine import Database
from skep.database.histories import with_earlier
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.messages.to_cell_conductor import InstancesChanged
from skep.processes.all_in_one import AllInOneCloud
from skep.super_conductor.between_cells import BetweenCells
from skep.telemetry.steps import CrashPoint
from skep.transport.base import cell_conductor
from tests.functional.test_shelving import CONTENT, Shelving, release
from tests.functional.test_unshelving_elsewhere import (
    cell_of,
    clean,
    nothing_left,
    only_in,
    states,
    super_conductor,
    two_cells,
)


class _Stopped(Exception):
    """What a step raises where a test holds the move."""


async def with_disk(cloud: Shelving, **more: Any) -> InstanceUuid:
    uuid = await cloud.create(**more)
    cloud.write(cloud.host_of(await cloud.server(uuid)), uuid)
    return uuid


async def content(cloud: Shelving, uuid: InstanceUuid) -> bytes:
    """Return what is on the disk of the guest that runs; there is one guest."""
    [guest] = await cloud.guests()
    return cloud.disks(cloud.host_of(await cloud.server(uuid))).content(uuid, guest.attempt)


async def moved(cloud: Shelving, uuid: InstanceUuid) -> list[tuple[str, str | None, str | None]]:
    listed = (await cloud.session.ask("GET", "/os-migrations", version="2.59")).json()["migrations"]
    mine = [one for one in reversed(listed) if one["instance_uuid"] == uuid]
    return [(one["status"], one["source_compute"], one["dest_compute"]) for one in mine]


async def rests(cloud: Shelving, uuid: InstanceUuid, **wanted: State) -> None:
    async def is_so() -> bool:
        return await states(cloud, uuid) == wanted

    await eventually(is_so, f"the rows are {wanted}")


async def gone(cloud: Shelving, host: str) -> bool:
    return not cloud.disks(host).labels()


async def leaves_nothing_on(cloud: Shelving, host: str) -> None:
    await eventually(lambda: gone(cloud, host), f"{host} has nothing of the server")


FORTH = [
    (step, when) for step in ("seek", "stage_move", "follow_move", "hand_over", "land") for when in ("before", "after")
]
"""Whatever a super conductor does until the server is in the other cell; `fold` comes when its move is over."""
BACK = [(step, when) for step in ("follow_move", "hand_over", "land", "fold") for when in ("before", "after")]


def break_off(cloud: Shelving, step: str, when: str, nth: int = 1) -> list[CrashPoint]:
    """Have the pass of the super conductor end that comes to a point for the `nth` time; return where it did."""
    came: list[CrashPoint] = []
    stopped: list[CrashPoint] = []

    async def hook(point: CrashPoint) -> None:
        if point.step == step and point.when == when:
            came.append(point)
            if len(came) == nth:
                stopped.append(point)
                raise _Stopped

    cloud.cloud.plane.steps.crash_hook = hook
    return stopped


async def big(cloud: Shelving) -> str:
    flavor = {"name": "big", "id": "big", "ram": 2048, "vcpus": 2, "disk": 3}
    answer = await cloud.session.ask("POST", "/flavors", {"flavor": flavor})
    assert answer.status_code == 200, answer.text
    return "big"


async def used(cloud: Shelving, servers: int, cores: int) -> None:
    """Wait until the project is charged for this."""

    async def is_so() -> bool:
        limits = (await cloud.session.ask("GET", "/limits")).json()["limits"]["absolute"]
        return (limits["totalInstancesUsed"], limits["totalCoresUsed"]) == (servers, cores)

    await eventually(is_so, f"{servers} servers with {cores} cores are charged")


async def test_it_goes_to_and_fro_whatever_breaks_off_on_the_way(tmp_path: Path) -> None:
    """One server, once: with its disk, what was done to it and what its users wrote meanwhile."""
    async with two_cells(tmp_path, hosts=1) as cloud:
        await only_in(cloud, "cell1", "cell2")
        group = {"server_group": {"name": "apart", "policy": "anti-affinity"}}
        made = (await cloud.session.ask("POST", "/os-server-groups", group, version="2.64")).json()["server_group"]
        hints: dict[str, Any] = {"os:scheduler_hints": {"group": made["id"]}}
        uuid = await cloud.create(**hints)
        host = cloud.host_of(await cloud.server(uuid))
        cloud.write(host, uuid)
        home = host.split("-")[0]
        for number, (step, when) in enumerate(FORTH):
            away = "cell2" if home == "cell1" else "cell1"
            before = (await cloud.session.ask("GET", f"/servers/{uuid}/os-instance-actions")).json()["instanceActions"]
            stopped = break_off(cloud, step, when)
            await cloud.act(uuid, "migrate")
            key = {"metadata": {f"key{number}": "yes"}}

            async def written(key: Any = key) -> bool:
                answer = await cloud.session.ask("POST", f"/servers/{uuid}/metadata", key)
                return answer.status_code == 200

            await eventually(written, "metadata are written while it moves")
            server = await cloud.calm(uuid, "VERIFY_RESIZE")
            assert stopped, f"the way does not lead over {step} {when}"
            assert cloud.host_of(server) == f"{away}-host1"
            assert await cell_of(cloud, uuid) == away
            assert await content(cloud, uuid) == CONTENT
            servers = (await cloud.session.ask("GET", "/servers/detail?all_tenants=1")).json()["servers"]
            assert [one["id"] for one in servers] == [uuid]
            after = (await cloud.session.ask("GET", f"/servers/{uuid}/os-instance-actions")).json()["instanceActions"]
            assert [one["request_id"] for one in after[1:]] == [one["request_id"] for one in before]
            assert (await cloud.events(uuid))[-4:] == [
                ("cold_migrate", "Success"),
                ("compute_prep_resize", "Success"),
                ("compute_resize_instance", "Success"),
                ("compute_finish_resize", "Success"),
            ]
            assert (await moved(cloud, uuid))[-1] == ("finished", f"{home}-host1", f"{away}-host1")
            stopped = break_off(cloud, "fold", "before" if number % 2 else "after")
            assert await cloud.ask(uuid, "confirmResize") == 204
            await cloud.calm(uuid, "ACTIVE")
            await rests(cloud, uuid, **{home: State.MOVED, away: State.ACTIVE})
            await leaves_nothing_on(cloud, f"{home}-host1")
            home = away
        server = await cloud.server(uuid)
        assert set(server["metadata"]) == {f"key{number}" for number in range(len(FORTH))}
        assert {one[0] for one in await moved(cloud, uuid)} == {"confirmed"}
        assert len(await moved(cloud, uuid)) == len(FORTH)
        shown = (await cloud.session.ask("GET", f"/os-server-groups/{made['id']}", version="2.64")).json()
        assert shown["server_group"]["members"] == [uuid]
        await clean(cloud)
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await cloud.calm(uuid, "")
        await nothing_left(cloud)
        await clean(cloud)


async def test_the_create_of_a_server_went_well_whatever_was_done_to_it_later(tmp_path: Path) -> None:
    """Also where its attempt was undone since, in another cell."""
    async with two_cells(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        built = (await cloud.server(uuid))["OS-SRV-USG:launched_at"]
        await cloud.act(uuid, "rebuild", {"imageRef": (await cloud.server(uuid))["image"]["id"]})
        await cloud.calm(uuid, "ACTIVE")
        await only_in(cloud, "cell2")
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert await cloud.ask(uuid, "confirmResize") == 204
        await rests(cloud, uuid, cell1=State.MOVED, cell2=State.ACTIVE)
        await leaves_nothing_on(cloud, "cell1-host1")
        actions = f"/servers/{uuid}/os-instance-actions"
        listed = (await cloud.session.ask("GET", actions, version="2.84")).json()["instanceActions"]
        assert [one["action"] for one in listed] == ["confirmResize", "migrate", "rebuild", "create"]
        shown = (await cloud.session.ask("GET", f"{actions}/{listed[-1]['request_id']}", version="2.84")).json()
        [event] = shown["instanceAction"]["events"]
        assert (event["host"], event["result"], event["details"]) == ("cell1-host1", "Success", None)
        assert event["finish_time"][:19] == shown["instanceAction"]["updated_at"][:19] == built[:19]
        cells = cloud.cloud.plane.databases.cells
        here = await cells["cell2"].read(partial(attempts_in_cell.history, instance=uuid))
        left = await cells["cell2"].read(partial(moves.cells_left, uuid=uuid))
        known = {cell: cells[one.name] for cell, one in cloud.cloud.plane.cells.items() if one.name in cells}
        everywhere = await with_earlier(known, here, left, uuid, within=5.0)
        assert [(one.host, one.role) for one in everywhere] == [
            ("cell1-host1", "build"),
            ("cell1-host1", "move_target"),
            ("cell2-host1", "move_target"),
        ]


async def test_a_resize_comes_back_whatever_breaks_off_on_the_way(tmp_path: Path) -> None:
    async with two_cells(tmp_path) as cloud:
        await only_in(cloud, "cell1", "cell2")
        flavor = await big(cloud)
        uuid = await cloud.create()
        cloud.write(cloud.host_of(await cloud.server(uuid)), uuid)
        home = await cell_of(cloud, uuid)
        away = "cell2" if home == "cell1" else "cell1"
        cores = (await cloud.session.ask("GET", "/limits")).json()["limits"]["absolute"]["totalCoresUsed"]
        attempt = 1
        for step, when in BACK:
            cloud.cloud.plane.steps.crash_hook = None
            await cloud.act(uuid, "resize", {"flavorRef": flavor})
            await cloud.calm(uuid, "VERIFY_RESIZE")
            assert await content(cloud, uuid) == CONTENT
            await used(cloud, 1, 2)
            await rests(cloud, uuid, **{home: State.AWAY, away: State.RESIZED})
            [guest] = await cloud.guests()
            cloud.disks(f"{away}-host1").path(uuid, guest.attempt).write_bytes(b"given up by the revert")
            stopped = break_off(cloud, step, when)
            await cloud.act(uuid, "revertResize")
            server = await cloud.calm(uuid, "ACTIVE")
            await rests(cloud, uuid, **{home: State.ACTIVE, away: State.MOVED})
            assert stopped, f"the way does not lead over {step} {when}"
            assert cloud.host_of(server) == f"{home}-host1"
            assert server["flavor"]["id"] == "1"
            [guest] = await cloud.guests()
            assert guest.attempt > attempt
            attempt = guest.attempt
            assert await content(cloud, uuid) == CONTENT
            await used(cloud, 1, cores)
            await leaves_nothing_on(cloud, f"{away}-host1")
            assert (await moved(cloud, uuid))[-1] == ("reverted", f"{home}-host1", f"{away}-host1")
        cloud.cloud.plane.steps.crash_hook = None
        await cloud.act(uuid, "resize", {"flavorRef": flavor})
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert await cloud.ask(uuid, "confirmResize") == 204
        server = await cloud.calm(uuid, "ACTIVE")
        assert server["flavor"]["id"] == flavor
        await used(cloud, 1, 2)
        await clean(cloud)
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await cloud.calm(uuid, "")
        await nothing_left(cloud)
        await used(cloud, 0, 0)


@pytest.mark.parametrize("back", [False, True], ids=["forth", "back"])
async def test_a_delete_on_the_way_leaves_nothing(tmp_path: Path, back: bool) -> None:
    async with two_cells(tmp_path) as cloud:
        await only_in(cloud, "cell1", "cell2")
        flavor = await big(cloud)
        for step, when in BACK[:-2] if back else FORTH:
            uuid = await cloud.create()
            if back:
                await cloud.act(uuid, "resize", {"flavorRef": flavor})
                await cloud.calm(uuid, "VERIFY_RESIZE")
                assert len(set(await states(cloud, uuid))) == 2
            deleted: list[int] = []

            async def delete(
                point: CrashPoint, step: str = step, when: str = when, uuid: str = uuid, deleted: list[int] = deleted
            ) -> None:
                if point.step == step and point.when == when and not deleted:
                    deleted.append((await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code)

            cloud.cloud.plane.steps.crash_hook = delete
            await cloud.act(uuid, "revertResize" if back else "resize", None if back else {"flavorRef": flavor})
            await cloud.calm(uuid, "")
            assert deleted == [204], f"the way does not lead over {step} {when}"
            cloud.cloud.plane.steps.crash_hook = None
            await nothing_left(cloud)
        await clean(cloud)
        await used(cloud, 0, 0)


async def test_what_rests_is_deleted_in_both_cells(tmp_path: Path) -> None:
    async with two_cells(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell1", "cell2")
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        await clean(cloud)
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await cloud.calm(uuid, "")
        await nothing_left(cloud)
        await clean(cloud)


FAILS = [
    FakeFailure(operation="receive", server="transfer", host="cell2-*", error="NoSpaceLeft"),
    FakeFailure(operation="put_aside", server="put-aside", error="NoSpaceLeft"),
    FakeFailure(operation="take_up", server="take-up", host="cell2-*", times=2, error="SpawnFailed"),
]
"""By the name of a server, what fails of its move."""


async def test_a_failure_before_it_is_handed_over_leaves_it_as_it_was(tmp_path: Path) -> None:
    async with two_cells(tmp_path, *FAILS) as cloud:
        for name in ("transfer", "put-aside"):
            await only_in(cloud, "cell1")
            uuid = await cloud.create(name)
            cloud.write("cell1-host1", uuid)
            await only_in(cloud, "cell1", "cell2")
            await cloud.act(uuid, "migrate")
            server = await cloud.calm(uuid, "ACTIVE")
            assert cloud.host_of(server) == "cell1-host1"
            assert await cell_of(cloud, uuid) == "cell1"
            assert await content(cloud, uuid) == CONTENT
            await rests(cloud, uuid, cell1=State.ACTIVE, cell2=State.MOVED)
            await leaves_nothing_on(cloud, "cell2-host1")
            assert [one[0] for one in await moved(cloud, uuid)] == ["error"]
            assert ("cold_migrate", "Error") in await cloud.events(uuid)
            await clean(cloud)
            assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
            await cloud.calm(uuid, "")
            await nothing_left(cloud)


async def test_a_failure_after_it_was_handed_over_is_tried_again(tmp_path: Path) -> None:
    """It is ERROR with both attempts kept until its host has taken it up."""
    async with two_cells(tmp_path, *FAILS) as cloud:
        uuid = await cloud.create("take-up")
        cloud.write("cell1-host1", uuid)
        await only_in(cloud, "cell1", "cell2")
        await cloud.act(uuid, "migrate", {"host": "cell2-host1"})

        async def is_error() -> bool:
            return bool((await cloud.server(uuid))["status"] == "ERROR")

        await eventually(is_error, "the server is ERROR")
        assert await cell_of(cloud, uuid) == "cell2"
        assert cloud.disks("cell1-host1").labels()
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert await content(cloud, uuid) == CONTENT
        await cloud.act(uuid, "revertResize")
        await cloud.calm(uuid, "ACTIVE")
        assert await content(cloud, uuid) == CONTENT
        await clean(cloud)


async def test_it_stays_where_no_other_cell_has_room_or_may_have_it(tmp_path: Path) -> None:
    """Without room, without a cell that knows how, without leave: the server is as it was, and its action says why."""
    async with two_cells(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "ACTIVE")
        row = await cloud.row(uuid)
        assert row.fault.message.startswith("No valid host")
        assert "In other cells: No valid host" in row.fault.message

        await only_in(cloud, "cell1", "cell2")
        older = leases.insert().values(owner="older", role="cell_conductor", lapses_at=2**60)
        cells = cloud.cloud.plane.databases.cells
        await cells["cell2"].write(lambda connection: connection.execute(older))
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "ACTIVE")
        assert "no other cell can have a part in it" in (await cloud.row(uuid)).fault.message

        await cells["cell1"].write(lambda connection: connection.execute(older))
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "ACTIVE")
        assert "In other cells" not in (await cloud.row(uuid)).fault.message
        for cell in cells.values():
            if cell is not cells.get("cell0"):
                await cell.write(
                    lambda connection: connection.execute(leases.delete().where(leases.c.owner == "older"))
                )

        # As if all conductors above were older than those of the cell.
        await super_conductor(cloud)._between_cells.stop()
        await cloud.act(uuid, "migrate")
        await cloud.under(uuid, "resize_prep")
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await cloud.calm(uuid, "")
        await nothing_left(cloud)


async def test_it_stays_where_moves_between_cells_are_off(tmp_path: Path) -> None:
    async with two_cells(tmp_path, moves_between_cells=False) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "ACTIVE")
        assert await cell_of(cloud, uuid) == "cell1"
        assert "In other cells" not in (await cloud.row(uuid)).fault.message


async def test_hosts_that_see_no_common_exchange_are_found_out_before_a_guest_is_touched(tmp_path: Path) -> None:
    async with two_cells(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell1", "cell2")
        agent = cloud.cloud.plane.agents["cell2-host1"]
        assert agent._host is not None
        agent._host.exchange = Exchange(tmp_path / "another")
        before = cloud.powered(uuid)
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "ACTIVE")
        assert "host cell1-host1 does not see the exchange" in (await cloud.row(uuid)).fault.message
        assert cloud.powered(uuid) == before
        await rests(cloud, uuid, cell1=State.ACTIVE, cell2=State.MOVED)
        await clean(cloud)


async def test_a_cell_that_is_silent_is_not_waited_for(tmp_path: Path) -> None:
    """Its part of the move is let go once it is heard again."""
    async with two_cells(tmp_path, move_deadline=0.5, not_ready_deadline=1.0) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell1", "cell2")
        parts = super_conductor(cloud)._parts
        [silent] = [one for one in parts.cells.values() if one.cell.name == "cell2"]

        async def refuses(*_args: Any, **_more: Any) -> Any:
            raise StorageUnavailable("the cell is silent")

        async def hook(point: CrashPoint) -> None:
            if point.step == "moved" and point.when == "before" and point.cell == "cell2":
                object.__setattr__(silent, "read", refuses)
                object.__setattr__(silent, "write", refuses)

        cloud.cloud.plane.steps.crash_hook = hook
        await cloud.act(uuid, "migrate")

        async def is_given_up() -> bool:
            return "the other cell did not answer" in str(await cloud.events(uuid)) or (
                (await cloud.server(uuid))["OS-EXT-STS:task_state"] is None
            )

        await eventually(is_given_up, "the move comes to nothing")
        cloud.cloud.plane.steps.crash_hook = None
        await cloud.calm(uuid, "ACTIVE")
        assert await cell_of(cloud, uuid) == "cell1"
        assert await content(cloud, uuid) == CONTENT
        object.__delattr__(silent, "read")
        object.__delattr__(silent, "write")
        await rests(cloud, uuid, cell1=State.ACTIVE, cell2=State.MOVED)
        await leaves_nothing_on(cloud, "cell2-host1")
        await clean(cloud)


async def test_a_target_that_refuses_is_followed_by_another(tmp_path: Path) -> None:
    """Also where its own cell has told the other one of the next number before the next host is written there."""
    async with two_cells(tmp_path, hosts=2) as cloud:
        uuid = await with_disk(cloud)
        home = cloud.host_of(await cloud.server(uuid))
        await only_in(cloud, "cell2")
        story = BetweenCells(super_conductor(cloud)._parts)
        [there] = [one for one in story._parts.cells.values() if one.cell.name == "cell2"]
        chosen: list[str | None] = []

        async def hook(point: CrashPoint) -> None:
            if (point.step, point.when) != ("stage_move", "before"):
                return
            chosen.append(point.host)
            if len(chosen) == 1:
                (tmp_path / "no-directory").touch()
                agent = cloud.cloud.plane.agents[str(point.host)]
                assert agent._host is not None
                agent._host.exchange = Exchange(tmp_path / "no-directory")
            else:
                await story._run_in(there)

        cloud.cloud.plane.steps.crash_hook = hook
        await cloud.act(uuid, "migrate")
        server = await cloud.calm(uuid, "VERIFY_RESIZE")
        assert len(chosen) == len(set(chosen)) == 2
        assert cloud.host_of(server) == chosen[1]
        assert await content(cloud, uuid) == CONTENT
        await leaves_nothing_on(cloud, str(chosen[0]))
        assert (await moved(cloud, uuid))[-1] == ("finished", home, chosen[1])
        await clean(cloud)


async def test_a_move_that_waits_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever waits for the other cell is looked at, also what comes after as many as are read at once."""
    monkeypatch.setattr("skep.super_conductor.between_cells.BATCH", 1)
    monkeypatch.setattr("skep.super_conductor.between_cells.AWAITED_SECONDS", 0.0)
    hangs = FakeFailure(operation="receive", hangs=True)
    async with two_cells(tmp_path, hangs) as cloud:
        uuids = [await cloud.create(), await cloud.create("two")]
        await only_in(cloud, "cell2")
        for uuid in uuids:
            await cloud.act(uuid, "migrate")
        waiting: list[InstanceUuid] = []

        async def both_wait() -> bool:
            found = await cloud.cell.read(partial(between_cells.awaiting, since=2**60, after="", limit=2))
            waiting[:] = [one.move.instance for one in found if one.move.step == "transfer"]
            return len(waiting) == 2

        await eventually(both_wait, "both wait for their targets")
        lost = instances.update().where(instances.c.uuid == waiting[1]).values(state=State.MOVED.value)
        await cloud.cloud.plane.databases.cells["cell2"].write(lambda connection: connection.execute(lost))
        await cloud.calm(waiting[1], "ACTIVE")
        assert "The other cell has nothing of the move any more" in (await cloud.row(waiting[1])).fault.message
        assert (await cloud.server(waiting[0]))["OS-EXT-STS:task_state"] == "resize_migrating"
        release(cloud)


AT_ONCE: dict[str, Any] = {"fence_grace_seconds": 0.0, "move_deadline": 2.0}
"""Fences take effect, and silent hosts are not waited for long."""


async def is_fenced(cloud: AllInOneCloud, host: str) -> None:
    """Let the agent of a host end, and have it fenced; return when all that it had is given up."""
    await cloud.plane.agents.pop(host).stop()
    name = host.split("-", maxsplit=1)[0]
    [cell] = [one for one in cloud.plane.cells.values() if one.name == name]
    database = cloud.plane.databases.cells[name]
    [node] = [one.node for one in await database.read(agents.list_all) if one.host == host]
    now = cloud.clock.now()
    assert await database.write(partial(fences.mark, node=node, now=now, due_at=now))
    await cloud.plane.transport.cast(cell_conductor(cell.uuid), InstancesChanged())
    kept = sa.select(attempts.c.attempt).where(attempts.c.host == host, attempts.c.open)

    async def given_up() -> bool:
        return await database.read(lambda connection: connection.execute(kept).first()) is None

    await eventually(given_up, f"nothing of {host} is waited for")


def at_point(cloud: Shelving, step: str, when: str, then: Callable[[], Awaitable[None]]) -> list[CrashPoint]:
    """Do something the first time that a super conductor comes to a point; return where it was."""
    came: list[CrashPoint] = []

    async def hook(point: CrashPoint) -> None:
        if (point.step, point.when) == (step, when) and not came:
            came.append(point)
            await then()

    cloud.cloud.plane.steps.crash_hook = hook
    return came


async def in_error(cloud: Shelving, uuid: InstanceUuid) -> dict[str, Any]:
    """Wait until a server is ERROR and nothing is done to it."""

    async def probe() -> dict[str, Any] | None:
        found = await cloud.server(uuid)
        return found if (found["status"], found["OS-EXT-STS:task_state"]) == ("ERROR", None) else None

    found = await eventually(probe, "the server is ERROR")
    assert found is not None
    return found


async def test_a_source_that_is_lost_while_nobody_has_the_server_does_not_hold_it_up(tmp_path: Path) -> None:
    """The target has all of it already."""
    async with two_cells(tmp_path, **AT_ONCE) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        came = at_point(cloud, "land", "before", partial(is_fenced, cloud.cloud, "cell1-host1"))
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert came
        assert cloud.host_of(await cloud.server(uuid)) == "cell2-host1"
        labels = cloud.disks("cell2-host1").labels()
        assert len(labels) == 1
        await cloud.act(uuid, "revertResize")
        server = await cloud.calm(uuid, "VERIFY_RESIZE")
        assert cloud.host_of(server) == "cell2-host1"
        assert cloud.disks("cell2-host1").labels() == labels
        assert await cloud.ask(uuid, "confirmResize") == 204
        await cloud.calm(uuid, "ACTIVE")
        await rests(cloud, uuid, cell1=State.MOVED, cell2=State.ACTIVE)
        assert (await moved(cloud, uuid))[-1][0] == "confirmed"


async def test_a_target_that_is_lost_before_it_has_the_server_gets_it_not(tmp_path: Path) -> None:
    async with two_cells(tmp_path, **AT_ONCE) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        came = at_point(cloud, "hand_over", "before", partial(is_fenced, cloud.cloud, "cell2-host1"))
        await cloud.act(uuid, "migrate")
        server = await cloud.calm(uuid, "ACTIVE")
        assert came
        assert cloud.host_of(server) == "cell1-host1"
        assert await content(cloud, uuid) == CONTENT
        assert "is closed or fenced" in (await cloud.row(uuid)).fault.message
        await rests(cloud, uuid, cell1=State.ACTIVE, cell2=State.MOVED)


@pytest.mark.parametrize("back", [False, True], ids=["forth", "back"])
async def test_a_host_that_is_lost_once_its_cell_has_the_server_leaves_the_other_what_it_has(
    tmp_path: Path, back: bool
) -> None:
    """The server is ERROR, its disks stay where they were until it is deleted."""
    async with two_cells(tmp_path, **AT_ONCE) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        lost, kept = ("cell1-host1", "cell2-host1") if back else ("cell2-host1", "cell1-host1")
        if back:
            await cloud.act(uuid, "migrate")
            await cloud.calm(uuid, "VERIFY_RESIZE")
        came = at_point(cloud, "land", "before", partial(is_fenced, cloud.cloud, lost))
        await cloud.act(uuid, "revertResize" if back else "migrate")
        server = await in_error(cloud, uuid)
        assert came
        assert cloud.host_of(server) == lost
        assert "was fenced" in server["fault"]["message"]
        await rests(cloud, uuid, **{kept.split("-")[0]: State.AWAY, lost.split("-")[0]: State.ERROR})
        for _ in range(3):
            await BetweenCells(super_conductor(cloud)._parts).run()
        assert cloud.disks(kept).labels()
        assert await cell_of(cloud, uuid) == lost.split("-")[0]
        cloud.cloud.plane.steps.crash_hook = None
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await cloud.calm(uuid, "")
        await leaves_nothing_on(cloud, kept)


@pytest.mark.parametrize("closed", ["target", "both"])
async def test_a_server_that_nobody_takes_is_lost_only_where_its_host_is(tmp_path: Path, closed: str) -> None:
    """The mapping cannot follow, and the host that has put the guest aside may be lost as well."""
    async with two_cells(tmp_path, **AT_ONCE) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        lost: list[str] = []

        async def freeze_then_lose() -> None:
            cell = cloud.cloud.plane.databases.cells["cell1"]
            part = await cell.read(partial(between_cells.part, instance=uuid))
            assert part is not None
            known, now = part.move, cloud.cloud.clock.now()
            freezing = partial(hand_overs.freeze, uuid=known.uuid, turn=known.turn, now=now)
            assert await cell.write(freezing) is not None
            if closed == "both":
                await is_fenced(cloud.cloud, "cell1-host1")
            await is_fenced(cloud.cloud, "cell2-host1")
            lost.append("cell2-host1")

        at_point(cloud, "hand_over", "before", freeze_then_lose)
        await cloud.act(uuid, "migrate")
        if closed == "target":
            await cloud.calm(uuid, "ACTIVE")
            assert await content(cloud, uuid) == CONTENT
        else:
            server = await in_error(cloud, uuid)
            assert cloud.host_of(server) == "cell1-host1"
            assert "was fenced" in server["fault"]["message"]
            await rests(cloud, uuid, cell1=State.ERROR, cell2=State.AWAY)
        assert lost
        assert await cell_of(cloud, uuid) == "cell1"


def api(cloud: Shelving) -> Database:
    return cloud.cloud.plane.databases.api


@pytest.mark.parametrize("landed", [False, True], ids=["before it landed", "after it landed"])
async def test_a_mapping_that_went_back_in_time_loses_no_server(tmp_path: Path, landed: bool) -> None:
    """The API database is restored to a time before the server was handed over."""
    async with two_cells(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        [home] = [uuid for uuid, cell in cloud.cloud.plane.cells.items() if cell.name == "cell1"]

        async def goes_back() -> None:
            back = mappings.update().where(mappings.c.instance == uuid).values(cell=home, attempt=1)
            await api(cloud).write(lambda connection: connection.execute(back))
            now = cloud.cloud.clock.now()
            await api(cloud).write(lambda connection: recovery.begin(connection, None, "restored", now))

        came = [] if landed else at_point(cloud, "land", "before", goes_back)
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        if landed:
            await goes_back()
        assert landed or came

        async def is_over() -> bool:
            return await api(cloud).read(recovery.under_way) is None

        await eventually(is_over, "the database has recovered")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert await cell_of(cloud, uuid) == "cell2"
        assert await content(cloud, uuid) == CONTENT
        assert await cloud.ask(uuid, "confirmResize") == 204
        await cloud.calm(uuid, "ACTIVE")
        await rests(cloud, uuid, cell1=State.MOVED, cell2=State.ACTIVE)
        await clean(cloud)


@pytest.mark.parametrize("cell", ["cell1", "cell2"])
async def test_a_cell_that_went_back_in_time_loses_no_server(tmp_path: Path, cell: str) -> None:
    """The database of one of the two cells is restored to a time before the server was handed over."""
    async with two_cells(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        database = cloud.cloud.plane.databases.cells[cell]
        kept: list[list[dict[str, Any]]] = []
        tables = (instances, migrations, attempts)

        def rows(connection: sa.Connection) -> list[list[dict[str, Any]]]:
            return [[dict(one) for one in connection.execute(sa.select(table)).mappings()] for table in tables]

        async def keep() -> None:
            kept.extend(await database.read(rows))

        def restore(connection: sa.Connection) -> None:
            for table, former in zip(tables, kept, strict=True):
                connection.execute(table.delete())
                if former:
                    connection.execute(table.insert(), former)
            cell_recovery.begin(connection, None, "restored", cloud.cloud.clock.now())

        came = at_point(cloud, "hand_over", "before", keep)
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert came
        await database.write(restore)

        async def is_over() -> bool:
            return await database.read(cell_recovery.under_way) is None

        await eventually(is_over, "the database has recovered")
        if cell == "cell1":
            await rests(cloud, uuid, cell1=State.AWAY, cell2=State.RESIZED)
            await cloud.act(uuid, "revertResize")
        server = await cloud.calm(uuid, "ACTIVE")
        assert cloud.host_of(server) == f"{cell}-host1"
        assert await content(cloud, uuid) == CONTENT
        other = "cell2" if cell == "cell1" else "cell1"
        await rests(cloud, uuid, **{cell: State.ACTIVE, other: State.MOVED})
        await leaves_nothing_on(cloud, f"{other}-host1")
        await clean(cloud)
