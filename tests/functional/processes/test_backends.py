"""The same cloud over each backend: servers come and go, another scheduler helps, a restart finds all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.config.sections import SynchronizerSettings
from skep.contracts.cloud import quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.domain.instances import State
from skep.processes.servers.memcached import MemcachedServer
from skep.processes.servers.nats import NatsServer
from skep.processes.servers.postgres import PostgresServer
from tests.support.scheduler_process import SchedulerProcess, shared

pytestmark = pytest.mark.needs_part("nats-server")


@asynccontextmanager
async def server_of(backend: str, folder: Path, nats: NatsServer) -> AsyncIterator[SynchronizerSettings]:
    """Run the server of a backend, if it has one of its own; yields the settings that mean it."""
    if backend == "nats":
        yield SynchronizerSettings(backend="nats", url=nats.url, expected_hosts=100)
    elif backend == "sqlite":
        yield SynchronizerSettings(backend="sql", url=f"sqlite:///{folder}/states.db")
    elif backend == "memcached":
        async with MemcachedServer() as memcached:
            yield SynchronizerSettings(backend="memcached", url=memcached.url, expected_hosts=100)
    else:
        with PostgresServer() as postgres:
            yield SynchronizerSettings(backend="sql", url=postgres.create_database("states"))


@pytest.mark.parametrize(
    "backend",
    [
        "nats",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.needs_part("postgres")),
        pytest.param("memcached", marks=pytest.mark.needs_part("memcached")),
    ],
)
async def test_a_cloud_over_each_backend(
    tmp_path: Path, nats_server: NatsServer, scheduler: Callable[..., SchedulerProcess], backend: str
) -> None:
    async with server_of(backend, tmp_path, nats_server) as synchronizer:
        config = replace(shared(quick_config(), nats_server.url), synchronizer=synchronizer)
        async with running_cloud(tmp_path / "cloud", config, cells=2, hosts=2) as cloud:
            first = await cloud.create(4)
            assert {server.state for server in await cloud.settled(first)} == {State.ACTIVE}
            other = scheduler(config)
            await other.start()
            uuids = [*first]

            async def helps() -> bool:
                uuids.extend(await cloud.create())
                return await other.placed() > 0

            await eventually(helps, "the other scheduler places servers")
            assert {server.state for server in await cloud.settled(uuids)} == {State.ACTIVE}
            await cloud.restart()
            last = await cloud.create(4)
            assert {server.state for server in await cloud.settled([*uuids, *last])} == {State.ACTIVE}
            for uuid in [*uuids, *last]:
                await cloud.delete(uuid)
            await cloud.nothing_left()
            assert await other.stop() == 0, other.tail()
