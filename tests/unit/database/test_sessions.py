"""Which hosts may speak without a session: those of before, and those that the cell went back with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.database import schema
from skep.database.cell import agents, cell_keys, host_keys, sessions
from skep.database.engine import Database
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid

NODE = NodeUuid("node-1")
KEY = b"k" * 32


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sa.Connection]:
    engine = Database(tmp_path / "cell.db").engine
    schema.upgrade(engine, "cell")
    with engine.begin() as connection:
        yield connection


def run(process: str) -> AgentIdentity:
    return AgentIdentity(node=NODE, host="h1", process=Incarnation(process))


def begin(connection: sa.Connection, process: str, number: int) -> None:
    host_keys.bind(connection, NODE, "h1", KEY, 1)
    agents.register(connection, run(process), 1)
    sessions.begin(connection, run(process), number, b"x" * 32)


def test_the_revision_marks_the_hosts_that_are_there_and_a_session_ends_it(tmp_path: Path) -> None:
    engine = Database(tmp_path / "cell.db").engine
    schema.upgrade(engine, "cell", "0013")
    with engine.begin() as connection:
        host_keys_before = sa.text("INSERT INTO host_keys (node, host, public_key, bound_at) VALUES (:n, :h, :k, 1)")
        for node, host in ((NODE, "h1"), ("node-2", "h2")):
            connection.execute(host_keys_before, {"n": node, "h": host, "k": KEY})
        connection.execute(
            sa.text(
                "INSERT INTO agents (node, host, incarnation, process, mapped, registered_at) "
                "VALUES (:n, 'h1', 1, 'p', false, 1)"
            ),
            {"n": NODE},
        )
    schema.upgrade(engine, "cell")
    with engine.begin() as connection:
        assert sessions.unsigned(connection) == ["h1", "h2"]
        assert sessions.may_be_unsigned(connection, NodeUuid("node-2")), "enrolled, and not registered yet"
        begin(connection, "q", 5)
        assert sessions.unsigned(connection) == ["h2"]
        assert not sessions.may_be_unsigned(connection, NODE)


def test_a_host_that_is_new_has_to_have_a_session(connection: sa.Connection) -> None:
    host_keys.bind(connection, NODE, "h1", KEY, 1)
    assert not sessions.may_be_unsigned(connection, NODE)


def test_a_run_that_an_older_release_has_registered_may_go_on_as_it_does(connection: sa.Connection) -> None:
    begin(connection, "p", 5)
    agents.register(connection, run("of an older conductor"), 2)
    assert sessions.may_be_unsigned(connection, NODE)
    found = sessions.of_node(connection, NODE)
    assert found is not None
    assert found.exchange_key is None, "it gets no orders that it could not read"
    begin(connection, "q", 6)
    assert not sessions.may_be_unsigned(connection, NODE)


def test_only_a_younger_run_begins_a_session_and_a_repeat_of_the_youngest(connection: sa.Connection) -> None:
    begin(connection, "p", 5)
    assert sessions.is_stale(connection, run("old"), 4)
    assert sessions.is_stale(connection, run("twin"), 5)
    assert not sessions.is_stale(connection, run("p"), 5)
    assert not sessions.is_stale(connection, run("q"), 6)


def test_a_key_that_was_released_ends_the_session_and_lets_nobody_in_unsigned(connection: sa.Connection) -> None:
    begin(connection, "p", 5)
    assert host_keys.release(connection, NODE)
    found = sessions.of_node(connection, NODE)
    assert found is not None
    assert found.exchange_key is None
    assert not sessions.may_be_unsigned(connection, NODE)


def test_the_key_of_a_cell_is_made_once(connection: sa.Connection) -> None:
    assert cell_keys.private_key(connection, 1) == cell_keys.private_key(connection, 2)
