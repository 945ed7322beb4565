"""A lease stands in its database before work is owned under it, is renewed, and ends with its process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.contracts.databases import new_database
from skep.contracts.eventually import eventually
from skep.database import leases as lease_rows
from skep.database.cell.tables import leases
from skep.database.clocks import DatabaseClock
from skep.database.engine import Database
from skep.domain.clock import SECOND, Clock, Timestamp
from skep.domain.ids import Incarnation
from skep.reconciler.lease import Lease

ME = Incarnation("me")
OTHER = Incarnation("other")


class SetClock(Clock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = Timestamp(1_000 * SECOND)

    def now(self) -> Timestamp:
        return self.at


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = new_database(tmp_path / "cell.db", "cell", readers=1)
    yield opened
    await opened.close()


def lease_of(database: Database, clock: Clock, *, seconds: float = 3.0) -> Lease:
    return Lease(database, leases, ME, "cell_conductor", DatabaseClock(clock), seconds=seconds)


def ends(connection: sa.Connection) -> dict[str, int]:
    return {row.owner: row.lapses_at for row in connection.execute(sa.select(leases.c.owner, leases.c.lapses_at))}


async def test_it_stands_there_when_start_returns_and_is_gone_when_stop_does(database: Database) -> None:
    clock = SetClock()
    lease = lease_of(database, clock)
    await lease.start()
    assert await database.read(ends) == {ME: clock.now() + 3 * SECOND}
    await lease.stop()
    assert await database.read(ends) == {}


async def test_it_is_renewed_while_the_process_lives(database: Database) -> None:
    clock = SetClock()
    lease = lease_of(database, clock, seconds=0.003)
    await lease.start()
    clock.at = Timestamp(clock.at + 5 * SECOND)

    async def renewed() -> bool:
        return (await database.read(ends))[ME] > clock.at

    await eventually(renewed, "the lease is renewed")
    await lease.stop()


async def test_leases_of_the_long_dead_are_swept_and_of_others_left(database: Database) -> None:
    clock = SetClock()

    def others(connection: sa.Connection) -> None:
        lease_rows.renew(connection, leases, OTHER, "cell_conductor", clock.at - SECOND)
        lease_rows.renew(connection, leases, Incarnation("dead"), "cell_conductor", clock.at - 301 * SECOND)

    await database.write(others)
    lease = lease_of(database, clock)
    await lease.start()
    assert set(await database.read(ends)) == {ME, OTHER}
    await lease.stop()
    assert set(await database.read(ends)) == {OTHER}
