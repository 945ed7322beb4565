"""A database's clock judges, whatever the clocks of the processes say."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database import clocks
from skep.database import leases as lease_rows
from skep.database.cell import reschedules
from skep.database.cell.tables import leases
from skep.database.clocks import DatabaseClock
from skep.domain.clock import SECOND, Clock, Timestamp
from skep.domain.ids import Incarnation
from skep.domain.instances import State
from tests.support.rows import bring_to

HOUR = 3600 * SECOND
DEAD, LIVING, ME = Incarnation("dead"), Incarnation("living"), Incarnation("me")
NOW = 10 * HOUR
LEASE = 5 * SECOND


class Skewed(Clock):
    """A wall clock that is off."""

    def __init__(self, by: int) -> None:
        self.by = by

    def now(self) -> Timestamp:
        return Timestamp(super().now() + self.by)


def has_clock(connection: sa.Connection) -> bool:
    return connection.dialect.name == "postgresql"


def test_a_process_tells_the_databases_time_however_wrong_its_own_is(cell: sa.Connection) -> None:
    right, ahead, behind = (DatabaseClock(Skewed(by)) for by in (0, HOUR, -HOUR))
    for clock in (right, ahead, behind):
        clock.look(cell)
    if has_clock(cell):
        assert abs(ahead.now() - right.now()) < HOUR / 2
        assert abs(behind.now() - right.now()) < HOUR / 2
        assert ahead.ahead > 1800
        assert behind.ahead < -1800
        assert abs(clocks.now(cell, Skewed(HOUR)) - right.now()) < HOUR / 2
    else:
        assert ahead.now() - right.now() > HOUR / 2, "a file has no clock"
        assert ahead.ahead == 0


def test_before_the_first_look_it_is_the_process_own() -> None:
    assert DatabaseClock(Skewed(HOUR)).now() - Clock().now() > HOUR / 2


def owned(cell: sa.Connection, lapses_at: int, length: int | None) -> bool:
    """Tell whether a row that needs another host is left to an owner with this lease."""
    bring_to(cell, State.RESCHEDULING)
    lease_rows.renew(cell, leases, LIVING, "cell_conductor", NOW + LEASE, length=LEASE)
    assert len(reschedules.take(cell, LIVING, NOW, 5)) == 1
    lease_rows.renew(cell, leases, LIVING, "cell_conductor", lapses_at, length=length)
    return reschedules.take(cell, ME, NOW, 5) == []


def test_a_lease_is_believed_up_to_twice_its_length(cell: sa.Connection) -> None:
    assert owned(cell, NOW + 2 * LEASE, LEASE)


def test_a_lease_that_lies_further_ahead_is_not_believed(cell: sa.Connection) -> None:
    assert not owned(cell, NOW + 2 * LEASE + 1, LEASE)


def test_one_of_an_older_release_is_believed_for_ten_minutes(cell: sa.Connection) -> None:
    assert owned(cell, NOW + 600 * SECOND, None)


def test_one_of_an_older_release_that_is_an_hour_ahead_is_not(cell: sa.Connection) -> None:
    assert not owned(cell, NOW + HOUR, None)


def test_a_lease_says_how_far_its_process_clock_is_off(cell: sa.Connection) -> None:
    lease_rows.renew(cell, leases, ME, "cell_conductor", NOW, "m1", length=LEASE, ahead=1.5)
    lease_rows.renew(cell, leases, ME, "cell_conductor", NOW, "m1", length=LEASE, ahead=-3600.0)
    [row] = lease_rows.every(cell, leases)
    assert (row.host, row.ahead) == ("m1", -3600.0)
