"""When hosts are told again, and what they have in hand is not."""

from __future__ import annotations

import itertools

import msgspec
import sqlalchemy as sa

from skep.database.cell import agents, attempts, builds, deletes, reschedules, tasks
from skep.database.cell.tables import instances
from skep.domain.clock import SECOND
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import State, Task
from tests.support.rows import CELL, HOST, ONE, asking, bring_to, context

START = 1000 * SECOND
RESEND = 2 * SECOND


def sent_times(cell: sa.Connection, until: int) -> list[int]:
    """Return the seconds at which a pass of each second sends the build."""
    return [
        second
        for second in range(until)
        if builds.dispatch_due(cell, CELL, START + second * SECOND, START + second * SECOND - RESEND, 5, START)
    ]


def test_a_build_that_nobody_answers_is_sent_less_and_less_often(cell: sa.Connection) -> None:
    bring_to(cell, State.SCHEDULED)
    times = sent_times(cell, 200)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[0] <= 4
    assert pauses == sorted(pauses)
    assert 60 <= max(pauses) <= 61


def test_a_build_in_the_hands_of_its_host_is_not_sent_again(cell: sa.Connection) -> None:
    bring_to(cell, State.SCHEDULED)
    assert builds.dispatch_due(cell, CELL, START, START - RESEND, 5, START - 15 * SECOND)
    for second in range(1, 100):
        now = START + second * SECOND
        assert builds.progressed(cell, HOST, [(ONE, 1)], now) == 1
        assert builds.dispatch_due(cell, CELL, now, now - RESEND, 5, now - 15 * SECOND) == []
    silent = START + 115 * SECOND
    assert builds.dispatch_due(cell, CELL, silent, silent - RESEND, 5, silent - 15 * SECOND)


def test_progress_counts_for_its_attempt_and_host_only(cell: sa.Connection) -> None:
    bring_to(cell, State.BUILDING)
    before = cell.execute(sa.select(instances.c.step_at)).scalar_one()
    assert builds.progressed(cell, "host2", [(ONE, 1)], START) == 0
    assert builds.progressed(cell, HOST, [(ONE, 2)], START) == 0
    assert cell.execute(sa.select(instances.c.step_at)).scalar_one() == before
    assert len(reschedules.overdue(cell, State.BUILDING, START, 5)) == 1
    assert builds.progressed(cell, HOST, [(ONE, 1)], START) == 1
    assert reschedules.overdue(cell, State.BUILDING, START, 5) == []


def test_a_deadline_begins_when_the_host_is_told(cell: sa.Connection) -> None:
    bring_to(cell, State.SCHEDULED)
    assert reschedules.overdue(cell, State.SCHEDULED, START, 5) == [], "its host was never told"
    builds.dispatch_due(cell, CELL, START, START - RESEND, 5)
    assert reschedules.overdue(cell, State.SCHEDULED, START, 5) == []
    assert [one.host for one in reschedules.overdue(cell, State.SCHEDULED, START + 1, 5)] == [HOST]


def test_a_task_that_its_host_does_not_end_leaves_the_server_as_it_was(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert tasks.begin(cell, ONE, asking(Task.POWERING_OFF, frozenset({State.ACTIVE})), context("req-s"), START)
    assert tasks.overdue(cell, START + SECOND, 5) == [], "its host was never told"
    [task] = tasks.due(cell, START, START, 5)
    assert tasks.progressed(cell, "host2", [(ONE, "req-s")], START + SECOND) == 0
    assert tasks.progressed(cell, HOST, [(ONE, "req-s")], START + SECOND) == 1
    assert tasks.overdue(cell, START + SECOND, 5) == []
    assert tasks.overdue(cell, START + 2 * SECOND, 5) == [task]
    assert tasks.give_up(cell, task, START + 3 * SECOND)
    assert tasks.give_up(cell, task, START + 3 * SECOND) is None
    found = cell.execute(sa.select(instances.c.state, instances.c.task)).one()
    assert tuple(found) == ("active", None)


def test_a_host_whose_agent_starts_anew_is_told_at_once(cell: sa.Connection) -> None:
    identity = AgentIdentity(node=NodeUuid(f"node-{HOST}"), host=HOST, process=Incarnation("first"))
    agents.register(cell, identity, 1)
    bring_to(cell, State.SCHEDULED)
    sent_times(cell, 100)
    now = START + 100 * SECOND
    assert builds.dispatch_due(cell, CELL, now, now - RESEND, 5) == []
    agents.register(cell, identity, now)
    assert builds.dispatch_due(cell, CELL, now, now - RESEND, 5) == [], "the same process remembers"
    agents.register(cell, msgspec.structs.replace(identity, process=Incarnation("second")), now)
    assert builds.dispatch_due(cell, CELL, now, now - RESEND, 5)


def test_a_dead_host_is_told_of_deletes_less_and_less_often(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    deletes.begin(cell, ONE, context("req-d"), START)
    times, now = [], START
    for second in range(300):
        now = START + second * SECOND
        found = attempts.stale_due(cell, now, now - RESEND, 5)
        times += [second] * len(found)
    assert times == [0, 3, 7, 15, 31, 63, 123, 183, 243]
    identity = AgentIdentity(node=NodeUuid(f"node-{HOST}"), host=HOST, process=Incarnation("first"))
    agents.register(cell, identity, 1)
    assert attempts.stale_due(cell, now, now - RESEND, 5) == []
    agents.register(cell, msgspec.structs.replace(identity, process=Incarnation("second")), now)
    [stale] = attempts.stale_due(cell, now, now - RESEND, 5)
    assert stale.sends > 1, "it is not the first that is heard of this delete"
