"""The embedded network service keeps the contracts of networks, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from psycopg import sql

from skep.contracts.neighbours.attached_interfaces import AttachedInterfacesContract
from skep.contracts.neighbours.network_ports import NetworkPortsContract
from skep.contracts.neighbours.networks import NetworksOfUsersContract
from skep.contracts.neighbours.networks_of_hosts import NetworksOfHostsContract
from skep.contracts.neighbours.networks_world import Networks
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, neighbours
from skep.database.opening import open_database
from skep.processes.servers.postgres import PostgresServer
from skep.standalone.networks.of_servers import EmbeddedNetworks

TEMPLATE = "networks_template"
_names = (f"networks{number}" for number in itertools.count())


class Embedded:
    @pytest.fixture
    async def networks(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[Networks]:
        yield EmbeddedNetworks(cloud.networks.settings, cloud.database, clock)  # noqa: PT022  # as the contract says


@pytest.fixture(scope="module")
def template(postgres: PostgresServer) -> str:
    """A database with its tables, to copy: the migrations take longer than a test."""

    async def fill() -> None:
        await (await open_database("api", postgres.create_database(TEMPLATE), upgrade=True)).close()

    asyncio.run(fill())
    return TEMPLATE


class OnPostgres:
    @pytest.fixture
    async def cloud(
        self, tmp_path: Path, clock: SteppedClock, postgres: PostgresServer, template: str
    ) -> AsyncIterator[ServedNeighbours]:
        name = next(_names)
        with postgres.connect() as connection:
            parts = {"name": sql.Identifier(name), "template": sql.Identifier(template)}
            connection.execute(sql.SQL("CREATE DATABASE {name} TEMPLATE {template}").format(**parts))
        database = await open_database("api", postgres.url(name), upgrade=False)
        async with neighbours(tmp_path, clock, database=database) as opened:
            yield opened


class TestOfUsers(Embedded, NetworksOfUsersContract):
    pass


class TestAttached(Embedded, AttachedInterfacesContract):
    pass


class TestPorts(Embedded, NetworkPortsContract):
    pass


class TestOfHosts(Embedded, NetworksOfHostsContract):
    pass


@pytest.mark.needs_part("postgres")
class TestOfUsersOnPostgres(Embedded, OnPostgres, NetworksOfUsersContract):
    pass


@pytest.mark.needs_part("postgres")
class TestAttachedOnPostgres(Embedded, OnPostgres, AttachedInterfacesContract):
    pass


@pytest.mark.needs_part("postgres")
class TestPortsOnPostgres(Embedded, OnPostgres, NetworkPortsContract):
    pass


@pytest.mark.needs_part("postgres")
class TestOfHostsOnPostgres(Embedded, OnPostgres, NetworksOfHostsContract):
    pass
