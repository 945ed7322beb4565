"""Whose password and files are opened for a host: of the servers that it builds now, by the attempt in the row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.database import schema
from skep.database.cell import agents, guest_secrets, host_keys, sessions, tasks
from skep.database.cell.guest_secrets import GuestSecrets
from skep.database.cell.tables import instances
from skep.database.engine import Database
from skep.domain.actions import ACTIONS
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import PowerState, State
from tests.support.rows import HOST, ONE, bring_to, context

NODE = NodeUuid(f"node-{HOST}")
KEY = b"x" * 32


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sa.Connection]:
    engine = Database(tmp_path / "cell.db").engine
    schema.upgrade(engine, "cell")
    with engine.begin() as connection:
        run = AgentIdentity(node=NODE, host=HOST, process=Incarnation("run"))
        host_keys.bind(connection, NODE, HOST, b"k" * 32, 1)
        agents.register(connection, run, 1)
        sessions.begin(connection, run, 1, KEY)
        yield connection


@pytest.mark.parametrize("state", [State.BUILDING, State.SPAWNING])
def test_the_host_that_builds_gets_them(connection: sa.Connection, state: State) -> None:
    bring_to(connection, state)
    assert guest_secrets.for_host(connection, ONE, 1, HOST) == GuestSecrets(sealed=b"sealed", exchange_key=KEY)


def test_no_other_host_and_no_other_attempt_does(connection: sa.Connection) -> None:
    bring_to(connection, State.BUILDING)
    assert guest_secrets.for_host(connection, ONE, 1, "another") is None
    assert guest_secrets.for_host(connection, ONE, 2, HOST) is None


@pytest.mark.parametrize("state", [State.ACTIVE, State.ERROR, State.DELETED, State.RESCHEDULING])
def test_when_the_build_is_over_nobody_does(connection: sa.Connection, state: State) -> None:
    bring_to(connection, state)
    assert guest_secrets.for_host(connection, ONE, 1, HOST) is None


def test_without_a_session_there_is_nobody_to_seal_them_for(connection: sa.Connection) -> None:
    bring_to(connection, State.BUILDING)
    host_keys.release(connection, NODE)
    assert guest_secrets.for_host(connection, ONE, 1, HOST) == GuestSecrets(sealed=b"sealed", exchange_key=None)


def changing(connection: sa.Connection) -> None:
    bring_to(connection, State.ACTIVE)
    connection.execute(sa.update(instances).values(secrets=None))
    assert tasks.begin(connection, ONE, ACTIONS["change_password"], context("req-t"), 100, secrets=b"of the action")


def test_the_host_that_carries_an_action_out_gets_what_it_is_told(connection: sa.Connection) -> None:
    changing(connection)
    found = guest_secrets.for_host(connection, ONE, 1, HOST, "req-t")
    assert found == GuestSecrets(sealed=b"of the action", exchange_key=KEY)
    assert guest_secrets.sealed(connection) == [b"of the action"], "its key is still needed"
    for attempt, host, task_id in ((2, HOST, "req-t"), (1, "another", "req-t"), (1, HOST, "req-u"), (1, HOST, "")):
        assert guest_secrets.for_host(connection, ONE, attempt, host, task_id) is None


@pytest.mark.parametrize("error", [None, "InternalError: no"])
def test_what_an_action_is_told_goes_with_its_end(connection: sa.Connection, error: str | None) -> None:
    changing(connection)
    assert tasks.may_act(connection, ONE, 1, HOST, "updating_password", "req-t", 100)
    assert tasks.done(connection, ONE, 1, "req-t", PowerState.RUNNING, error, 100) is not None
    assert guest_secrets.for_host(connection, ONE, 1, HOST, "req-t") is None
    assert guest_secrets.sealed(connection) == []
    assert connection.execute(sa.select(instances.c.action_request)).scalar_one() is None


def test_an_action_without_secrets_gives_none(connection: sa.Connection) -> None:
    bring_to(connection, State.ACTIVE)
    assert tasks.begin(connection, ONE, ACTIONS["stop"], context("req-t"), 100)
    assert guest_secrets.for_host(connection, ONE, 1, HOST, "req-t") is None
