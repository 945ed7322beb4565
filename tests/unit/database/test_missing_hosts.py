"""Attempts on hosts that their cell does not know: an operator gives them up; a host that comes back has them again."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import agents, attempts, deletes, missing_hosts, tasks
from skep.domain.actions import ACTIONS
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import State
from tests.support.rows import HOST, ONE, any_open, bring_to, context, everything, state_of

NODE = NodeUuid(f"node-{HOST}")
NOW = 100


def register(cell: sa.Connection) -> None:
    agents.register(cell, AgentIdentity(node=NODE, host=HOST, process=Incarnation("p")), NOW)


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (State.SCHEDULED, State.RESCHEDULING),
        (State.BUILDING, State.RESCHEDULING),
        (State.SPAWNING, State.ERROR),
        (State.ACTIVE, State.ERROR),
        (State.STOPPED, State.ERROR),
    ],
)
def test_what_becomes_of_a_server_whose_host_is_not_known(cell: sa.Connection, state: State, after: State) -> None:
    bring_to(cell, state)
    assert missing_hosts.give_up(cell, ONE, 1, NOW) is not None
    assert state_of(cell) is after
    assert not any_open(cell)
    assert missing_hosts.give_up(cell, ONE, 1, NOW) is None, "a repeat finds nothing"
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None
    assert state_of(cell) is State.DELETED, "it can be deleted at once"


def test_a_delete_that_waits_for_a_host_that_is_not_known_ends(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None
    assert state_of(cell) is State.ACTIVE
    assert missing_hosts.give_up(cell, ONE, 1, NOW) is not None
    assert state_of(cell) is State.DELETED


@pytest.mark.parametrize("state", [State.SCHEDULED, State.ACTIVE])
def test_nothing_is_given_up_of_a_host_that_is_known(cell: sa.Connection, state: State) -> None:
    register(cell)
    bring_to(cell, state)
    before = everything(cell)
    assert missing_hosts.give_up(cell, ONE, 1, NOW) is None
    assert everything(cell) == before


def test_what_is_on_its_way_is_left_to_the_super_conductor(cell: sa.Connection) -> None:
    bring_to(cell, State.STAGED)
    assert missing_hosts.give_up(cell, ONE, 1, NOW) is None
    assert state_of(cell) is State.STAGED


def test_a_host_that_comes_back_has_its_attempts_again(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert missing_hosts.give_up(cell, ONE, 1, NOW) is not None
    register(cell)
    assert missing_hosts.came_back(cell, NODE) == 1
    [tried] = attempts.history(cell, ONE)
    assert (tried.open, tried.outcome) == (True, "built"), "the guest may be whole: the attempt was not raised"


def test_actions_that_it_ends_are_told_of(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert tasks.begin(cell, ONE, ACTIONS["stop"], context("req-stop"), NOW)
    ended = missing_hosts.give_up(cell, ONE, 1, NOW)
    assert ended is not None
    assert [(one.action, one.outcome, one.context.request_id) for one in ended] == [("stop", "error", "req-stop")]
    over = deletes.begin(cell, ONE, context("req-delete"), NOW)
    assert over is not None
    assert [(one.action, one.outcome) for one in over] == [("delete", "ok")], "it is deleted at once"
