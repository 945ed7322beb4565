"""Servers of the cloud's own that end, and do not start again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from skep.contracts.eventually import eventually
from skep.processes.supervisor import servers as servers_module
from skep.processes.supervisor.servers import LocalServers


class _Runs:
    running = True


class _Down:
    running = False
    password = ""

    def kill(self) -> None:
        """End what is left: nothing."""

    def start(self) -> None:
        raise RuntimeError("the disk is full")


async def test_a_server_that_does_not_start_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(servers_module, "TRY_SECONDS", 0.0)
    servers = LocalServers(tmp_path / "servers")
    servers._applied = servers.passwords.known
    monkeypatch.setattr(servers, "_nats", _Runs())
    monkeypatch.setattr(servers, "_postgres", _Down())
    with capture_logs() as lines:
        watching = asyncio.create_task(servers._watch())

        async def is_told() -> bool:
            return any(line["event"] == "server does not start" for line in lines)

        await eventually(is_told, "the server is given up for now")
        watching.cancel()
        await asyncio.wait({watching})
    told = next(line for line in lines if line["event"] == "server does not start")
    assert told == {
        "source": "skep.processes.supervisor.servers",
        "event": "server does not start",
        "log_level": "error",
        "server": "postgres",
        "error": "postgres does not start: the disk is full",
    }
