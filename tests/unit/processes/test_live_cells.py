"""The cells of a process as the rows have them: new, gone, moved, away, not theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.config.sections import Config, StateSettings, TransportSettings
from skep.contracts.eventually import eventually
from skep.database.api import cells as cell_rows
from skep.database.api.cells import Addresses
from skep.database.cell import identity
from skep.database.engine import Database
from skep.database.opening import open_database
from skep.domain.cells import Cell
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import CellUuid, new_uuid
from skep.processes import addresses
from skep.processes.cells import LiveCells, TransportMaker
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory
from skep.processes.wiring import ProcessTransport
from skep.transport.memory import MemoryTransport


class Installation:
    """An API database with rows of cells, and what follows them."""

    def __init__(self, root: Path, api: Database) -> None:
        self.directory = StateDirectory(root)
        self.directory.open()
        self.config = Config(state=StateSettings(directory=str(root)))
        self.places = Places(self.config, self.directory)
        self.api = api
        self.live = self.follower()

    def follower(self, make_transport: TransportMaker = lambda _cell, _url: None) -> LiveCells:
        """Return what follows the rows, with transports of cells' own."""
        shared = MemoryTransport(TransportSettings())
        return LiveCells(self.api, self.places, self.directory, shared, make_transport=make_transport)

    async def make(self, name: str) -> Cell:
        """Make the database of a cell and its row."""
        cell = Cell(uuid=CellUuid(new_uuid()), name=name)
        await (await open_database(name, self.places.of(name), upgrade=True)).close()
        await self.api.write(partial(cell_rows.add, cell=cell, now=1))
        return cell

    async def reached(self, cell: Cell) -> None:
        async def is_reached() -> bool:
            return self.live.trouble(cell.uuid) is None

        await eventually(is_reached, f"{cell.name} is reached")


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    (tmp_path / "db").mkdir()
    api = await open_database("api", tmp_path / "db/api.db", upgrade=True)
    made = Installation(tmp_path, api)
    yield made
    await made.live.close()
    await api.close()
    made.directory.close()


async def ping(installation: Installation, cell: Cell) -> int:
    return await installation.live.databases[cell.uuid].read(lambda c: c.execute(sa.select(1)).scalar_one())


async def test_cells_come_and_go_under_a_loop_that_walks_through_them(installation: Installation) -> None:
    first, second = await installation.make("a"), await installation.make("b")
    await installation.live.start()
    assert [cell.name for cell in installation.live.names.values()] == ["a", "b"]
    assert installation.live.accesses[first.uuid].transport is not None
    seen = []
    walk = iter(installation.live.accesses.items())
    seen.append(next(walk)[1].cell.name)
    third = await installation.make("c")
    await installation.api.write(partial(cell_rows.remove, uuid=second.uuid))
    await installation.live.refresh()
    seen += [access.cell.name for _uuid, access in walk]
    assert seen == ["a", "b"]
    assert list(installation.live.by_name) == ["a", "c"]
    await installation.reached(third)
    assert await ping(installation, third) == 1
    assert installation.live.databases.get(second.uuid) is None
    assert await installation.live.databases[third.uuid].read(identity.read) == third


async def test_what_others_changed_is_seen_when_nudged(installation: Installation) -> None:
    cell = await installation.make("a")
    await installation.live.start()
    kept = installation.live.databases[cell.uuid]
    await installation.api.write(partial(cell_rows.set_disabled, uuid=cell.uuid, disabled=True))
    installation.live.nudge()

    async def is_disabled() -> bool:
        return installation.live.accesses[cell.uuid].cell.disabled

    await eventually(is_disabled, "the change is seen")
    assert installation.live.databases[cell.uuid] is kept, "nothing is opened anew for it"


async def test_a_missing_file_is_not_made_and_joins_when_it_is_back(installation: Installation, tmp_path: Path) -> None:
    cell = await installation.make("a")
    file = tmp_path / "db/a.db"
    file.rename(tmp_path / "away.db")
    await installation.live.start()
    assert not installation.live.databases[cell.uuid].answers
    with pytest.raises(StorageUnavailable, match=r"cell a cannot be reached: its database .*a\.db is missing"):
        await ping(installation, cell)
    with pytest.raises(StorageUnavailable, match="cell a cannot be reached"):
        await installation.live.accesses[cell.uuid].write(lambda _connection: None)
    assert not file.exists()
    (tmp_path / "away.db").rename(file)
    await installation.reached(cell)
    assert await ping(installation, cell) == 1


