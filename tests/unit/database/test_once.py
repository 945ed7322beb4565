"""What is made once in a transaction: never what an undone unit made, never what another transaction stored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.database import once
from skep.database.engine import Database

KEY = "number"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path / "test.db")
    with opened.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER PRIMARY KEY AUTOINCREMENT)")
    yield opened
    await opened.close()


def _next(connection: sa.Connection) -> int:
    """Store a number that no transaction has stored before."""
    number: int = connection.exec_driver_sql("INSERT INTO numbers DEFAULT VALUES RETURNING number").scalar_one()
    return number


def _made(connection: sa.Connection) -> int:
    return once.made(connection, KEY, lambda: _next(connection))


def _stored(connection: sa.Connection) -> list[int]:
    return [row[0] for row in connection.exec_driver_sql("SELECT number FROM numbers")]


def _undone(connection: sa.Connection) -> int:
    _made(connection)
    raise ValueError("this unit is undone")


async def _together(database: Database, *units: Callable[[sa.Connection], int]) -> Sequence[object]:
    """Have units run in one transaction: they wait while another one is held."""
    held = threading.Event()
    first = asyncio.ensure_future(database.write(lambda _connection: held.wait(10)))
    waiting = [asyncio.ensure_future(database.write(unit)) for unit in units]
    await asyncio.sleep(0)
    held.set()
    outcomes = await asyncio.gather(first, *waiting, return_exceptions=True)
    return outcomes[1:]


async def test_units_of_one_transaction_share_it(database: Database) -> None:
    assert await _together(database, _made, _made, _made) == [1, 1, 1]
    assert await database.write(_made) == 2
    assert await database.read(_stored) == [1, 2]


async def test_what_an_undone_unit_made_is_made_anew(database: Database) -> None:
    outcomes = await _together(database, _undone, _made, _undone, _made, _made)
    numbers = [one for one in outcomes if isinstance(one, int)]
    assert len(numbers) == 3
    assert set(numbers) == set(await database.read(_stored))


async def test_outside_of_a_writer_it_is_made_each_time(database: Database) -> None:
    with database.engine.begin() as connection:
        assert [_made(connection), _made(connection)] == [1, 2]
