"""A cell goes back to before a move inside it, which is under way: what hosts keep of the server stays, and nobody
builds it anew."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.audit import doubts
from skep.contracts.cloud import Cloud
from skep.contracts.eventually import eventually
from skep.database.cell import recovery
from skep.database.cell.tables import attempts, instances, migrations
from skep.domain.instances import Instance, State
from skep.domain.recovery import Adopt, FoundGuest
from skep.telemetry.steps import CrashPoint
from tests.functional.going_back.story import remembered
from tests.functional.test_cold_moves import (
    CONTENT,
    cloud_for,
    disk_file,
    disks,
    move,
    only_attempt,
    server_with_disk,
    stopped_move,
)
from tests.support.going_back import copied, put_back


async def moved_since(root: Path, kind: str, step: str) -> tuple[Instance, Path]:
    """Begin a move that stops before a step of a host; return the server, and the cell's database of before."""
    async with cloud_for(root / "now", kind) as cloud:
        server = await server_with_disk(cloud)
        with copied(cloud.plane.databases, root / "copies") as copies:
            pass
        await stopped_move(cloud, server, kind, step, "before")
        await remembered(cloud)
    put_back(root / "now", {"cell1": copies["cell1"].files[-1]}, root / "back")
    return server, root / "back"


async def in_doubt(cloud: Cloud, before: Instance, phase: str) -> None:
    """Wait until the cell has recovered; the server is in doubt, and stands where it stood."""
    database = cloud.plane.databases.cells["cell1"]

    async def over() -> bool:
        left = await database.read(doubts.left)
        return await database.read(recovery.under_way) is None and any(one.evidence["guests"] for one in left)

    await eventually(over, "the cell has recovered, and a server is in doubt")
    [doubt] = await database.read(doubts.left)
    assert (doubt.kind, doubt.subject) == ("server_in_doubt", before.uuid)
    assert {(one["attempt"], one["phase"]) for one in doubt.evidence["guests"]} == {(1, phase), (2, "building")}
    server = await cloud.find(before.uuid)
    assert server is not None
    assert (server.state, server.attempt, server.host) == (State.ACTIVE, 1, before.host)
    assert disk_file(cloud, before, 1).read_bytes() == CONTENT
    assert [guest.attempt for guest in await cloud.guests()] == ([1] if phase == "whole" else [])


async def kept(cloud: Cloud, server: Instance) -> None:
    """Keep the guest, as an operator does; wait until nothing is left of the target."""
    database = cloud.plane.databases.cells["cell1"]
    [guest] = [one for one in (await database.read(guests_of(server))) if one.phase == "whole"]
    adopt = partial(recovery.adopt, uuid=server.uuid, wanted=Adopt(guest), now=cloud.clock.now())
    await database.write(adopt)
    await only_attempt(cloud, server)


async def undone(cloud: Cloud, server: Instance) -> None:
    """Undo the target, as an operator does; wait until nothing but the disks that are aside is left."""
    database = cloud.plane.databases.cells["cell1"]
    [target] = [one for one in (await database.read(guests_of(server))) if one.phase == "building"]
    await database.write(partial(recovery.want_undone, guest=target))

    async def probe() -> bool:
        left = {(one.attempt, one.phase) for one in await database.read(guests_of(server)) if one.phase != "none"}
        return left == {(1, "aside")} and disks(cloud) == 1

    await eventually(probe, "the target is undone alone")
    [doubt] = await database.read(doubts.left)
    assert doubt.kind == "server_in_doubt"


def guests_of(server: Instance) -> Callable[[sa.Connection], list[FoundGuest]]:
    return lambda connection: recovery.guests_of(connection, [server.uuid])[server.uuid]


@pytest.mark.parametrize(
    ("kind", "step", "phase"),
    [
        ("migrate", "move_transfer", "aside"),
        ("resize", "move_transfer", "aside"),
        ("resize_here", "move_transfer", "aside"),
        ("migrate", "move_put_aside", "whole"),
    ],
)
async def test_a_server_whose_move_is_lost_is_in_doubt(tmp_path: Path, kind: str, step: str, phase: str) -> None:
    before, back = await moved_since(tmp_path, kind, step)
    async with cloud_for(back, kind) as cloud:
        await in_doubt(cloud, before, phase)
        await (kept(cloud, before) if phase == "whole" else undone(cloud, before))
        assert disk_file(cloud, before, 1).read_bytes() == CONTENT


async def test_a_guest_that_is_put_aside_after_its_move_was_lost_is_in_doubt(tmp_path: Path) -> None:
    """Its host was told of the step before, and was allowed to take it."""
    async with cloud_for(tmp_path, "migrate") as cloud:
        server = await server_with_disk(cloud)
        database = cloud.plane.databases.cells["cell1"]
        kept: list[list[dict[str, Any]]] = []
        tables = (instances, migrations, attempts)

        def rows(connection: sa.Connection) -> list[list[dict[str, Any]]]:
            return [[dict(one) for one in connection.execute(sa.select(table)).mappings()] for table in tables]

        def restore(connection: sa.Connection) -> None:
            for table, former in zip(tables, kept, strict=True):
                connection.execute(table.delete())
                if former:
                    connection.execute(table.insert(), former)

        kept.extend(await database.read(rows))

        async def goes_back(point: CrashPoint) -> None:
            if (point.step, point.when) == ("move_put_aside", "before"):
                await database.write(restore)

        cloud.plane.steps.crash_hook = goes_back
        await move(cloud, server)
        await in_doubt(cloud, server, "aside")
