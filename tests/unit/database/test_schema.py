"""Migrations: what they make is what the code declares, they can be repeated, and they keep rows."""

from __future__ import annotations

import asyncio
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
from skep.processes.servers.postgres import PostgresServer
from tests.support import samples

METADATA: dict[Kind, sa.MetaData] = {"api": api_metadata, "cell": cell_metadata}
KINDS: tuple[Kind, ...] = ("api", "cell")
NOTES = (schema.REVISION_TABLE, schema.FLOOR_TABLE)
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
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master").all()
    return {name: _parts(sql) for name, sql in rows if sql is not None and name not in NOTES}


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
        opts = {"compare_type": True, "compare_server_default": True, "include_name": _is_no_note}
        context = MigrationContext.configure(connection, opts=opts)
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
    history = revisions(kind)
    steps = samples.sample(history[:-1], samples.examples(len(history) - 1), samples.seed(), kind)
    for revision in (*steps, history[-1]):
        schema.upgrade(engine, kind, revision)
        assert schema.current(engine) == revision
        there = reflected(engine)
        before = counted(engine, there)
        fill(engine, there)
        after = counted(engine, there)
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
def test_the_history_is_read_as_alembic_reads_it(kind: Kind) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / kind / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    assert schema.head(kind) == scripts.get_current_head()
    assert schema.history(kind) == {
        one.revision: getattr(one.module, "compatible_since", one.revision) for one in scripts.walk_revisions()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_or_old_database_is_refused_with_the_command_that_mends_it(engine: sa.Engine, kind: Kind) -> None:
    with pytest.raises(Misconfigured, match=r"database cell7 is at revision None.*run `skep db upgrade`"):
        schema.check(engine, kind, "cell7")
    schema.upgrade(engine, kind, "0001")
    with pytest.raises(Misconfigured, match=r"is at revision 0001, this release needs .*run `skep db upgrade`"):
        schema.check(engine, kind, "cell7")
    schema.upgrade(engine, kind)
    schema.check(engine, kind, "cell7")


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_database_is_taken_exactly_if_it_takes_this_release(engine: sa.Engine, kind: Kind) -> None:
    schema.upgrade(engine, kind)
    note(engine, schema.REVISION_TABLE, "9001")
    schema.check(engine, kind, "cell7")
    schema.upgrade(engine, kind)
    assert schema.current(engine) == "9001"
    note(engine, schema.FLOOR_TABLE, "9000")
    message = r"is at revision 9001 of a newer release, which supports releases from revision 9000 on"
    with pytest.raises(Misconfigured, match=f"database cell7 {message}"):
        schema.check(engine, kind, "cell7")
    with pytest.raises(Misconfigured, match=message):
        schema.upgrade(engine, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_release_noted_that_knew_one_table_only_is_taken_over(engine: sa.Engine, kind: Kind) -> None:
    before = revisions(kind)[1]
    schema.upgrade(engine, kind, before)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE {schema.REVISION_TABLE}")
    note(engine, schema.FLOOR_TABLE, before)
    assert schema.current(engine) == before
    schema.upgrade(engine, kind)
    assert schema.current(engine) == schema.head(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_each_revision_says_which_releases_can_work_with_it_and_never_takes_that_back(kind: Kind) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / kind / "migrations"))
    scripts = {one.revision: one.module for one in ScriptDirectory.from_config(config).walk_revisions()}
    history = revisions(kind)
    since = [scripts[revision].compatible_since for revision in history[1:]]
    assert since == sorted(since)
    assert all(floor <= revision for floor, revision in zip(since, history[1:], strict=True))
    assert set(since) <= set(history)


@pytest.mark.needs_part("postgres")
async def test_many_processes_that_upgrade_at_once_do_it_once(postgres: PostgresServer) -> None:
    url = postgres.create_database("upgraded_at_once")
    engines = [sa.create_engine(url) for _ in range(4)]
    await asyncio.gather(*(asyncio.to_thread(schema.upgrade, engine, "cell") for engine in engines))
    assert {schema.current(engine) for engine in engines} == {schema.head("cell")}
    for engine in engines:
        engine.dispose()


def note(engine: sa.Engine, table: str, revision: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {table} SET version_num = '{revision}'")


def _is_no_note(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or name not in NOTES


def reflected(engine: sa.Engine) -> sa.MetaData:
    found = sa.MetaData()
    found.reflect(engine)
    for name in NOTES:
        if name in found.tables:
            found.remove(found.tables[name])
    return found


def contents(engine: sa.Engine) -> dict[str, list[tuple[Any, ...]]]:
    with engine.connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(sa.select(table))]
            for table in reflected(engine).sorted_tables
        }


def counted(engine: sa.Engine, metadata: sa.MetaData) -> dict[str, int]:
    """Return how many rows each table has."""
    selects = [f"SELECT '{name}', count(*) FROM {name}" for name in metadata.tables]
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(" UNION ALL ".join(selects)).all()
    return {str(name): int(count) for name, count in rows}


def fill(engine: sa.Engine, metadata: sa.MetaData) -> None:
    """Put one row into every table, its values told apart by how many rows there are."""
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            number = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            # What a sequence counts it counts here, too: triggers take the next of it.
            own = [
                column for column in table.columns if "nextval" not in str(getattr(column.server_default, "arg", ""))
            ]
            values = {column.name: _value(column, number) for column in own}
            for key in table.foreign_keys:
                # The row that was put into the other table last: it may have had some before.
                query = sa.select(sa.func.count()).select_from(key.column.table)
                values[key.parent.name] = _value(key.parent, connection.execute(query).scalar_one() - 1)
            connection.execute(table.insert(), values)


def _value(column: sa.Column[Any], number: int) -> object:
    if isinstance(column.type, sa.LargeBinary):
        return b"{}"
    if isinstance(column.type, sa.Boolean):
        return False
    return number + 1 if isinstance(column.type, sa.Integer | sa.Float | sa.Numeric) else str(number)
