"""Migrations: what they make is what the code declares, they can be repeated, and they keep rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from skep.database import schema
from skep.database.api.schema import metadata as api_metadata
from skep.database.cell.schema import metadata as cell_metadata
from skep.database.schema import Kind
from skep.domain.errors import Misconfigured

METADATA: dict[Kind, sa.MetaData] = {"api": api_metadata, "cell": cell_metadata}
KINDS: tuple[Kind, ...] = ("api", "cell")
BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs_part("postgres"))]
_numbers = itertools.count()


@pytest.fixture(params=BOTH)
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    url = f"sqlite:///{tmp_path / 'migrated.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").create_database(f"migrated_{next(_numbers)}")
    opened = sa.create_engine(url)
    yield opened
    opened.dispose()


def revisions(kind: Kind) -> list[str]:
    """Return the history of a kind of database, oldest first."""
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / kind / "migrations"))
    return [one.revision for one in ScriptDirectory.from_config(config).walk_revisions()][::-1]


def declared(engine: sa.Engine) -> dict[str, tuple[str, ...]]:
    """Return what a database has, as its own words split into parts whose order says nothing."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE name != 'alembic_version'").all()
    return {name: _parts(sql) for name, sql in rows if sql is not None}


def _parts(sql: str) -> tuple[str, ...]:
    """Split a statement at the commas outside its inner parentheses."""
    text = " ".join(sql.split())
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", text[text.index("(") + 1 :])]
    return (text[: text.index("(")], *sorted(part.rstrip(") ") for part in parts))


@pytest.mark.parametrize("kind", KINDS)
def test_from_empty_to_head_is_what_the_code_declares(engine: sa.Engine, kind: Kind) -> None:
    schema.upgrade(engine, kind)
    if engine.dialect.name == "sqlite":
        fresh = sa.create_engine("sqlite://")
        METADATA[kind].create_all(fresh)
        assert declared(engine) == declared(fresh)
        fresh.dispose()
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA[kind]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_upgrade_can_be_repeated(engine: sa.Engine, kind: Kind) -> None:
    schema.upgrade(engine, kind)
    fill(engine, METADATA[kind])
    before = contents(engine)
    schema.upgrade(engine, kind)
    assert contents(engine) == before
    assert schema.current(engine) == schema.head(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_each_revision_takes_a_database_with_rows_one_step_on(engine: sa.Engine, kind: Kind) -> None:
    for revision in revisions(kind):
        schema.upgrade(engine, kind, revision)
        assert schema.current(engine) == revision
        there = reflected(engine)
        before = {name: len(rows) for name, rows in contents(engine).items()}
        fill(engine, there)
        after = {name: len(rows) for name, rows in contents(engine).items()}
        assert all(after[name] > before[name] for name in after), "every table takes a row at every revision"
    assert schema.current(engine) == schema.head(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_history_is_one_line(kind: Kind) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / kind / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    assert len(scripts.get_heads()) == 1
    assert [one.down_revision for one in scripts.walk_revisions()] == [*revisions(kind)[-2::-1], None]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_or_unknown_database_is_refused_with_the_command_that_mends_it(engine: sa.Engine, kind: Kind) -> None:
    with pytest.raises(Misconfigured, match=r"database cell7 is at revision None.*run `skep db upgrade`"):
        schema.check(engine, kind, "cell7")
    schema.upgrade(engine, kind)
    schema.check(engine, kind, "cell7")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")
    with pytest.raises(Misconfigured, match=r"is at revision 0000, this release needs .*run `skep db upgrade`"):
        schema.check(engine, kind, "cell7")


def reflected(engine: sa.Engine) -> sa.MetaData:
    found = sa.MetaData()
    found.reflect(engine)
    found.remove(found.tables["alembic_version"])
    return found


def contents(engine: sa.Engine) -> dict[str, list[tuple[Any, ...]]]:
    with engine.connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(sa.select(table))]
            for table in reflected(engine).sorted_tables
        }


def fill(engine: sa.Engine, metadata: sa.MetaData) -> None:
    """Put one row into every table, its values told apart by how many rows there are."""
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            number = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            connection.execute(table.insert(), {column.name: _value(column, number) for column in table.columns})


def _value(column: sa.Column[Any], number: int) -> object:
    if isinstance(column.type, sa.LargeBinary):
        return b"{}"
    if isinstance(column.type, sa.Boolean):
        return False
    return number + 1 if isinstance(column.type, sa.Integer | sa.Float | sa.Numeric) else str(number)
