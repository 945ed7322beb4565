"""Databases of PostgreSQL's go back in time: restored from a backup, or by a replica that lagged and was promoted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg
import pytest
import sqlalchemy as sa

from skep.config.sections import CellSettings, Config, DatabaseSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.databases import locations_of
from skep.database.engine import Database
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, State
from skep.processes.backups import back_up, restore
from skep.processes.directory import StateDirectory
from skep.processes.servers.postgres import PostgresServer
from tests.functional.going_back.story import labels, remembered
from tests.functional.going_back.test_since import in_doubt
from tests.functional.going_back.test_walk import over
from tests.support.replicas import PROGRAM, caught_up, cut_off, promote, replica_of

pytestmark = pytest.mark.needs_part("postgres")
NAMES = ("api", "cell0", "cell1")


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def on(postgres: PostgresServer, *names: str) -> Config:
    """Return the configuration of a cloud of which these databases are on the server."""
    urls = {name: postgres.create_database(name) for name in names}
    return msgspec.structs.replace(
        quick_config(),
        database=DatabaseSettings(api_url=urls.get("api", ""), cell0_url=urls.get("cell0", "")),
        cells=(CellSettings(name="cell1", database_url=urls["cell1"]),),
    )


class Once:
    """Does something in the moment in which a build is first in a state, before anything else is written."""

    def __init__(self, url: str, state: State) -> None:
        self._url = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._state = state
        self.done = False

    def reached(self) -> bool:
        with psycopg.connect(self._url) as connection:
            query = "SELECT FROM instances WHERE state = %s"
            return connection.execute(query, (self._state.value,)).fetchone() is not None


@contextmanager
def when(database: Database, state: State, act: object) -> Iterator[Once]:
    """Have `act` called in the writer's thread when a row of a cell is first in a state."""
    assert isinstance(database.location, str)
    once = Once(database.location, state)

    def look(moment: str, *_: object) -> None:
        if moment == "after" and not once.done and once.reached():
            once.done = True
            assert callable(act)
            act()

    database.commit_hook = look
    try:
        yield once
    finally:
        database.commit_hook = None
    assert once.done


async def as_they_were(cloud: Cloud, servers: Sequence[Instance], guests: object) -> None:
    """Wait until no database recovers; see that servers and guests are what they were, and nothing is left open."""
    await over(cloud)
    found = await cloud.settled([one.uuid for one in servers])
    assert {(one.uuid, one.state, one.host) for one in found} == {(one.uuid, one.state, one.host) for one in servers}
    assert await labels(cloud) == guests
    assert await in_doubt(cloud) == set()


async def test_backups_made_while_a_server_is_built_are_restored(tmp_path: Path, postgres: PostgresServer) -> None:
    config, directory, backup = on(postgres, *NAMES), StateDirectory(tmp_path / "state"), tmp_path / "backup"
    places = locations_of(config, directory, ["cell1"])
    async with running_cloud(directory.root, config, cells=1, hosts=2) as cloud:
        uuids: list[InstanceUuid] = []
        with when(
            cloud.plane.databases.cells["cell1"],
            State.SPAWNING,
            lambda: back_up(places, directory, backup, cloud.clock.now(), {"cell1"}),
        ):
            uuids += await cloud.create()
            servers = await cloud.settled(uuids)
        guests = await labels(cloud)
        await remembered(cloud)
    for names in (["cell1"], ["api"], list(NAMES)):
        restore(places, directory, backup, names, cloud.clock.now())
        async with running_cloud(directory.root, config, cells=1, hosts=2) as cloud:
            await as_they_were(cloud, servers, guests)


@pytest.mark.needs_part(PROGRAM)
async def test_a_replica_that_lagged_is_promoted(tmp_path: Path, postgres: PostgresServer) -> None:
    """It lacks what was written since a build was in its midst, and a server that was made since. Nobody tells it."""
    config = on(postgres, "cell1")
    replica = replica_of(postgres)
    try:
        async with running_cloud(tmp_path / "state", config, cells=1, hosts=2) as cloud:
            servers = await cloud.settled(await cloud.create())
            await caught_up(postgres, replica)
            with when(cloud.plane.databases.cells["cell1"], State.BUILDING, lambda: cut_off(replica)):
                servers += await cloud.settled(await cloud.create())
            servers += await cloud.settled(await cloud.create())
            guests = await labels(cloud)
            await remembered(cloud)
        promote(replica, postgres)
        async with running_cloud(tmp_path / "state", config, cells=1, hosts=2) as cloud:
            await as_they_were(cloud, servers, guests)
            database = cloud.plane.databases.cells["cell1"]
            reason = await database.read(lambda connection: connection.scalar(sa.text("SELECT reason FROM timeline")))
            assert " saw timeline 1, tick " in str(reason)
    finally:
        replica.remove()
