"""Servers of the cloud's own that end, and do not start again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from skep.contracts.eventually import PATIENCE, eventually
from skep.processes.supervisor import servers as servers_module
from skep.processes.supervisor.servers import LocalServers


class _Nats:
    """Runs, and starts at once where it does not."""

    running = True

    def kill(self) -> None:
        """End what is left: nothing."""

    def stop(self) -> None:
        self.running = False

    async def start(self) -> None:
        self.running = True


class _Down:
    running = False
    password = ""

    def kill(self) -> None:
        """End what is left: nothing."""

    def start(self) -> None:
        raise RuntimeError("the disk is full")


class _SlowNats:
    """NATS while it starts for as long as it takes to read its streams."""

    running = False

    def __init__(self) -> None:
        self.begun, self.done = asyncio.Event(), asyncio.Event()

    def kill(self) -> None:
        """End what is left: nothing."""

    async def start(self) -> None:
        self.begun.set()
        await self.done.wait()
        self.running = True


class _Postgres:
    """Runs, and starts at once where it does not."""

    running = True
    password = ""

    def kill(self) -> None:
        """End what is left: nothing."""

    def start(self) -> None:
        self.running = True


class _Recovers:
    """PostgreSQL while it starts for as long as its log takes it."""

    running = False
    password = ""

    def __init__(self) -> None:
        self.begun, self.done = threading.Event(), threading.Event()

    def kill(self) -> None:
        """End what is left: nothing."""

    def start(self) -> None:
        self.begun.set()
        self.done.wait(PATIENCE)
        self.running = True


async def test_a_dead_server_does_not_wait_while_the_other_one_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "LOOK_SECONDS", 0.0)
    servers = LocalServers(tmp_path / "servers")
    servers._applied = servers.passwords.known
    nats, postgres = _Nats(), _Recovers()
    monkeypatch.setattr(servers, "_nats", nats)
    monkeypatch.setattr(servers, "_postgres", postgres)
    watching = asyncio.create_task(servers._watch())
    try:
        await asyncio.to_thread(postgres.begun.wait, PATIENCE)
        nats.running = False

        async def is_back() -> bool:
            return nats.running

        await eventually(is_back, "NATS is started again")
        assert not postgres.running
        postgres.done.set()

        async def has_recovered() -> bool:
            return postgres.running

        await eventually(has_recovered, "PostgreSQL has recovered")
    finally:
        postgres.done.set()
        watching.cancel()
        await asyncio.wait({watching})


async def test_postgresql_does_not_wait_while_nats_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "LOOK_SECONDS", 0.0)
    servers = LocalServers(tmp_path / "servers")
    servers._applied = servers.passwords.known
    nats, postgres = _SlowNats(), _Postgres()
    monkeypatch.setattr(servers, "_nats", nats)
    monkeypatch.setattr(servers, "_postgres", postgres)
    watching = asyncio.create_task(servers._watch())
    try:
        async with asyncio.timeout(PATIENCE):
            await nats.begun.wait()
        for _ in range(10):
            await asyncio.sleep(0)  # the passwords get their turn to take a lock
        postgres.running = False

        async def is_back() -> bool:
            return postgres.running

        await eventually(is_back, "PostgreSQL is started again")
        assert not nats.running
    finally:
        nats.done.set()
        watching.cancel()
        await asyncio.wait({watching})


class _MakesItsCluster(_Recovers):
    """PostgreSQL before its process is there: to stop it changes nothing yet."""

    def __init__(self) -> None:
        super().__init__()
        self.told_to_stop, self.started = threading.Event(), threading.Event()

    def start(self) -> None:
        super().start()
        self.started.set()

    def stop(self) -> None:
        self.running = False
        self.told_to_stop.set()


async def test_postgresql_that_is_being_started_is_stopped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_module, "LOOK_SECONDS", 0.0)
    servers = LocalServers(tmp_path / "servers")
    servers._applied = servers.passwords.known
    postgres = _MakesItsCluster()
    monkeypatch.setattr(servers, "_nats", _Nats())
    monkeypatch.setattr(servers, "_postgres", postgres)
    servers._watching = asyncio.create_task(servers._watch())
    try:
        assert await asyncio.to_thread(postgres.begun.wait, PATIENCE)
        stopping = asyncio.create_task(servers.stop())
        assert await asyncio.to_thread(postgres.told_to_stop.wait, PATIENCE)
    finally:
        postgres.done.set()
    async with asyncio.timeout(PATIENCE):
        await stopping
    assert await asyncio.to_thread(postgres.started.wait, PATIENCE)
    assert not postgres.running


async def test_postgresql_is_not_started_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = LocalServers(tmp_path / "servers")
    postgres = _MakesItsCluster()
    postgres.done.set()
    monkeypatch.setattr(servers, "_nats", _Nats())
    monkeypatch.setattr(servers, "_postgres", postgres)
    await servers.stop()
    servers._start_postgres()
    assert not postgres.begun.is_set()


async def test_a_server_that_does_not_start_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(servers_module, "TRY_SECONDS", 0.0)
    servers = LocalServers(tmp_path / "servers")
    servers._applied = servers.passwords.known
    monkeypatch.setattr(servers, "_nats", _Nats())
    monkeypatch.setattr(servers, "_postgres", _Down())
    with capture_logs() as lines:
        watching = asyncio.create_task(servers._watch())

        async def is_told() -> bool:
            return any(line["event"] == "server did not start" for line in lines)

        await eventually(is_told, "the server is given up for now")
        watching.cancel()
        await asyncio.wait({watching})
    told = next(line for line in lines if line["event"] == "server did not start")
    assert told == {
        "source": "skep.processes.supervisor.servers",
        "event": "server did not start",
        "log_level": "error",
        "server": "postgres",
        "error": "postgres does not start: the disk is full",
    }
