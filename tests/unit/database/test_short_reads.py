"""Short reads of a file run in the thread that asks; whatever would hold it up is left to other threads."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.contracts.eventually import eventually
from skep.database.engine import Database
from skep.database.short_reads import MOST_BYTES, MOST_STEPS
from skep.domain.errors import StorageUnavailable

metadata = sa.MetaData()
things = sa.Table("things", metadata, sa.Column("name", sa.Text, primary_key=True))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path / "test.db", busy_timeout=5.0, short_reads=True)
    metadata.create_all(opened.engine)
    # The first is run by a thread, which opens the file.
    assert await opened.read(lambda _connection: threading.get_ident()) != threading.get_ident()
    yield opened
    await opened.close()


def names(connection: sa.Connection) -> list[str]:
    return list(connection.scalars(sa.select(things.c.name).order_by(things.c.name)))


def count_to(number: int) -> sa.TextClause:
    """Each number is several steps of SQLite's machine."""
    return sa.text(
        "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted"
        f" WHERE n < {number}) SELECT count(*) FROM counted"
    )


async def test_a_short_read_runs_where_it_is_asked_for(database: Database) -> None:
    await database.write(lambda connection: connection.execute(things.insert().values(name="one")))
    assert await database.read(lambda connection: (threading.get_ident(), names(connection))) == (
        threading.get_ident(),
        ["one"],
    )


async def test_a_long_read_is_stopped_and_run_by_another_thread(database: Database) -> None:
    threads: list[int] = []

    def count(connection: sa.Connection) -> int:
        threads.append(threading.get_ident())
        return int(connection.execute(count_to(MOST_STEPS)).scalar_one())

    assert await database.read(count) == MOST_STEPS
    mine, other = threads
    assert mine == threading.get_ident() != other
    # The bound is of each unit: many short ones after each other are not one long one.
    for _ in range(20):
        short = await database.read(
            lambda connection: (threading.get_ident(), connection.execute(count_to(MOST_STEPS // 100)).scalar_one())
        )
        assert short == (mine, MOST_STEPS // 100)


async def test_many_statements_of_one_unit_are_one_long_read(database: Database) -> None:
    threads: list[int] = []

    def count(connection: sa.Connection) -> None:
        threads.append(threading.get_ident())
        for _ in range(200):
            connection.execute(count_to(MOST_STEPS // 100))

    await database.read(count)
    assert len(threads) == 2
    assert threads[1] != threading.get_ident()


async def test_a_read_of_much_is_left_to_another_thread(database: Database) -> None:
    def fill(connection: sa.Connection) -> None:
        connection.execute(things.insert(), [{"name": f"{number}{MOST_BYTES // 8 * 'x'}"} for number in range(9)])

    threads: list[int] = []

    def read(connection: sa.Connection, limit: int) -> int:
        threads.append(threading.get_ident())
        assert len(connection.execute(sa.select(things).limit(limit)).all()) == limit
        return threading.get_ident()

    await database.write(fill)
    mine = threading.get_ident()
    # Of each unit, too: what an earlier one was given does not count.
    for _ in range(3):
        assert await database.read(partial(read, limit=7)) == mine
    threads.clear()
    assert await database.read(partial(read, limit=9)) != mine
    assert threads[0] == mine != threads[1]
    assert await database.read(partial(read, limit=7)) == mine
    await database.write(lambda connection: connection.execute(things.delete()))
    assert await database.read(names) == []


async def test_bytes_count_as_texts_do_and_numbers_do_not(database: Database) -> None:
    def read(connection: sa.Connection, value: str, rows: int) -> int:
        numbered = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
        assert len(connection.exec_driver_sql(f"{numbered} SELECT {value} FROM n").all()) == rows
        return threading.get_ident()

    mine = threading.get_ident()
    assert await database.read(partial(read, value=f"zeroblob({MOST_BYTES // 2})", rows=2)) == mine
    assert await database.read(partial(read, value=f"zeroblob({MOST_BYTES // 2})", rows=3)) != mine
    assert await database.read(partial(read, value="1000000 * i, NULL, 0.5", rows=1000)) == mine


async def test_a_file_that_is_locked_is_waited_for_by_another_thread(database: Database) -> None:
    await database.write(lambda connection: connection.execute(things.insert().values(name="one")))
    await database.close()
    other = sqlite3.connect(database.location, isolation_level=None)
    # Of a WAL no writer keeps readers out.
    other.execute("PRAGMA journal_mode=DELETE")
    other.execute("BEGIN EXCLUSIVE")
    again = Database(database.location, busy_timeout=30.0, short_reads=True)
    reading = asyncio.create_task(again.read(names))
    turns = 0

    async def others_go_on() -> bool:
        nonlocal turns
        turns += 1
        return turns > 3

    await eventually(others_go_on, "the loop goes on")
    assert not reading.done()
    other.execute("ROLLBACK")
    other.close()
    assert await reading == ["one"]
    await again.close()


async def test_what_a_unit_raises_is_raised_as_it_is(database: Database) -> None:
    def bug(_connection: sa.Connection) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.read(bug)
    with pytest.raises(sa.exc.OperationalError, match="no such table"):
        await database.read(lambda connection: connection.execute(sa.text("SELECT * FROM absent")))
    assert await database.read(names) == []


async def test_reads_after_each_other_let_others_have_their_turn(database: Database) -> None:
    others = 0

    async def count_turns() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    for _ in range(50):
        await database.read(names)
    counting.cancel()
    assert others >= 50


async def test_a_read_sees_one_moment_and_the_next_what_was_written_since(database: Database) -> None:
    def add(name: str) -> None:
        other = sqlite3.connect(database.location)
        other.execute("INSERT INTO things VALUES (?)", (name,))
        other.commit()
        other.close()

    def twice(connection: sa.Connection) -> tuple[list[str], list[str]]:
        before = names(connection)
        add("between")
        return before, names(connection)

    assert await database.read(twice) == ([], [])
    assert await database.read(names) == ["between"]


async def test_a_file_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "bad.db"
    path.write_bytes(b"no database" * 1000)
    database = Database(path, busy_timeout=0.1, short_reads=True)
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        await database.read(names)
    await database.close()


async def test_a_closed_database_takes_nothing(database: Database) -> None:
    assert await database.read(names) == []
    await database.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        await database.read(names)
