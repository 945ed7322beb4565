"""`skep db` over a cloud of processes that does not run: its own PostgreSQL is started, and stopped again."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from skep.contracts.eventually import PATIENCE, eventually
from skep.processes.directory import StateDirectory
from skep.processes.supervisor.servers import LocalServers

pytestmark = [pytest.mark.needs_part("nats-server"), pytest.mark.needs_part("postgres")]
NAMES = ("api", "cell0", "cell1")


class Stopped:
    """The state directory of a cloud of processes, whose servers run only for the length of a block."""

    def __init__(self, folder: Path) -> None:
        self.directory = StateDirectory(folder / "state")
        self.backup = folder / "backup"
        self.folder = folder

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[LocalServers]:
        """Start the servers as a cloud does, which holds the directory and writes down where they are."""
        self.directory.open(shared=True, passed=True)
        servers = LocalServers(self.directory.servers)
        try:
            await servers.start()
            for name in NAMES:
                await servers.make_database(name)
            cells = [{"name": "cell1", "database_url": servers.database_url("cell1")}]
            variables = {
                "SKEP_DATABASE__API_URL": servers.database_url("api"),
                "SKEP_DATABASE__CELL0_URL": servers.database_url("cell0"),
                "SKEP_CELLS": json.dumps(cells),
            }
            lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
            self.directory.processes_env.write_text("\n".join(lines))
            yield servers
        finally:
            await servers.stop()
            self.directory.close()

    async def launch(self, *arguments: str, programs: Path | None = None) -> asyncio.subprocess.Process:
        """Start a command of `skep db` that knows the directory only; `programs` are found before others."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SKEP_", "OS_"))}
        first = f"{programs}{os.pathsep}" if programs else ""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "skep.cli", "db", *arguments),
            env=kept | {"SKEP_STATE__DIRECTORY": str(self.directory.root), "PATH": f"{first}{os.environ['PATH']}"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def said(self, *arguments: str, status: int = 0) -> str:
        """Run a command of `skep db` and return what it says."""
        process = await self.launch(*arguments)
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode == status, said.decode()
        return said.decode()

    async def restored(self, *, status: int = 0) -> str:
        return await self.said("restore", str(self.backup), "--yes", status=status)

    @property
    def runs(self) -> bool:
        """Whether PostgreSQL has not ended in order."""
        return (LocalServers(self.directory.servers).postgres_folder / "data" / "postmaster.pid").exists()


@pytest.fixture
async def cloud(open_folder: Path) -> Stopped:
    """Make a cloud that was copied while its servers ran."""
    made = Stopped(open_folder)
    async with made.servers():
        await made.said("upgrade")
        await made.said("backup", str(made.backup))
    return made


def _ask(url: str, statement: str) -> list[tuple[object, ...]]:
    plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        answer = connection.execute(statement)
        return answer.fetchall() if answer.description else []


async def test_what_was_changed_and_lost_is_back(cloud: Stopped) -> None:
    async with cloud.servers() as servers:
        _ask(servers.database_url("api"), "UPDATE cells SET name = 'other' WHERE name = 'cell1'")
        servers._postgres.drop_database("skep_cell1")
        taken = int(str(sa.make_url(servers.database_url("api")).port))
    noted = cloud.directory.processes_env.read_bytes()
    with socket.create_server(("127.0.0.1", taken)):
        assert "Restored: cell0, cell1, api." in await cloud.restored()
    assert not cloud.runs
    assert cloud.directory.processes_env.read_bytes() == noted
    async with cloud.servers() as servers:
        names = _ask(servers.database_url("api"), "SELECT name FROM cells ORDER BY name")
        assert names == [("cell0",), ("cell1",)]
        here = servers.database_url("cell1")
        assert _ask(here, "SELECT reason FROM timeline") == [("skep db restore",)]
        assert sa.make_url(here).port == taken, "the start has its port again"
        older = sa.make_url(here).set(port=1)
        assert servers.renewed_database_url(older.render_as_string(hide_password=False)) == here
        others = older.set(password="another").render_as_string(hide_password=False)
        assert servers.renewed_database_url(others) == others
        said = " ".join((await cloud.restored(status=2)).split())
        assert "in use by another process of Skep; stop it first: Ctrl-C where `skep up` runs" in said
    assert "cell1" in await cloud.said("backup", str(cloud.folder / "once more"))
    assert not cloud.runs


async def test_it_is_stopped_when_a_restore_fails_or_is_broken_off(cloud: Stopped) -> None:
    copy = (cloud.backup / "cell1.dump").read_bytes()
    (cloud.backup / "cell1.dump").write_bytes(copy[: len(copy) // 2])
    said = await cloud.restored(status=2)
    assert len(said.splitlines()) == 1, said
    assert "pg_restore of postgresql" in said
    assert not cloud.runs
    cloud.directory.processes_env.rename(cloud.folder / "kept.env")
    said = await cloud.restored(status=2)
    assert (len(said.splitlines()), "`processes.env`" in said) == (1, True), said
    (cloud.folder / "kept.env").rename(cloud.directory.processes_env)
    programs = cloud.folder / "programs"
    programs.mkdir()
    (programs / "pg_restore").write_text(f"#!/bin/sh\necho > {programs}/began\nexec sleep 600\n")
    (programs / "pg_restore").chmod(0o755)
    process = await cloud.launch("restore", str(cloud.backup), "--yes", programs=programs)

    async def began() -> bool:
        assert process.returncode is None
        return (programs / "began").exists()

    await eventually(began, "the restore has begun")
    assert cloud.runs
    process.send_signal(signal.SIGINT)
    said_last, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert (process.returncode, "Aborted!" in said_last.decode()) == (1, True), said_last
    assert not cloud.runs
