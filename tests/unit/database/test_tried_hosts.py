"""Which hosts count as tried: those that were told of an attempt, each once."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell import attempts, builds, reschedules
from skep.domain.instances import State
from tests.support.rows import CELL, ME, ONE, bring_to, placed, staged

NOW = 100


def outcomes(cell: sa.Connection) -> list[tuple[int, bool, str | None]]:
    return [(one.attempt, one.open, one.outcome) for one in attempts.history(cell, ONE)]


def test_a_staged_row_that_was_overwritten_tried_no_host(cell: sa.Connection) -> None:
    for attempt in (1, 2, 3):
        builds.stage(cell, [staged(attempt=attempt, host=f"host{attempt}")], NOW)
    assert attempts.tried_nodes(cell, ONE) == ["node-host3"]
    assert outcomes(cell) == [(1, True, "not_sent"), (2, True, "not_sent"), (3, True, None)]


def test_a_build_that_was_taken_away_before_it_was_sent_tried_no_host(cell: sa.Connection) -> None:
    bring_to(cell, State.SCHEDULED)
    assert reschedules.take_from_host(cell, ONE, 1, NOW)
    assert attempts.tried_nodes(cell, ONE) == []


def test_a_host_that_was_told_was_tried(cell: sa.Connection) -> None:
    bring_to(cell, State.SCHEDULED)
    assert builds.dispatch_due(cell, CELL, NOW, NOW, 1)
    assert reschedules.take_from_host(cell, ONE, 1, NOW)
    assert attempts.tried_nodes(cell, ONE) == ["node-host1"]


def test_a_host_that_was_tried_twice_counts_once(cell: sa.Connection) -> None:
    bring_to(cell, State.BUILDING)
    assert reschedules.take_from_host(cell, ONE, 1, NOW)
    [work] = reschedules.take(cell, ME, NOW, 1)
    assert reschedules.rescheduled(cell, ONE, work.instance.attempt, placed("host1"), NOW)
    assert attempts.tried_nodes(cell, ONE) == ["node-host1"]
