"""A real NATS server that carries messages and host states, and schedulers in processes of their own beside a cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from skep.config.sections import Config
from skep.contracts.cloud import quick_config
from skep.processes.servers.nats import NatsServer
from tests.support.scheduler_process import SchedulerProcess, shared
from tests.support.supervised_cloud import new_open_folder

Launch = Callable[..., SchedulerProcess]
"""Makes a scheduler that has not started; whatever it does, it is gone after the test."""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with new_open_folder() as folder:
        yield folder


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def config(nats_server: NatsServer) -> Config:
    return shared(quick_config(), nats_server.url)


@pytest.fixture
async def scheduler(tmp_path: Path, config: Config) -> AsyncIterator[Launch]:
    made: list[SchedulerProcess] = []

    def make(other: Config | None = None) -> SchedulerProcess:
        made.append(SchedulerProcess(tmp_path, other or config, name=f"scheduler{len(made) + 1}"))
        return made[-1]

    yield make
    for process in made:
        await process.kill()
