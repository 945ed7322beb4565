"""What a SQL backend forgets, what it refuses, and who else may write."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.config.sections import SynchronizerSettings
from skep.contracts.synchronizer import LONG, changes_after, key, write
from skep.domain.errors import Misconfigured
from skep.processes.servers.postgres import PostgresServer
from skep.synchronizer.base import KEEP_REMOVED_SECONDS, Changes, CursorTooOld, Published
from skep.synchronizer.registry import make_backend
from skep.synchronizer.sql import SqlBackend
from skep.synchronizer.sql.postgres import PostgresRecords
from skep.synchronizer.sql.server import KEEP_COMMITS
from skep.synchronizer.sql.sqlite import SqliteRecords


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs_part("postgres"))])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteRecords | PostgresRecords:
    if request.param == "sqlite":
        return SqliteRecords(sa.make_url(f"sqlite:///{tmp_path / 'synchronizer.db'}"), "skep")
    server: PostgresServer = request.getfixturevalue("postgres")
    return PostgresRecords(sa.make_url(server.create_database(f"trim_{tmp_path.name}"[:60])), "skep")


@asynccontextmanager
async def opened(
    records: SqliteRecords | PostgresRecords, *, commits: int = KEEP_COMMITS, removed: float = KEEP_REMOVED_SECONDS
) -> AsyncIterator[SqlBackend]:
    """A handle that forgets early, open and then closed."""
    backend = SqlBackend(records, keep_commits=commits, keep_removed=removed)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


async def test_removed_records_are_forgotten_and_begin_anew(records: SqliteRecords | PostgresRecords) -> None:
    async with opened(records, removed=-1.0) as backend:
        await backend.publish((write("a", 0), write("kept", 0)))
        unaware = (await backend.snapshot()).cursor
        await backend.publish((write("a", 1, b""),))
        aware = (await backend.snapshot()).cursor
        assert await backend.trim() > 0
        assert await backend.changes(unaware) == CursorTooOld(), "it has not read of the removal"
        assert isinstance(await backend.changes(aware), Changes)
        assert await backend.publish((write("a", 0),)) == (Published(1),)
        assert await backend.trim() == 0 or len((await backend.snapshot()).records) == 2


async def test_old_cursors_are_forgotten_and_the_latest_never(records: SqliteRecords | PostgresRecords) -> None:
    async with opened(records, commits=3) as backend:
        cursors = []
        for number in range(10):
            await backend.publish((write(f"n{number}", 0),))
            cursors.append((await backend.snapshot()).cursor)
        assert await backend.trim() == 7
        answers = [isinstance(await backend.changes(cursor), Changes) for cursor in cursors]
        assert answers == [False] * 6 + [True] * 4
        assert len((await backend.snapshot()).records) == 10


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
async def test_a_name_that_cannot_be_stored_is_its_writers_mistake_alone(
    records: SqliteRecords | PostgresRecords, name: str
) -> None:
    async with opened(records) as backend:
        outcomes = await asyncio.gather(
            backend.publish((write("good", 0),)), backend.publish((write(name, 0),)), return_exceptions=True
        )
        assert outcomes[0] == (Published(1),)
        assert isinstance(outcomes[1], ValueError)


async def test_another_process_writes_and_we_hear_of_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'synchronizer.db'}"
    program = (
        "import asyncio, sys\n"
        "from skep.config.sections import SynchronizerSettings\n"
        "from skep.synchronizer.base import Key, Write\n"
        "from skep.synchronizer.registry import make_backend\n"
        "async def main():\n"
        "    backend = make_backend(SynchronizerSettings(backend='sql', url=sys.argv[1]))\n"
        "    await backend.open()\n"
        "    print(await backend.publish((Write(key=Key('compute', 'a'), expected=0, body=b'x'),)))\n"
        "    await backend.close()\n"
        "asyncio.run(main())\n"
    )
    backend = make_backend(SynchronizerSettings(backend="sql", url=url))
    await backend.open()
    cursor = (await backend.snapshot()).cursor
    waiting = asyncio.create_task(changes_after(backend, cursor, wait=LONG))
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, url, stdout=asyncio.subprocess.PIPE)
    output, _ = await other.communicate()
    assert b"Published(1)" in output.replace(b"generation=", b"")
    assert [record.key for record in (await waiting).records] == [key("a")]
    await backend.close()


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://h/d", "sqlite://", "sqlite:///:memory:", "nats://h:4222"])
def test_urls_of_something_else_are_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match=r"synchronizer\.url"):
        make_backend(SynchronizerSettings(backend="sql", url=url))


async def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    settings = SynchronizerSettings(backend="sql", url=f"sqlite:///{tmp_path / 'synchronizer.db'}")
    engine = sa.create_engine(settings.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE skep_life (bees integer)")
    engine.dispose()
    backend = make_backend(settings)
    with pytest.raises(Misconfigured, match="skep_life"):
        await backend.open()
    await backend.close()
