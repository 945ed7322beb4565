"""Databases of tests are copies of one that the migrations made."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.contracts.databases import lay_out, new_database, new_in_memory
from skep.database import schema

KINDS: tuple[schema.Kind, ...] = ("api", "cell")


def declared(engine: sa.Engine) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master ORDER BY name, sql")
        return [(name, text) for name, text in rows]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_is_what_the_migrations_make(tmp_path: Path, kind: schema.Kind) -> None:
    migrated = sa.create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    schema.upgrade(migrated, kind)
    database, in_memory = new_database(tmp_path / "copy.db", kind), new_in_memory(kind)
    try:
        assert declared(database.engine) == declared(in_memory) == declared(migrated)
        assert schema.current(database.engine) == schema.head(kind)
    finally:
        await database.close()
        in_memory.dispose()
        migrated.dispose()


async def test_a_database_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    there = tmp_path / "cell1.db"
    there.write_bytes(b"mine")
    lay_out({"api": tmp_path / "new" / "api.db", "cell1": there, "cell2": "postgresql+psycopg://elsewhere/cell2"})
    assert there.read_bytes() == b"mine"
    assert (tmp_path / "new" / "api.db").stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError):
        new_database(there, "cell")
