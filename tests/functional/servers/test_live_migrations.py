"""What the API asks before a live migration, what it shows of one, and what it does to one that is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.api.routes import ROUTES
from skep.contracts.eventually import eventually
from skep.database.cell import cold_moves, live_moves, move_steps, server_migrations
from skep.database.cell.tables import migrations
from skep.domain.builds import Placed, failure
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.moves import ABORTED
from skep.domain.server_migrations import CopyFigures
from skep.messages.to_cell_conductor import InstancesChanged
from skep_lab.compute_api.servers import CELL1, OWNER, ServersUnderTest, assignment_on, servers_under_test
from tests.functional.servers.test_moves import ADMIN, MANAGER, NOW, built, register, status

MOVER = ("MoveStep", "RunAction")
ABLE = ("move", "live_migrate", "power", "pause")
ANY = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
OLD = {"os-migrateLive": {"host": None, "block_migration": False, "disk_over_commit": False}}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, routes=ROUTES) as opened:
        await register(opened, "host-1", MOVER, ABLE)
        await register(opened, "host-2", MOVER, ABLE)
        yield opened


async def ask(cloud: ServersUnderTest, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
    response = await cloud.ask(method, path, body, **more)
    if response.is_success:
        assert response.content == b""
        return response.status_code, ""
    (fault,) = response.json().values()
    return response.status_code, fault["message"]


async def act(cloud: ServersUnderTest, uuid: str, body: dict[str, Any], **more: Any) -> tuple[int, str]:
    return await ask(cloud, "POST", f"/servers/{uuid}/action", body, **more)


async def do(cloud: ServersUnderTest, unit: Callable[[sa.Connection], Any]) -> Any:
    return await cloud.services.cells[CELL1].write(unit)


async def number_of(cloud: ServersUnderTest, uuid: str) -> int:
    mine = sa.select(migrations.c.id).where(migrations.c.instance == uuid)
    return int(await do(cloud, lambda connection: connection.scalar(mine)))


def choose(connection: sa.Connection, host: str = "host-2") -> cold_moves.Move:
    """Choose a host for the migration that waits, as a conductor does."""
    [waiting] = cold_moves.take(connection, OWNER, NOW, 5)
    decision = Placed(node=assignment_on(host, CELL1, waiting.work.spec).node, host=host, cell=CELL1, epoch="e")
    assert cold_moves.placed(connection, waiting, decision, NOW)
    live_moves.begin_queued(connection, NOW, 1)
    return waiting.move


def take(connection: sa.Connection, *steps: str) -> None:
    """Take steps, as two hosts do."""
    for step in steps:
        known = cold_moves.move_of(connection.execute(sa.select(*cold_moves.COLUMNS)).one())
        attempt, host, _, _ = known.place()
        assert attempt is not None
        assert host is not None
        told = partial(move_steps.done, connection, known.uuid, step, attempt, host, PowerState.RUNNING, NOW)
        assert told(most_hosts=3, task_id=known.task_id or "")


def copies(connection: sa.Connection) -> None:
    """Bring the migration to where its guest is copied."""
    choose(connection)
    take(connection, "live_prepare")


def go_through(connection: sa.Connection) -> None:
    copies(connection)
    take(connection, "live_copy", "live_take_up")


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (34, ANY),
        (67, {"os-migrateLive": {"host": None, "block_migration": True, "force": False}}),
        (68, ANY),
        (104, {"os-migrateLive": {"host": None, "block_migration": "False"}}),
    ],
)
async def test_a_live_migration(cloud: ServersUnderTest, version: int, body: dict[str, Any]) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, body, token="manager", version=version) == (202, "")
    assert (await cloud.heard(InstancesChanged)).work == ("choices",)
    assert await status(cloud, uuid) == "MIGRATING"
    assert (await act(cloud, uuid, {"os-stop": None}))[0] == 409
    for other in ({"os-resetState": {"state": "error"}}, {"reboot": {"type": "HARD"}}, ANY):
        assert (await act(cloud, uuid, other, **ADMIN))[0] == 409
    await do(cloud, go_through)
    assert await status(cloud, uuid) == "ACTIVE"
    shown = (await cloud.good("GET", f"/servers/{uuid}", token="admin"))["server"]
    assert shown["OS-EXT-SRV-ATTR:host"] == "host-2"
    [listed] = (await cloud.good("GET", "/os-migrations", token="admin", version=104))["migrations"]
    assert (listed["migration_type"], listed["status"], "links" in listed) == ("live-migration", "completed", False)


@pytest.mark.parametrize(
    ("version", "inner"),
    [
        (1, {"host": None}),
        (1, {"host": None, "block_migration": "auto", "disk_over_commit": False}),
        (24, {"host": None, "block_migration": False}),
        (24, {"block_migration": False, "disk_over_commit": False}),
        (25, {"host": None, "block_migration": False, "disk_over_commit": False}),
        (25, {"host": None}),
        (29, {"host": None, "block_migration": "auto", "force": True}),
        (30, {"host": None, "block_migration": "never"}),
        (30, {"host": None, "block_migration": "auto", "force": "maybe"}),
        (67, {"host": "", "block_migration": "auto"}),
        (67, {"host": 7, "block_migration": "auto"}),
        (67, {"host": "a b", "block_migration": "auto"}),
        (67, {"host": "h" * 256, "block_migration": "auto"}),
        (68, {"host": None, "block_migration": "auto", "force": True}),
        (104, {"host": None, "block_migration": "auto", "more": 1}),
        (104, None),
        (104, []),
        (104, "host"),
    ],
)
async def test_bad_bodies_begin_nothing(cloud: ServersUnderTest, version: int, inner: Any) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, {"os-migrateLive": inner}, token="admin", version=version))[0] == 400
    assert await status(cloud, uuid) == "ACTIVE"


def named(host: str, **more: Any) -> dict[str, Any]:
    return {"os-migrateLive": {"host": host, "block_migration": "auto", **more}}


async def test_a_host_may_be_named_by_admins(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, named("host-1"), **MANAGER))[0] == 403
    assert await act(cloud, uuid, named("host-1"), **ADMIN) == (400, "The target host can't be the same one.")
    code, said = await act(cloud, uuid, named("nowhere"), **ADMIN)
    assert (code, "nowhere" in said) == (400, True)
    forced = {"os-migrateLive": {"host": None, "block_migration": "auto", "force": True}}
    assert (await act(cloud, uuid, forced, token="admin", version=30))[0] == 400
    assert await status(cloud, uuid) == "ACTIVE", "nothing was begun"


@pytest.mark.parametrize(
    ("version", "more", "forced"),
    [(34, {}, False), (34, {"force": False}, False), (34, {"force": True}, True), (104, {}, False)],
)
async def test_force_is_for_the_scheduler(
    cloud: ServersUnderTest, version: int, more: dict[str, Any], forced: bool
) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, named("host-2", **more), token="admin", version=version))[0] == 202
    found = await do(cloud, lambda connection: connection.execute(sa.select(*cold_moves.COLUMNS)).one())
    assert (found.wanted_host, found.forced) == ("host-2", forced)


async def test_roles_states_and_locks(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, ANY, version=104))[0] == 403
    assert (await act(cloud, uuid, ANY, token="other", version=104))[0] == 404
    await act(cloud, uuid, {"lock": None}, token="admin")
    assert (await act(cloud, uuid, ANY, **MANAGER))[0] == 409
    await act(cloud, uuid, {"unlock": None}, token="admin")
    waiting = await cloud.create()
    assert (await act(cloud, waiting, ANY, **ADMIN))[0] == 409


@pytest.mark.parametrize("cannot", ["agent", "driver"])
async def test_a_host_that_takes_part_in_no_live_migration(cloud: ServersUnderTest, cannot: str) -> None:
    uuid = await built(cloud)
    takes = ("RunAction",) if cannot == "agent" else MOVER
    await register(cloud, "host-1", takes, ("move",) if cannot == "driver" else ABLE)
    code, said = await act(cloud, uuid, ANY, **ADMIN)
    assert (code, "`live_migrate`" in said) == (409, True)
    assert await status(cloud, uuid) == "ACTIVE"


async def test_before_2_34_the_answer_waits_for_the_host(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    asking = asyncio.create_task(act(cloud, uuid, OLD, token="manager", version=24))
    await begun(cloud)
    await do(cloud, choose)
    assert not asking.done()
    await do(cloud, lambda connection: take(connection, "live_prepare"))
    assert await asking == (202, "")


async def test_before_2_34_no_host_is_a_bad_request(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    asking = asyncio.create_task(act(cloud, uuid, OLD, token="manager", version=24))
    await begun(cloud)

    def refuse(connection: sa.Connection) -> None:
        [waiting] = cold_moves.take(connection, OWNER, NOW, 5)
        assert cold_moves.no_host(connection, waiting.move, "No valid host was found.", NOW)

    await do(cloud, refuse)
    assert await asking == (400, "No valid host was found.")
    assert await status(cloud, uuid) == "ACTIVE"


async def begun(cloud: ServersUnderTest) -> None:
    async def probe() -> bool:
        return bool(await do(cloud, lambda connection: connection.execute(sa.select(migrations.c.id)).first()))

    await eventually(probe, "the migration has begun")


async def test_its_progress_is_shown(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await act(cloud, uuid, ANY, **ADMIN)
    assert (await cloud.good("GET", f"/servers/{uuid}/migrations", **ADMIN))["migrations"] == []

    def copied(connection: sa.Connection) -> None:
        copies(connection)
        [one] = server_migrations.live(connection, InstanceUuid(uuid))
        known = cold_moves.move_of(connection.execute(sa.select(*cold_moves.COLUMNS)).one())
        assert known.task_id is not None
        figures = {(one.instance, known.task_id): CopyFigures(8, 6, 2, 100, 75, 25)}
        live_moves.copied(connection, figures)

    await do(cloud, copied)
    number = await number_of(cloud, uuid)
    [one] = (await cloud.good("GET", f"/servers/{uuid}/migrations", **ADMIN))["migrations"]
    shown = (await cloud.good("GET", f"/servers/{uuid}/migrations/{number}", **ADMIN))["migration"]
    assert shown == one
    figures = [
        one[f"{kind}_{part}_bytes"] for kind in ("memory", "disk") for part in ("total", "processed", "remaining")
    ]
    assert figures == [8, 6, 2, 100, 75, 25]
    assert (one["status"], one["dest_compute"]) == ("running", "host-2")
    assert (await cloud.good("GET", f"/servers/{uuid}", **ADMIN))["server"]["progress"] == 75


async def test_a_guest_in_two_halves_has_one_end(cloud: ServersUnderTest) -> None:
    """It goes on on the target, which needs what is still on the source: nothing ends that early."""
    uuid = await built(cloud)
    await act(cloud, uuid, ANY, **ADMIN)

    def halved(connection: sa.Connection) -> None:
        copies(connection)
        known = cold_moves.move_of(connection.execute(sa.select(*cold_moves.COLUMNS)).one())
        assert known.task_id is not None
        figures = {(InstanceUuid(uuid), known.task_id): CopyFigures(8, 6, 2, halved=True)}
        live_moves.copied(connection, figures)
        assert live_moves.end_late(connection, NOW + 10**15, 1, "abort", 5) == []

    await do(cloud, halved)
    path = f"/servers/{uuid}/migrations"
    [one] = (await cloud.good("GET", path, **ADMIN))["migrations"]
    assert one["status"] == "running (post-copy)"
    for code, said in (
        await ask(cloud, "DELETE", f"{path}/{one['id']}", **MANAGER),
        await ask(cloud, "POST", f"{path}/{one['id']}/action", {"force_complete": None}, **MANAGER),
    ):
        assert (code, "running (post-copy)" in said) == (400, True)
    await do(cloud, lambda connection: take(connection, "live_copy", "live_take_up"))
    assert await status(cloud, uuid) == "ACTIVE"


async def test_an_abort_while_the_guest_is_copied(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    path = f"/servers/{uuid}/migrations"
    assert (await ask(cloud, "DELETE", f"{path}/1", **MANAGER))[0] == 409
    await act(cloud, uuid, ANY, **ADMIN)
    number = await number_of(cloud, uuid)
    code, said = await ask(cloud, "DELETE", f"{path}/{number}", **MANAGER)
    assert (code, "is accepted. Cannot abort" in said) == (400, True)
    await do(cloud, copies)
    for wrong in ("0", "99999", "9" * 40, "one", "-1"):
        assert (await ask(cloud, "DELETE", f"{path}/{wrong}", **MANAGER))[0] == 404
    assert (await ask(cloud, "DELETE", f"{path}/{number}", version=104))[0] == 403
    assert (await ask(cloud, "DELETE", f"{path}/{number}", token="manager", version=23))[0] == 404
    for version in (24, 104):
        assert await ask(cloud, "DELETE", f"{path}/{number}", token="manager", version=version) == (202, "")
    assert (await ask(cloud, "POST", f"{path}/{number}/action", {"force_complete": None}, **MANAGER))[0] == 400

    def end(connection: sa.Connection) -> None:
        known = cold_moves.move_of(connection.execute(sa.select(*cold_moves.COLUMNS)).one())
        assert known.wish == "abort"
        why = failure(ABORTED, "as wished")
        told = partial(move_steps.failed, connection, known.uuid, "live_copy", known.source_attempt)
        assert told(known.source_host, why, NOW, most_hosts=3, task_id=known.task_id or "")
        take(connection, "live_take_back")

    await do(cloud, end)
    assert await status(cloud, uuid) == "ACTIVE"
    [listed] = (await cloud.good("GET", "/os-migrations", **ADMIN))["migrations"]
    assert listed["status"] == "cancelled"
    assert (await ask(cloud, "DELETE", f"{path}/{number}", **MANAGER))[0] == 409
    actions = (await cloud.good("GET", f"/servers/{uuid}/os-instance-actions", **ADMIN))["instanceActions"]
    assert [one["action"] for one in actions].count("live_migration_cancel") == 2


@pytest.mark.parametrize(("version", "code"), [(24, 400), (64, 400), (65, 202)])
async def test_an_abort_before_the_copying(cloud: ServersUnderTest, version: int, code: int) -> None:
    uuid = await built(cloud)
    await act(cloud, uuid, ANY, **ADMIN)
    await do(cloud, choose)
    number = await number_of(cloud, uuid)
    path = f"/servers/{uuid}/migrations/{number}"
    assert (await ask(cloud, "DELETE", path, token="manager", version=version))[0] == code
    over = await do(cloud, partial(live_moves.cancel, now=NOW, limit=5))
    assert len(over) == (1 if code == 202 else 0)
    assert await status(cloud, uuid) == ("ACTIVE" if code == 202 else "MIGRATING")


@pytest.mark.parametrize(("version", "code"), [(64, 400), (65, 202)])
async def test_a_migration_that_waits_for_its_turn_is_queued_and_may_be_aborted(
    cloud: ServersUnderTest, version: int, code: int
) -> None:
    first, second = await built(cloud), await built(cloud)
    for uuid in (first, second):
        await act(cloud, uuid, ANY, **ADMIN)
        await do(cloud, choose)

    async def statuses() -> list[str]:
        shown = [(await cloud.good("GET", f"/servers/{uuid}/migrations", **ADMIN))["migrations"] for uuid in both]
        return [one[0]["status"] if one else "" for one in shown]

    both = (first, second)
    assert await statuses() == ["preparing", "queued"]
    path = f"/servers/{second}/migrations/{await number_of(cloud, second)}"
    assert (await ask(cloud, "POST", f"{path}/action", {"force_complete": None}, **MANAGER))[0] == 400
    assert (await ask(cloud, "DELETE", path, token="manager", version=version))[0] == code
    await do(cloud, partial(live_moves.cancel, now=NOW, limit=5))
    assert await statuses() == ["preparing", "queued" if code == 400 else ""]
    [listed, _] = (await cloud.good("GET", "/os-migrations", **ADMIN))["migrations"]
    assert listed["status"] == ("queued" if code == 400 else "cancelled")
    assert await status(cloud, second) == ("MIGRATING" if code == 400 else "ACTIVE")


async def test_a_forced_end(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    force = {"force_complete": None}
    await act(cloud, uuid, ANY, **ADMIN)
    number = await number_of(cloud, uuid)
    path = f"/servers/{uuid}/migrations/{number}/action"
    assert (await ask(cloud, "POST", path, force, **MANAGER))[0] == 400
    await do(cloud, copies)
    assert (await ask(cloud, "POST", f"/servers/{uuid}/migrations/999/action", force, **MANAGER))[0] == 400
    bodies: list[dict[str, Any] | None] = [
        {"force_complete": {}},
        {"force_complete": None, "more": 1},
        {"fly": None},
        {},
        None,
    ]
    for bad in bodies:
        assert (await ask(cloud, "POST", path, bad, **MANAGER))[0] == 400, bad
    assert (await ask(cloud, "POST", path, force, token="manager", version=21))[0] == 404
    assert (await ask(cloud, "POST", path, force, version=104))[0] == 403
    await act(cloud, uuid, {"lock": None}, token="admin")
    assert (await ask(cloud, "POST", path, force, **MANAGER))[0] == 409
    await act(cloud, uuid, {"unlock": None}, token="admin")
    for version in (22, 104):
        assert await ask(cloud, "POST", path, force, token="manager", version=version) == (202, "")
    await do(cloud, lambda connection: take(connection, "live_copy", "live_take_up"))
    assert await status(cloud, uuid) == "ACTIVE"
