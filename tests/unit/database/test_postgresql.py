"""PostgreSQL under the same contract as a file: serial writers, nothing half stored, errors that say what is wrong."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from skep.contracts.eventually import eventually
from skep.database.engine import Database
from skep.domain.errors import StorageUnavailable
from skep.processes.servers.postgres import PostgresServer

pytestmark = pytest.mark.needs_part("postgres")

metadata = sa.MetaData()
counters = sa.Table(
    "counters", metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("count", sa.Integer, nullable=False)
)
_numbers = itertools.count()


@pytest.fixture
async def url(postgres: PostgresServer) -> str:
    return _prepared(postgres.create_database(f"units_{next(_numbers)}"))


def _prepared(url: str) -> str:
    engine = sa.create_engine(url)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(counters.insert().values(name="one", count=0))
    engine.dispose()
    return url


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    opened = Database(url, busy_timeout=1.0)
    yield opened
    await opened.close()


def read_then_write(connection: sa.Connection) -> int:
    """Count up in two statements: right only if nobody writes in between."""
    count = read(connection)
    connection.execute(counters.update().values(count=count + 1))
    return count + 1


def read(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(counters.c.count)).scalar_one())


def add(name: str) -> sa.Insert:
    return counters.insert().values(name=name, count=0)


async def test_units_of_several_processes_are_serial(url: str) -> None:
    opened = [Database(url) for _ in range(3)]
    try:
        results = await asyncio.gather(*(one.write(read_then_write) for _ in range(20) for one in opened))
        assert sorted(results) == list(range(1, 61))
        assert await opened[0].read(read) == 60
    finally:
        for one in opened:
            await one.close()


async def test_a_unit_that_fails_takes_nobody_with_it(database: Database) -> None:
    def twice(connection: sa.Connection) -> None:
        connection.execute(add("half"))
        connection.execute(add("one"))

    outcomes = await asyncio.gather(
        database.write(read_then_write), database.write(twice), database.write(read_then_write), return_exceptions=True
    )
    assert isinstance(outcomes[1], sa.exc.IntegrityError)
    assert [outcomes[0], outcomes[2]] == [1, 2]

    def names(connection: sa.Connection) -> list[str]:
        return list(connection.scalars(sa.select(counters.c.name)))

    assert await database.read(names) == ["one"]


async def test_a_bug_in_a_unit_is_raised_as_it_is(database: Database) -> None:
    def bug(connection: sa.Connection) -> None:
        read_then_write(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(bug)
    assert await database.read(read) == 0


async def test_durability_is_full(database: Database) -> None:
    def setting(connection: sa.Connection) -> object:
        return connection.exec_driver_sql("SHOW synchronous_commit").scalar()

    assert await database.write(setting) == "on"


async def test_a_server_that_dies_is_unavailable_and_heals() -> None:
    with PostgresServer() as server:
        database = Database(_prepared(server.create_database("units")), busy_timeout=1.0)
        try:
            assert await database.write(read_then_write) == 1
            assert await database.read(read) == 1
            server.kill()
            with pytest.raises(StorageUnavailable, match="cannot store"):
                await database.write(read_then_write)
            with pytest.raises(StorageUnavailable, match="cannot be read"):
                await database.read(read)
            server.start()
            assert await database.write(read_then_write) == 2
            assert await database.read(read) == 2
        finally:
            await database.close()


async def test_a_server_that_was_restarted_meanwhile_is_not_noticed() -> None:
    """Connections that it ended while nothing ran over them are made anew before they are used."""
    with PostgresServer() as server:
        database = Database(_prepared(server.create_database("units")), busy_timeout=1.0)
        try:
            assert await database.write(read_then_write) == 1
            assert await database.read(read) == 1
            server.restart()
            assert await database.write(read_then_write) == 2
            assert await database.read(read) == 2
        finally:
            await database.close()


async def test_who_holds_the_lock_and_falls_silent_is_cut_off(url: str, database: Database) -> None:
    other = Database(url, busy_timeout=0.3)
    begun, go_on = threading.Event(), threading.Event()

    def silent(connection: sa.Connection) -> int:
        count = read_then_write(connection)
        begun.set()
        go_on.wait(20)
        return count

    try:
        paused = asyncio.ensure_future(other.write(silent))
        await asyncio.to_thread(begun.wait, 20)

        async def written() -> bool:
            try:
                return await database.write(read_then_write) == 1
            except StorageUnavailable:
                return False

        await eventually(written, "another process writes")
        go_on.set()
        with pytest.raises(StorageUnavailable):
            await paused
        assert await database.read(read) == 1
    finally:
        go_on.set()
        await other.close()


async def test_a_commit_without_an_answer_is_asked_about(url: str) -> None:
    """The server commits, then the connection is gone: the unit was stored, so its caller is told so."""
    database = Database(url, busy_timeout=1.0)

    @sa.event.listens_for(database.engine, "commit")
    def _lose_the_answer(connection: sa.Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.commit()
        driver.close()

    try:
        assert await database.write(read_then_write) == 1
        sa.event.remove(database.engine, "commit", _lose_the_answer)
        assert await database.write(read_then_write) == 2
        assert await database.read(read) == 2
    finally:
        await database.close()


async def test_a_commit_that_never_came_is_no_success(url: str) -> None:
    database = Database(url, busy_timeout=1.0)

    @sa.event.listens_for(database.engine, "commit")
    def _lose_the_question(connection: sa.Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.close()

    try:
        with pytest.raises(StorageUnavailable):
            await database.write(read_then_write)
        sa.event.remove(database.engine, "commit", _lose_the_question)
        assert await database.read(read) == 0
        assert await database.write(read_then_write) == 1
    finally:
        await database.close()
