"""Databases of a process share their compiled statements."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import Compiled

from skep.contracts.databases import new_database
from skep.database import dialects
from skep.database.compiled import CompiledStatements

TABLE = sa.Table("things", sa.MetaData(), sa.Column("name", sa.String))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> CompiledStatements:
    cache = CompiledStatements()
    monkeypatch.setattr(dialects, "STATEMENTS", cache)
    return cache


async def test_what_one_database_compiled_another_runs_with_its_own_rows(
    tmp_path: Path, statements: CompiledStatements
) -> None:
    compiled = []
    for name in ("one", "two"):
        database = new_database(tmp_path / f"{name}.db", "cell")
        try:

            def write(connection: sa.Connection, name: str = name) -> None:
                TABLE.create(connection)
                connection.execute(TABLE.insert().values(name=name))

            def read(connection: sa.Connection, name: str = name) -> list[str]:
                return list(connection.execute(sa.select(TABLE.c.name).where(TABLE.c.name == name)).scalars())

            await database.write(write)
            assert await database.read(read) == [name]
        finally:
            await database.close()
        compiled.append(len(statements))
    assert compiled[0] == compiled[1] == 2


def test_dialects_that_write_statements_differently_share_nothing() -> None:
    def of(name: str, *release: int) -> Dialect:
        dialect = sa.make_url(f"{name}://").get_dialect()()
        dialect.server_version_info = release
        return dialect

    cache = CompiledStatements()
    own = of("postgresql+psycopg", 16, 2)
    compiled: Compiled = sa.select(TABLE).compile(dialect=own)
    cache[own, "statement"] = compiled
    assert cache[of("postgresql+psycopg", 16, 2), "statement"] is compiled
    assert (of("postgresql+psycopg", 13, 1), "statement") not in cache
    assert (of("sqlite", 16, 2), "statement") not in cache
    escaping = of("postgresql+psycopg", 16, 2)
    escaping._backslash_escapes = True  # type: ignore[attr-defined]  # as a server with old settings sets it
    assert (escaping, "statement") not in cache
