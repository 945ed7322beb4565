"""A cell that a build has left goes back to before that: the server stays where it is, and the cell gives it up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.compute.drivers.base import DriverError
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.database.cell.tables import attempts, instances, recovering_instances
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from tests.functional.going_back.story import CONFIG, labels, remembered
from tests.support.going_back import Copies, copied, put_back

STATES = ("scheduled", "building", "spawning", "rescheduling", "handed_back", "leaving")


@dataclass(frozen=True)
class Moved:
    """A server that no host of its first cell could build."""

    root: Path
    copies: Mapping[str, Copies]
    server: InstanceUuid
    cell: str
    """The one that it left."""
    guests: tuple[tuple[str, int], ...]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


async def move(root: Path) -> Moved:
    async with running_cloud(root / "now", CONFIG, cells=2, hosts=1) as cloud:
        tried: list[str] = []
        for name, driver in cloud.plane.drivers.items():
            spawn = driver.spawn

            async def once(*given: object, name: str = name, spawn: object = spawn) -> object:
                tried.append(name)
                if len(tried) == 1:
                    raise DriverError("InternalError", "the first guest fails")
                return await spawn(*given)  # type: ignore[operator]  # a test's own driver

            setattr(driver, "spawn", once)  # noqa: B010 - as above
        with copied(cloud.plane.databases, root / "copies") as copies:
            [server] = await cloud.create()
            [built] = await cloud.settled([server])
        assert built.state is State.ACTIVE
        guests = await labels(cloud)
        await remembered(cloud)
        left = tried[0].rpartition("-")[0]
        assert left != tried[1].rpartition("-")[0]
    return Moved(root / "now", copies, server, left, guests)


async def rows_here(cloud: Cloud, cell: str) -> tuple[set[str], int, int]:
    """Return the states of rows, how many attempts are open, and how many instances are held."""

    def unit(connection: sa.Connection) -> tuple[set[str], int, int]:
        states = set(connection.scalars(sa.select(instances.c.state)))
        still = connection.scalar(sa.select(sa.func.count()).select_from(attempts).where(attempts.c.open)) or 0
        held = connection.scalar(sa.select(sa.func.count()).select_from(recovering_instances)) or 0
        return states, still, held

    return await cloud.plane.databases.cells[cell].read(unit)


@pytest.mark.parametrize("state", STATES)
async def test_a_cell_that_was_left_gives_up_what_it_goes_back_to(moved: Moved, state: str, tmp_path: Path) -> None:
    copies = moved.copies[moved.cell]
    found = [file for file, said in zip(copies.files, copies.states, strict=True) if f"'{state}'" in said]
    put_back(moved.root, {moved.cell: found[-1]}, tmp_path / "back")
    async with running_cloud(tmp_path / "back", CONFIG, cells=2, hosts=1) as cloud:

        async def over() -> bool:
            return await rows_here(cloud, moved.cell) == ({"moved"}, 0, 0)

        await eventually(over, "the row is over, and nothing is left of it")
        assert await labels(cloud) == moved.guests
        [server] = await cloud.settled([moved.server])
        assert server.state is State.ACTIVE