async def test_the_database_of_another_cell_is_not_used(installation: Installation, tmp_path: Path) -> None:
    first = await installation.make("a")
    await installation.live.start()
    second = Cell(uuid=CellUuid(new_uuid()), name="b")
    where = addresses.to_store(installation.directory, f"sqlite:///{tmp_path / 'db/a.db'}", "")
    await installation.api.write(partial(cell_rows.add, cell=second, now=1, addresses=where))
    await installation.live.refresh()
    await installation.live.settle(0.5)
    with pytest.raises(StorageUnavailable, match="is that of cell a "):
        await ping(installation, second)
    assert await ping(installation, first) == 1


async def test_a_cell_is_reached_all_the_while_its_sign_in_changes(installation: Installation, tmp_path: Path) -> None:
    """The database stays the same one: the entry before goes on until the next one is open."""
    cell = await installation.make("a")
    await installation.live.start()
    await installation.reached(cell)
    kept = installation.live.databases[cell.uuid]
    for number in range(2):
        url = f"sqlite:///{tmp_path / 'db/a.db'}"
        where = addresses.to_store(installation.directory, url, f"nats://u:{number}@h")
        await installation.api.write(partial(cell_rows.move, uuid=cell.uuid, addresses=where))
        await installation.live.refresh()
        assert installation.live.trouble(cell.uuid) is None
        assert await ping(installation, cell) == 1

    async def is_followed() -> bool:
        assert await ping(installation, cell) == 1
        return installation.live.databases[cell.uuid] is not kept

    await eventually(is_followed, "the next entry takes its place")
    await installation.reached(cell)
    elsewhere = addresses.to_store(installation.directory, f"sqlite:///{tmp_path / 'db/other.db'}", "")
    await installation.api.write(partial(cell_rows.move, uuid=cell.uuid, addresses=elsewhere))
    await installation.live.refresh()
    with pytest.raises(StorageUnavailable, match="cell a cannot be reached"):
        await ping(installation, cell)


async def test_an_address_that_cannot_be_read_is_said(installation: Installation, tmp_path: Path) -> None:
    url = "postgresql://skep:secret@db/cell"
    where = addresses.to_store(installation.directory, url, "nats://u:p@h")
    assert (where.database_url, where.transport_url) == ("postgresql://skep:********@db/cell", "nats://u:********@h")
    assert addresses.database_url(installation.directory, where) == url
    assert addresses.to_store(installation.directory, "postgresql://skep@db/cell", "") == Addresses(
        database_url="postgresql://skep@db/cell"
    )
    (tmp_path / "keys/secrets.key").unlink()
    cell = Cell(uuid=CellUuid(new_uuid()), name="c")
    await installation.api.write(partial(cell_rows.add, cell=cell, now=1, addresses=where))
    await installation.live.start()
    with pytest.raises(StorageUnavailable, match=r"the password in .*\*@db/cell cannot be read with the key in"):
        await ping(installation, cell)
    await installation.api.write(partial(cell_rows.move, uuid=cell.uuid, addresses=cell_rows.NOWHERE))
    await (await open_database("c", installation.places.of("c"), upgrade=True)).close()
    await installation.live.refresh()
    await installation.reached(cell)


async def test_a_cell_that_cannot_be_entered_leaves_the_others_alone(installation: Installation) -> None:
    """Whatever is wrong with it, the process starts, the others are followed, and it joins once nothing is wrong."""
    failing = {"b"}

    def make(cell: Cell, _url: str) -> ProcessTransport | None:
        if cell.name in failing:
            raise TypeError("no transport")
        return None

    installation.live = live = installation.follower(make)
    first, second = await installation.make("a"), await installation.make("b")
    await live.start()
    assert await ping(installation, first) == 1
    with pytest.raises(StorageUnavailable, match="cell b cannot be reached: it failed with TypeError"):
        await ping(installation, second)
    third = await installation.make("c")
    await live.refresh()
    await installation.reached(third)
    broken = live.databases[second.uuid]
    await live.refresh()
    assert live.databases[second.uuid] is broken, "it is tried again, and nothing is left for it"
    failing.clear()
    await live.refresh()
    await installation.reached(second)
    assert await ping(installation, second) == 1
    # What fails for a cell that is reached leaves it as it is.
    failing.add("a")
    kept = live.databases[first.uuid]
    where = addresses.to_store(installation.directory, "", "nats://own:4222")
    await installation.api.write(partial(cell_rows.move, uuid=first.uuid, addresses=where))
    await live.refresh()
    assert live.databases[first.uuid] is kept
    assert await ping(installation, first) == 1
    failing.clear()

    async def follows() -> bool:
        await live.refresh()
        return live.databases[first.uuid] is not kept

    await eventually(follows, "it is followed to where its row says")
    elsewhere = addresses.to_store(installation.directory, "sqlite:////nowhere/a.db", "")
    failing.add("a")
    await installation.api.write(partial(cell_rows.move, uuid=first.uuid, addresses=elsewhere))
    await live.refresh()
    with pytest.raises(StorageUnavailable, match="cell a cannot be reached"):
        await ping(installation, first)
