"""Statements and indexes ask for the states that the table of states says."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa

from skep.database import schema
from skep.database.cell.tables import UNDER_WAY
from skep.database.cell.transitions import moving
from skep.domain.instances import State
from skep.domain.states import BUILD_OVER, stored
from skep.processes.servers.postgres import PostgresServer

NAME = re.compile(r"'(\w+)'")


def predicate(engine: sa.Engine) -> str:
    """Return the rows of which the index of work is made, in the words of the migrated database."""
    asked = {
        "sqlite": "SELECT sql FROM sqlite_master WHERE name = 'instances_work'",
        "postgresql": "SELECT indexdef FROM pg_indexes WHERE indexname = 'instances_work'",
    }
    with engine.connect() as connection:
        made = str(connection.exec_driver_sql(asked[engine.dialect.name]).scalar_one())
    return made.partition("WHERE")[2]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs_part("postgres"))])
def test_the_index_of_work_leaves_out_what_the_table_says_is_over(kind: str, request: pytest.FixtureRequest) -> None:
    """Migrations are frozen: they keep their literals. A new state that is no build needs a new revision."""
    url = "sqlite:///" + str(request.getfixturevalue("tmp_path") / "cell.db")
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.create_database("index_of_work")
    engine = sa.create_engine(url)
    try:
        schema.upgrade(engine, "cell")
        found = predicate(engine)
    finally:
        engine.dispose()
    assert re.search(r"NOT IN|<> ALL", found)
    assert set(NAME.findall(found)) == set(stored(BUILD_OVER)) == set(NAME.findall(UNDER_WAY.text))


def test_a_write_that_the_table_does_not_allow_is_no_statement() -> None:
    with pytest.raises(ValueError, match="an instance that is deleted cannot become active"):
        moving(State.DELETED, State.ACTIVE)
    with pytest.raises(ValueError, match="an instance that is active cannot become scheduled"):
        moving(frozenset({State.STAGED, State.ACTIVE}), State.SCHEDULED)
    assert str(moving(State.STAGED, State.SCHEDULED, State.ERROR)) == "instances.state = :state_1"
