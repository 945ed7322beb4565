"""A real NATS server that carries messages and host states, and schedulers in processes of their own beside a cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.config.sections import Config, SchedulerSettings, SynchronizerSettings, TransportSettings
from skep.processes.servers.nats import NatsServer
from skep.testing.cloud import quick_config
from skep.testing.scheduler_process import SchedulerProcess

Launch = Callable[..., SchedulerProcess]
"""Makes a scheduler that has not started; whatever it does, it is gone after the test."""


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def config(nats_server: NatsServer) -> Config:
    return shared(quick_config(), nats_server.url)


def shared(config: Config, url: str, *, embedded: bool = True) -> Config:
    """Return the configuration with NATS as transport and as backend."""
    return replace(
        config,
        transport=TransportSettings(kind="nats", url=url),
        synchronizer=SynchronizerSettings(backend="nats", url=url, expected_hosts=100),
        scheduler=SchedulerSettings(embedded=embedded),
    )


@pytest.fixture
async def scheduler(tmp_path: Path, config: Config) -> AsyncIterator[Launch]:
    made: list[SchedulerProcess] = []

    def make(other: Config | None = None) -> SchedulerProcess:
        made.append(SchedulerProcess(tmp_path, other or config, name=f"scheduler{len(made) + 1}"))
        return made[-1]

    yield make
    for process in made:
        await process.kill()
