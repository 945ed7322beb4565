"""Units of work: many to a commit, each on its own, nothing half stored."""

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
from skep.domain.errors import StorageUnavailable

metadata = sa.MetaData()
things = sa.Table("things", metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("size", sa.LargeBinary))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path / "test.db", busy_timeout=0.1)
    metadata.create_all(opened.engine)
    yield opened
    await opened.close()


def add(name: str, size: bytes = b"") -> sa.Insert:
    return things.insert().values(name=name, size=size)


def never_end(connection: sa.Connection) -> None:
    connection.exec_driver_sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")


async def is_read(database: Database) -> bool:
    try:
        return await database.read(lambda _connection: True, within=0.05)
    except StorageUnavailable:
        return False


def names(connection: sa.Connection) -> list[str]:
    return list(connection.scalars(sa.select(things.c.name).order_by(things.c.name)))


async def test_a_unit_that_fails_takes_nobody_with_it(database: Database) -> None:
    def twice(connection: sa.Connection) -> None:
        connection.execute(add("half"))
        connection.execute(add("first"))

    outcomes = await asyncio.gather(
        database.write(lambda connection: connection.execute(add("first"))),
        database.write(twice),
        database.write(lambda connection: connection.execute(add("last"))),
        return_exceptions=True,
    )
    assert [isinstance(outcome, sa.exc.IntegrityError) for outcome in outcomes] == [False, True, False]
    assert await database.read(names) == ["first", "last"]


async def test_what_is_answered_is_on_disk(database: Database) -> None:
    await database.write(lambda connection: connection.execute(add("kept")))
    other = sqlite3.connect(database.location)
    assert other.execute("SELECT name FROM things").fetchall() == [("kept",)]
    other.close()


async def test_durability_is_full_and_the_log_is_a_wal(database: Database) -> None:
    def pragmas(connection: sa.Connection) -> tuple[object, object]:
        return (
            connection.exec_driver_sql("PRAGMA journal_mode").scalar(),
            connection.exec_driver_sql("PRAGMA synchronous").scalar(),
        )

    assert await database.write(pragmas) == ("wal", 2)


async def test_intake_goes_before_work(database: Database) -> None:
    order: list[str] = []
    hold = asyncio.Event()
    loop = asyncio.get_running_loop()

    def holding(_connection: sa.Connection) -> None:
        loop.call_soon_threadsafe(hold.set)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()

    def note(name: str) -> sa.Connection | None:
        order.append(name)
        return None

    first = asyncio.ensure_future(database.write(holding))
    work = asyncio.ensure_future(database.write(lambda _connection: note("work")))
    intake = asyncio.ensure_future(database.write(lambda _connection: note("intake"), intake=True))
    await asyncio.gather(first, work, intake)
    assert order.index("intake") < order.index("work") or order == ["work", "intake"][::-1]


async def test_a_full_disk_is_unavailable_and_heals(database: Database) -> None:
    pages = await database.write(lambda connection: connection.exec_driver_sql("PRAGMA page_count").scalar_one())
    await database.write(lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}"))
    with pytest.raises(StorageUnavailable, match="full"):
        await database.write(lambda connection: connection.execute(add("big", b"x" * 200_000)))
    assert await database.read(names) == []
    await database.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 100000"))
    await database.write(lambda connection: connection.execute(add("big", b"x" * 200_000)))
    assert await database.read(names) == ["big"]


async def test_a_locked_database_is_unavailable_and_heals(database: Database) -> None:
    other = sqlite3.connect(database.location, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable, match="locked"):
        await database.write(lambda connection: connection.execute(add("late")))
    other.execute("ROLLBACK")
    other.close()
    await database.write(lambda connection: connection.execute(add("now")))
    assert await database.read(names) == ["now"]


async def test_a_bug_in_a_unit_is_raised_as_it_is(database: Database) -> None:
    def bug(_connection: sa.Connection) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(bug)
    with pytest.raises(ZeroDivisionError):
        await database.read(bug)


async def test_a_closed_database_takes_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "closed.db")
    await database.close()
    with pytest.raises(StorageUnavailable):
        await database.write(names)


async def test_a_database_whose_readers_are_all_busy_is_not_silent(tmp_path: Path) -> None:
    busy = Database(tmp_path / "busy.db", readers=2)
    begun, leave = threading.Barrier(3), threading.Event()

    def hold(_connection: sa.Connection) -> None:
        begun.wait(30)
        leave.wait(30)

    holding = [asyncio.create_task(busy.read(hold, within=0.5)) for _ in range(2)]
    try:
        await asyncio.to_thread(begun.wait, 30)
        later = asyncio.create_task(busy.read(lambda _connection: "read", within=30.0))
        for one in holding:
            with pytest.raises(StorageUnavailable, match="did not answer in"):
                await one
        # Nor is one refused that comes while a probe finds out.
        last = asyncio.create_task(busy.read(lambda _connection: "read", within=30.0))

        async def answers() -> bool:
            return busy.answers

        await eventually(answers, "the probe is answered while both threads are busy")
        assert not later.done()
        leave.set()
        assert (await later, await last) == ("read", "read")
    finally:
        leave.set()
        await busy.close()


async def test_a_read_that_hangs_alone_is_ended_once_nobody_waits_for_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "hangs.db", readers=1, busy_timeout=0.1)
    try:
        with pytest.raises(StorageUnavailable, match="did not answer in"):
            await database.read(never_end, within=0.05)
        await eventually(partial(is_read, database), "its thread reads for others")
    finally:
        await database.close()


async def test_a_writer_that_hangs_is_ended_once_reads_are_late_though_a_probe_is_answered(tmp_path: Path) -> None:
    database = Database(tmp_path / "hangs.db", readers=1, busy_timeout=0.1)
    try:
        hanging = asyncio.create_task(database.write(never_end))
        with pytest.raises(StorageUnavailable, match="did not answer in"):
            await database.read(never_end, within=0.05)
        await eventually(partial(is_read, database), "reading is answered")
        with pytest.raises(StorageUnavailable, match="interrupted"):
            await asyncio.wait_for(hanging, 30)
        await database.write(lambda connection: connection.exec_driver_sql("CREATE TABLE later (name TEXT)"))
    finally:
        await database.close()


async def test_a_read_without_an_end_is_ended_once_another_one_waits_for_its_thread(tmp_path: Path) -> None:
    database = Database(tmp_path / "hangs.db", readers=1, busy_timeout=0.1)
    try:
        hanging = asyncio.create_task(database.read(never_end))
        await asyncio.sleep(0)  # it has its place before what comes next
        await eventually(partial(is_read, database), "its thread reads for others")
        with pytest.raises(StorageUnavailable, match="interrupted"):
            await hanging
    finally:
        await database.close()
