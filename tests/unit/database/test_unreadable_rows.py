"""One row that cannot be decoded stops nobody, and is not found again and again."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import attempts, builds, deletes, reschedules, tasks
from skep.database.cell.tables import instances
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, State, Task
from tests.support.rows import CELL, HOST, ME, ONE, asking, bring_to, context, staged, state_of

NOW = 10**9
TWO = InstanceUuid("two")


def second(cell: sa.Connection) -> None:
    builds.stage(cell, [staged(TWO)], 10)
    builds.settle(cell, [(TWO, 1)], 10)


def damage(cell: sa.Connection, column: str, value: bytes = b'{"flavor": 5}') -> None:
    cell.execute(instances.update().where(instances.c.uuid == ONE).values({column: value}))


@pytest.mark.parametrize("column", ["spec", "body", "context", "alternates", "metadata", "tags", "left_cells"])
def test_others_are_sent_and_the_damaged_one_is_error(cell: sa.Connection, column: str) -> None:
    bring_to(cell, State.SCHEDULED)
    second(cell)
    damage(cell, column, b"\xff{")
    assert [one.work.instance.uuid for one in builds.dispatch_due(cell, CELL, NOW, NOW, 5)] == [TWO]
    found = cell.execute(sa.select(instances.c.state, instances.c.attempt).where(instances.c.uuid == ONE)).one()
    assert tuple(found) == ("error", 2)
    assert builds.dispatch_due(cell, CELL, NOW + 1, NOW - 1, 5) == []
    assert [stale.host for stale in attempts.stale_due(cell, NOW, NOW, 5)] == [HOST], "whoever was told of it undoes it"


def test_others_find_their_next_host_and_the_damaged_one_is_error(cell: sa.Connection) -> None:
    bring_to(cell, State.RESCHEDULING)
    second(cell)
    builds.fail(cell, TWO, 1, HOST, None, NOW)
    damage(cell, "spec")
    assert [work.instance.uuid for work in reschedules.take(cell, ME, NOW, 5)] == [TWO]
    assert cell.execute(sa.select(instances.c.state).where(instances.c.uuid == ONE)).scalar_one() == "error"


@pytest.mark.parametrize("column", ["spec", "body", "context"])
def test_what_needs_no_decoding_goes_on_with_a_damaged_row(cell: sa.Connection, column: str) -> None:
    bring_to(cell, State.SPAWNING)
    damage(cell, column)
    assert builds.work(cell, ONE) is None
    assert len(reschedules.overdue(cell, State.SPAWNING, NOW, 5)) == 1
    assert builds.built(cell, ONE, 1, HOST, NOW, PowerState.RUNNING, NOW)
    assert tasks.begin(cell, ONE, asking(Task.REBOOTING, frozenset({State.ACTIVE})), context("req-r"), NOW)
    assert [task.task_id for task in tasks.due(cell, NOW, NOW, 5)] == ["req-r"]
    assert deletes.begin(cell, ONE, context("req-d"), NOW) is not None
    assert len(attempts.stale_due(cell, NOW, NOW, 5)) == 1
    attempts.close(cell, ONE, HOST, 2, NOW)
    assert deletes.deleting(cell, 5) == [ONE]
    assert deletes.finish_if_closed(cell, ONE, NOW)
    assert [gone.instance for gone in deletes.unforgotten(cell, 5)] == [ONE]
    assert deletes.begin(cell, ONE, context("req-d"), NOW) is None


def test_a_damaged_staged_row_can_be_removed(cell: sa.Connection) -> None:
    bring_to(cell, State.STAGED)
    damage(cell, "spec")
    assert [key.attempt for key in builds.unstage(cell, ONE, 1)] == [1]
    assert state_of(cell) is None
