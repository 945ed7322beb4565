"""A database that is not that of the cell it is configured for: both are named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from skep.database.cell import builds, identity
from skep.database.engine import Database
from skep.database.opening import open_database
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured, StorageUnavailable
from skep.domain.ids import CellUuid, new_uuid
from skep.processes.installation import begin_cell, cell_named
from tests.support.rows import staged

EAST = Cell(uuid=CellUuid(new_uuid()), name="east")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database("east", tmp_path / "east.db", upgrade=True)
    yield opened
    await opened.close()


async def test_a_conductor_takes_its_own_cell_only(database: Database) -> None:
    with pytest.raises(StorageUnavailable, match="no cell is stored in the database yet"):
        await cell_named(database, "east")
    await database.write(partial(identity.claim, cell=EAST, now=1))
    assert await cell_named(database, "east") == EAST
    with pytest.raises(Misconfigured, match=f"for cell west, is that of cell east .{EAST.uuid}"):
        await cell_named(database, "west")


@pytest.mark.parametrize("has_servers", [False, True])
async def test_a_new_cell_does_not_begin_in_the_database_of_another(database: Database, has_servers: bool) -> None:
    await database.write(partial(identity.claim, cell=EAST, now=1))
    if has_servers:
        await database.write(partial(builds.stage, staged=[staged()], now=1))
    with pytest.raises(Misconfigured, match=f"is that of cell east .{EAST.uuid}., not of a new cell west"):
        await begin_cell(database, "west")
