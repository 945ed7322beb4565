"""The limits of one user hold when several processes charge at once, although they are read before they are charged.

In a SQLite file two transactions never write at once; in PostgreSQL the lock of all writers sees to it.
"""

from __future__ import annotations

import asyncio
import threading

import pytest
import sqlalchemy as sa

from skep.contracts.eventually import PATIENCE, eventually
from skep.database.api import quotas
from skep.database.api.schema import metadata
from skep.database.api.tables import quota_charges
from skep.database.engine import Database
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, ProjectId, UserId
from skep.domain.quotas import COUNTED, UNLIMITED, charge_of
from skep.processes.servers.postgres import PostgresServer

pytestmark = pytest.mark.needs_part("postgres")

PROJECT, USER = ProjectId("p"), UserId("u")
FLAVOR = Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1)
FREE = dict.fromkeys(COUNTED, UNLIMITED)
OF_USER = {**FREE, "instances": 1}


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """An empty API database that processes can share."""
    made = postgres.create_database("quotas_of_users")
    engine = sa.create_engine(made)
    metadata.create_all(engine)
    engine.dispose()
    return made


def charge(connection: sa.Connection, name: str) -> quotas.Exceeded | None:
    charges = {InstanceUuid(name): charge_of(FLAVOR)}
    return quotas.charge(connection, PROJECT, USER, charges, FREE, user_limits=OF_USER)


def waiting_for_a_lock(connection: sa.Connection) -> int:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return int(connection.execute(sa.text(waits)).scalar_one())


def charged(connection: sa.Connection) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(quota_charges)).scalar_one()


async def test_of_two_creates_at_a_users_last_server_one_is_refused(url: str) -> None:
    """The second begins while the first has charged and not committed: it must not judge by what it could see then."""
    one, other = Database(url), Database(url)
    begun, go_on = threading.Event(), threading.Event()

    def first(connection: sa.Connection) -> quotas.Exceeded | None:
        refused = charge(connection, "one")
        begun.set()
        go_on.wait(PATIENCE)
        return refused

    try:
        slow = asyncio.ensure_future(one.write(first))
        await asyncio.to_thread(begun.wait, PATIENCE)
        late = asyncio.ensure_future(other.write(lambda connection: charge(connection, "two")))

        async def late_one_waits() -> bool:
            return await one.read(waiting_for_a_lock) == 1

        await eventually(late_one_waits, "the second create waits for the first")
        go_on.set()
        assert await slow is None
        refused = await late
        assert refused is not None
        assert refused.resources == ("instances",)
        assert await one.read(charged) == 1
    finally:
        go_on.set()
        await one.close()
        await other.close()
