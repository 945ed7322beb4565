"""A SQL backend's data for the contract: a file, or tables of one's own in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import sqlalchemy as sa

from skep.config.sections import SynchronizerSettings
from skep.contracts.synchronizer.store import Store
from skep.synchronizer.base import Backend
from skep.synchronizer.sql import make
from skep.synchronizer.sql.tables import RecordTables


class SqliteStore(Store):
    """One file."""

    cannot_wipe = ""
    cannot_copy = ""
    notices_every_restore = True

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._copies = 0
        self.settings = SynchronizerSettings(backend="sql", url=f"sqlite:///{path}")

    def make(self) -> Backend:
        """Return another handle on the file."""
        return make(self.settings)

    async def wipe(self) -> None:
        """Delete the file, below those who have it open."""
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()

    async def copy(self) -> object:
        """Copy the file, as `sqlite3 FILE .backup` does."""
        self._copies += 1
        copied = self.path.with_name(f"copied-{self._copies}.db")
        _backup(self.path, copied)
        return copied

    async def restore(self, copied: object) -> None:
        """Put it in place, as `sqlite3 FILE .restore` does."""
        assert isinstance(copied, Path)
        _backup(copied, self.path)


class PostgresStore(Store):
    """Tables of one name in a database."""

    cannot_wipe = ""
    cannot_copy = ""
    notices_every_restore = True

    def __init__(self, url: str, name: str = "skep") -> None:
        super().__init__()
        self.settings = SynchronizerSettings(backend="sql", url=url, name=name)
        self._tables = [table.name for table in RecordTables(name).metadata.sorted_tables]
        self._copies = 0

    def make(self) -> Backend:
        """Return another handle on the tables."""
        return make(self.settings)

    async def wipe(self) -> None:
        """Drop the tables."""
        await self._execute(f"DROP TABLE {', '.join(self._tables)}")

    async def copy(self) -> object:
        """Copy the tables beside themselves."""
        self._copies += 1
        copied = [f"copied_{self._copies}_{table}" for table in self._tables]
        await self._execute(
            *(f"CREATE TABLE {to} AS SELECT * FROM {table}" for table, to in zip(self._tables, copied, strict=True))
        )
        return copied

    async def restore(self, copied: object) -> None:
        """Put the copies in place, in one transaction, as `pg_restore --clean --single-transaction` does."""
        assert isinstance(copied, list)
        await self._execute(
            f"TRUNCATE {', '.join(self._tables)}",
            *(f"INSERT INTO {to} SELECT * FROM {table}" for table, to in zip(copied, self._tables, strict=True)),
        )

    async def _execute(self, *statements: str) -> None:
        await asyncio.to_thread(self._execute_now, statements)

    def _execute_now(self, statements: tuple[str, ...]) -> None:
        url = sa.make_url(self.settings.url).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False)) as connection:
            for statement in statements:
                connection.execute(statement.encode())


def _backup(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as reading, closing(sqlite3.connect(target)) as writing:
        reading.backup(writing)
