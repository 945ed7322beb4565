"""A task that was asked of a server whose host was given up, beside the build that this host still ends."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import builds, instances, tasks
from skep.domain.instances import PowerState, State, Task
from tests.support.rows import HOST, ONE, asking, context, give_up, state_of

NOW = 100


def ask(cell: sa.Connection) -> None:
    give_up(cell)
    assert tasks.begin(cell, ONE, asking(Task.REBOOTING_HARD, frozenset({State.ERROR})), context("req-r"), NOW)


def built(cell: sa.Connection) -> bool:
    return builds.built(cell, ONE, 1, HOST, NOW, PowerState.RUNNING, NOW) is not None


def done(cell: sa.Connection, power: PowerState, error: str | None = None, *, gone: bool = False) -> bool:
    return tasks.done(cell, ONE, 1, "req-r", power, error, NOW, gone=gone) is not None


def test_a_guest_that_is_whole_makes_its_server_active_whatever_was_asked_of_it_meanwhile(cell: sa.Connection) -> None:
    ask(cell)
    assert built(cell)
    server = instances.get(cell, ONE)
    assert server is not None
    assert (server.state, server.task, server.fault) == (State.ACTIVE, Task.REBOOTING_HARD, None)
    assert built(cell), "the host's repeat is answered the same"
    assert done(cell, PowerState.RUNNING)
    server = instances.get(cell, ONE)
    assert server is not None
    assert (server.state, server.task) == (State.ACTIVE, None)


def test_a_task_that_is_told_before_the_build_leaves_the_build_to_be_told(cell: sa.Connection) -> None:
    ask(cell)
    assert done(cell, PowerState.RUNNING)
    assert state_of(cell) is State.ERROR
    assert built(cell)
    assert state_of(cell) is State.ACTIVE


@pytest.mark.parametrize("power", PowerState)
def test_a_task_never_makes_active_what_was_not_built(cell: sa.Connection, power: PowerState) -> None:
    ask(cell)
    before = instances.get(cell, ONE)
    assert done(cell, power, "InstanceNotFound: there is no guest", gone=True)
    server = instances.get(cell, ONE)
    assert server is not None
    assert before is not None
    assert (server.state, server.task, server.fault) == (State.ERROR, None, before.fault)
