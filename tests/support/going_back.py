"""Databases that go back in time: copies of every state that they were in, and one of them put into today's place."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa

from skep.database.api.tables import build_requests, instance_mappings
from skep.database.cell.tables import attempts, instances
from skep.database.engine import Database
from skep.processes.databases import Databases

_ROWS = {
    "api": (
        sa.select(
            instance_mappings.c.instance,
            instance_mappings.c.cell,
            instance_mappings.c.attempt,
            instance_mappings.c.delete_intent_at,
            instance_mappings.c.deleted_at,
        ),
        sa.select(build_requests.c.instance),
    ),
    "cell": (
        sa.select(instances.c.uuid, instances.c.state, instances.c.attempt, instances.c.host, instances.c.task),
        sa.select(attempts.c.instance, attempts.c.attempt, attempts.c.host, attempts.c.open, attempts.c.outcome),
    ),
}
"""What tells one state of a build from the next."""


class Copies:
    """Copies of one SQLite database, one for each state that its rows were in, oldest first."""

    def __init__(self, name: str, database: Database, to: Path) -> None:
        assert isinstance(database.location, Path)
        self.name = name
        self.files: list[Path] = []
        self.states: list[str] = []
        """What the rows said in each, for people."""
        self._source = database.location
        self._to = to
        self._queries = [
            str(query.compile(dialect=sa.dialects.sqlite.dialect()))
            for query in _ROWS["api" if name == "api" else "cell"]
        ]
        to.mkdir(parents=True)
        self.take()

    def take(self) -> None:
        """Copy the database if its rows differ from those of the latest copy."""
        with closing(sqlite3.connect(self._source)) as source:
            found = self._state(source)
            if self.states and self.states[-1] == found:
                return
            file = self._to / f"{len(self.files)}.db"
            with closing(sqlite3.connect(file)) as copy:
                source.backup(copy)
        self.files.append(file)
        self.states.append(found)

    @property
    def are_complete(self) -> bool:
        """Whether the state of now was copied: a copy is made after its commit, which others may see before."""
        with closing(sqlite3.connect(self._source)) as source:
            return self.states[-1] == self._state(source)

    def _state(self, source: sqlite3.Connection) -> str:
        return "; ".join(str(sorted(source.execute(query), key=str)) for query in self._queries)


@contextmanager
def copied(databases: Databases, to: Path) -> Iterator[Mapping[str, Copies]]:
    """Copy databases after each commit that changes a server, for the length of a block."""
    by_name = {"api": databases.api, **databases.cells}
    copies = {name: Copies(name, database, to / name) for name, database in by_name.items()}
    for name, database in by_name.items():
        database.commit_hook = lambda moment, _unit, _context, of=name: copies[of].take() if moment == "after" else None
    try:
        yield copies
    finally:
        for database in by_name.values():
            database.commit_hook = None


def put_back(root: Path, copies: Mapping[str, Path], to: Path) -> None:
    """Make a state directory `to` like `root`, with copies in the place of some of its databases."""
    shutil.copytree(root, to)
    for name, file in copies.items():
        put_in_place(file, to / "db" / f"{name}.db")


def put_in_place(copy: Path, database: Path) -> None:
    """Put a copy of a database into its place; nothing may have it open."""
    for left in ("-wal", "-shm"):
        database.with_name(database.name + left).unlink(missing_ok=True)
    shutil.copyfile(copy, database)
