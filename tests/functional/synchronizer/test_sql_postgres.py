"""What a real PostgreSQL may do to the backend: die, halt, cut connections, be set back, be of another kind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.config.sections import SynchronizerSettings
from skep.contracts.synchronizer import LONG, changes_after, key, patiently, store_for_certain, write
from skep.domain.errors import Misconfigured, Unavailable
from skep.processes.servers.postgres import PostgresServer
from skep.synchronizer.base import CursorTooOld, Published, Refusal
from skep.synchronizer.sql import SqlBackend, make
from skep.synchronizer.sql.postgres import PostgresRecords

pytestmark = pytest.mark.needs_part("postgres")

_names = (f"faults{number}" for number in itertools.count())


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    yield postgres
    if postgres.pid is None:
        postgres.start()


@pytest.fixture
def database(server: PostgresServer) -> str:
    return server.create_database(next(_names))


@asynccontextmanager
async def opened(url: str, *, call_seconds: float = 10.0) -> AsyncIterator[SqlBackend]:
    """A handle, open and then closed."""
    backend = SqlBackend(PostgresRecords(sa.make_url(url), "skep"), call_seconds=call_seconds)
    try:
        await backend.open()
        yield backend
    finally:
        await backend.close()


def execute(server: PostgresServer, url: str, *statements: str) -> None:
    with server.connect(sa.make_url(url).database or "") as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def test_a_server_that_was_killed_keeps_what_was_answered(server: PostgresServer, database: str) -> None:
    async with opened(database) as backend, opened(database) as other:
        answered: set[str] = set()
        many = asyncio.Event()

        async def write_until_away(caller: int) -> None:
            for number in itertools.count():
                name = f"n{caller}.{number}"
                try:
                    assert await backend.publish((write(name, 0),)) == (Published(1),)
                except Unavailable:
                    return
                answered.add(name)
                if len(answered) > 100:
                    many.set()

        before = await other.snapshot()
        writers = [asyncio.create_task(write_until_away(caller)) for caller in range(8)]
        await many.wait()
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*writers)
        with pytest.raises(Unavailable):
            await other.snapshot()
        await asyncio.to_thread(server.start)
        after = await patiently(backend.snapshot)
        assert after.epoch == before.epoch
        assert answered <= {record.key.name for record in after.records}
        seen = await patiently(lambda: changes_after(other, before.cursor))
        assert {record.key for record in seen.records} == {record.key for record in after.records}


async def test_a_reader_goes_on_waiting_after_its_connections_were_cut(server: PostgresServer, database: str) -> None:
    async with opened(database) as reader, opened(database) as writer:
        cursor = (await reader.snapshot()).cursor
        waiting = asyncio.create_task(reader.changes(cursor, wait=LONG))
        await asyncio.sleep(0)
        await asyncio.to_thread(
            execute,
            server,
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database()",
        )
        await store_for_certain(writer, (write("a", 0),))
        try:
            changes = await waiting
        except Unavailable:
            changes = await patiently(lambda: reader.changes(cursor, wait=LONG))
        assert not isinstance(changes, CursorTooOld)
        assert [record.key for record in changes.records] == [key("a")]


async def test_a_server_that_halts_holds_nobody_up(server: PostgresServer, database: str) -> None:
    async with opened(database, call_seconds=2.0) as backend, opened(database, call_seconds=2.0) as closing:
        cursor = (await backend.snapshot()).cursor
        await closing.epoch()
        server.pause()
        try:
            for call in (backend.publish((write("a", 0),)), backend.epoch(), backend.changes(cursor, wait=LONG)):
                with pytest.raises(Unavailable):
                    await call
            stuck = asyncio.create_task(closing.epoch())
            await asyncio.sleep(0)
            await closing.close()
            with pytest.raises(Unavailable):
                await stuck
        finally:
            server.resume()
        await patiently(lambda: store_for_certain(backend, (write("b", 0),)))
        assert key("b") in {record.key for record in (await patiently(backend.snapshot)).records}


async def test_a_lost_notification_is_only_late(server: PostgresServer, database: str) -> None:
    async with opened(database) as backend:
        cursor = (await backend.snapshot()).cursor
        waiting = asyncio.create_task(changes_after(backend, cursor, wait=LONG))
        await asyncio.sleep(0)
        await asyncio.to_thread(
            execute,
            server,
            database,
            "BEGIN; UPDATE skep_life SET clock = clock + 1; INSERT INTO skep_commits SELECT clock, 5 FROM skep_life;"
            "INSERT INTO skep_records SELECT 'compute', 'a', 1, clock, NULL, 'x' FROM skep_life; COMMIT",
        )
        assert [record.key for record in (await waiting).records] == [key("a")]


async def test_opening_may_be_tried_again(server: PostgresServer, database: str) -> None:
    await asyncio.to_thread(server.stop)
    backend = SqlBackend(PostgresRecords(sa.make_url(database), "skep"))
    with pytest.raises(Unavailable):
        await backend.open()
    with pytest.raises(Unavailable):
        await backend.epoch()
    await asyncio.to_thread(server.start)
    await patiently(backend.open)
    assert (await backend.snapshot()).records == ()
    await backend.close()


async def test_a_cluster_that_was_set_back_is_noticed(server: PostgresServer, database: str, tmp_path: Path) -> None:
    async with opened(database) as backend:
        await backend.publish((write("a", 0, b"old"),))
        server.stop()
        server.copy_data(tmp_path / "copy")
        server.start()
        await patiently(lambda: store_for_certain(backend, (write("a", 1, b"new"),)))
        before = await patiently(backend.snapshot)
        server.stop()
        server.restore_data(tmp_path / "copy")
        server.start()
        await patiently(lambda: store_for_certain(backend, tuple(write(f"n{number}", 0) for number in range(3))))
        assert await backend.changes(before.cursor) == CursorTooOld()
        (refusal,) = await backend.publish((write("a", 2),))
        assert isinstance(refusal, Refusal)
        assert refusal.record is not None
        assert refusal.record.generation == 1


async def test_what_the_database_prescribes_does_not_weaken_us(server: PostgresServer, database: str) -> None:
    name = sa.make_url(database).database
    execute(
        server,
        database,
        f"ALTER DATABASE {name} SET synchronous_commit = off",
        f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'",
    )
    records = PostgresRecords(sa.make_url(database), "skep")
    connection = records.connect()
    shown = [
        connection.execute(f"SHOW {setting}".encode()).fetchone()
        for setting in ("synchronous_commit", "transaction_isolation")
    ]
    records.close(connection)
    assert shown == [("on",), ("read committed",)]


async def test_another_format_is_refused(server: PostgresServer, database: str) -> None:
    async with opened(database) as backend:
        await backend.epoch()
    execute(server, database, "UPDATE skep_life SET format = 99")
    with pytest.raises(Misconfigured, match="format 99"):
        async with opened(database):
            pass


async def test_a_table_of_something_else_is_not_touched(server: PostgresServer, database: str) -> None:
    execute(server, database, "CREATE TABLE skep_life (bees integer)")
    with pytest.raises(Misconfigured, match="skep_life"):
        async with opened(database):
            pass


async def test_a_database_that_cannot_hold_every_name_is_refused(server: PostgresServer) -> None:
    name = next(_names)
    execute(server, server.url(), f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(Misconfigured, match="LATIN1"):
        async with opened(server.url(name)):
            pass


async def test_tables_are_made_by_one_of_many_that_open_at_once(database: str) -> None:
    backends = [make(SynchronizerSettings(backend="sql", url=database)) for _ in range(4)]
    await asyncio.gather(*(backend.open() for backend in backends))
    assert len({await backend.epoch() for backend in backends}) == 1
    await asyncio.gather(*(backend.close() for backend in backends))
