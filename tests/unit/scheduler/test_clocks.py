"""A scheduler compares its clock with the databases' by what cells tell, each by itself, and forgets a silent cell."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from skep.domain.clock import SECOND, Clock, Timestamp
from skep.domain.errors import BadRequest
from skep.domain.heard_time import SchedulerTime
from skep.domain.ids import CellUuid
from skep.messages.to_scheduler_liveness import Beat
from skep.scheduler.clocks import FORGOTTEN_SECONDS, Clocks

HOUR = 3600


class SchedulerClock(Clock):
    """The clock of a scheduler, `ahead` of the right time."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.steady = 500.0

    def now(self) -> Timestamp:
        return Timestamp(self.right() + round(self.ahead * SECOND))

    def elapsed(self) -> float:
        return self.steady

    def right(self) -> int:
        return round((10_000 + self.steady) * SECOND)


class Watched:
    """A scheduler and what it says."""

    def __init__(self) -> None:
        self.clock = SchedulerClock()
        self.told: dict[str, float | None] = {}
        self.clocks = Clocks(self.clock, "me", self.told.__setitem__)

    def beat(self, cell: str, wrong: float = 0.0, within: float = 0.0, run: str = "me") -> Beat:
        """Return a beat of a cell whose database is ahead of the right time by `wrong` seconds."""
        now = self.clock.right() + round(wrong * SECOND)
        time = SchedulerTime(run=run, elapsed=self.clock.steady, now=now, within=within)
        return Beat(cell=CellUuid(cell), database=f"name of {cell}", times=(time,))

    def hear(self, beat: Beat) -> None:
        self.clocks.take(beat)
        self.clocks.look()


def test_each_change_is_said_once_also_of_a_clock_that_is_set_after_the_beat() -> None:
    one = Watched()
    with capture_logs() as logs:
        one.hear(one.beat("a"))
        assert one.told == {"name of a": 0.0}
        one.clock.ahead = HOUR
        one.clocks.look()
        one.clocks.look()
        assert one.told == {"name of a": HOUR}
        one.clock.ahead = 0.5
        one.clocks.look()
    assert [(said["event"], said["database"]) for said in logs] == [
        ("the clock of this process is off", "name of a"),
        ("the clock of this process is right again", "name of a"),
    ]


def test_what_was_measured_a_while_ago_is_as_true_as_it_was() -> None:
    one = Watched()
    one.clock.ahead = -HOUR
    late = one.beat("a")
    one.clock.ahead = 0.0
    one.clock.steady += 40
    one.hear(late)
    assert one.told == {"name of a": 0.0}


def test_a_database_whose_clock_differs_is_not_mixed_up_with_the_others() -> None:
    one = Watched()
    with capture_logs() as logs:
        for _ in range(3):
            one.hear(one.beat("a"))
            one.hear(one.beat("b", wrong=HOUR))
    assert one.told == {"name of a": 0.0, "name of b": -HOUR}
    assert [said["database"] for said in logs] == ["name of b"]


def test_what_is_said_to_another_scheduler_or_of_none_is_passed_over() -> None:
    one = Watched()
    one.hear(one.beat("a", wrong=HOUR, run="another"))
    one.hear(Beat(cell=CellUuid("a")))
    assert one.told == {}


def test_an_answer_that_was_long_on_its_way_gives_no_warning() -> None:
    one = Watched()
    with capture_logs() as logs:
        one.hear(one.beat("a", wrong=4, within=3))
    assert logs == []


def test_a_cell_that_is_gone_or_renamed_is_shown_no_more() -> None:
    one = Watched()
    one.hear(one.beat("a"))
    one.clock.steady += FORGOTTEN_SECONDS / 2
    one.hear(one.beat("b"))
    one.hear(replace(one.beat("b"), database="c"))
    assert one.told == {"name of a": 0.0, "name of b": None, "c": 0.0}
    one.clock.steady += FORGOTTEN_SECONDS / 2 + 1
    one.clocks.look()
    assert one.told == {"name of a": None, "name of b": None, "c": 0.0}


@pytest.mark.parametrize(
    "nonsense", [{"elapsed": math.nan}, {"within": math.inf}, {"within": -1.0}, {"now": -1}, {"elapsed": math.inf}]
)
def test_nonsense_is_refused(nonsense: dict[str, float]) -> None:
    one = Watched()
    beat = one.beat("a")
    with pytest.raises(BadRequest, match="times"):
        one.clocks.take(replace(beat, times=(replace(beat.times[0], **nonsense),)))
    with pytest.raises(BadRequest, match="database"):
        one.clocks.take(replace(beat, database="x" * 300))
    one.clocks.look()
    assert one.told == {}
