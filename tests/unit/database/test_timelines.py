"""A database knows which moments it holds, also when the processes that raised them are forgotten."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from skep.database import timelines
from skep.database.cell.tables import time
from skep.domain.ids import Incarnation
from skep.domain.timelines import Moment
from skep.reconciler.lease import Time


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(timelines, "REMEMBERED_RUNS", 3)
    return 3


def lived(cell: sa.Connection, *owners: str) -> list[Moment]:
    """Have processes raise the tick one after the other; return the moments that they raised."""
    return [timelines.advance(cell, time, "cell", owner) for owner in owners]


def runs(cell: sa.Connection) -> set[str]:
    return set(cell.scalars(sa.select(time.runs.c.owner)))


def test_the_latest_processes_are_remembered(cell: sa.Connection, remembered: int) -> None:
    moments = lived(cell, *"abcde")
    timelines.forget_runs(cell, time)
    assert runs(cell) == set("cde")
    assert not any(timelines.has_lost(cell, time, moment) for moment in moments)


def test_a_moment_beyond_what_is_forgotten_is_lost_if_nobody_raised_it(cell: sa.Connection, remembered: int) -> None:
    moments = lived(cell, *"abcde")
    timelines.forget_runs(cell, time)
    forgotten = moments[1]
    assert timelines.has_lost(cell, time, replace(forgotten, tick=forgotten.tick + 1))
    assert timelines.has_lost(cell, time, replace(moments[-1], owner="of the lost time"))


def test_it_is_remembered_how_many_are_forgotten(cell: sa.Connection, remembered: int) -> None:
    moments = lived(cell, *"abcde")
    timelines.forget_runs(cell, time)
    timelines.forget_runs(cell, time)
    moments += lived(cell, *"fghi")
    timelines.forget_runs(cell, time)
    assert runs(cell) == set("ghi")
    assert not any(timelines.has_lost(cell, time, moment) for moment in moments)


def test_nothing_is_forgotten_of_few(cell: sa.Connection, remembered: int) -> None:
    lived(cell, *"abc")
    timelines.forget_runs(cell, time)
    assert runs(cell) == set("abc")
    assert timelines.has_lost(cell, time, Moment("cell", 1, 1, "of the lost time"))


def test_a_process_that_begins_forgets(cell: sa.Connection, remembered: int) -> None:
    for owner in "abcdef":
        Time(time, "cell", lambda *_: False).advance(cell, Incarnation(owner), 1)
    assert len(runs(cell)) == remembered + 1
