"""NATS and PostgreSQL of a cloud of processes: only who knows a password gets in, also after an upgrade."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from skep.domain.errors import Misconfigured
from skep.processes.directory import StateDirectory
from skep.processes.servers import postgres as postgres_module
from skep.processes.servers import postgres_access as access
from skep.processes.servers.postgres import PostgresServer
from skep.processes.servers.programs import find_program
from skep.processes.supervisor import servers as module
from skep.processes.supervisor.passwords import replaced
from skep.processes.supervisor.servers import LocalServers

pytestmark = [pytest.mark.needs_part("nats-server"), pytest.mark.needs_part("postgres")]


def _of_an_older_release(folder: Path) -> None:
    """Make a cluster that trusts everybody, with a table in the database of a cell."""
    initdb, postgres = find_program("initdb"), find_program("postgres")
    assert initdb is not None
    assert postgres is not None
    server = PostgresServer(folder)
    made = [str(initdb), "-D", str(server.data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C"]
    subprocess.run(made, check=True, capture_output=True, cwd=folder, **server._as)
    statements = (
        "CREATE TABLE kept (id int GENERATED ALWAYS AS IDENTITY, what text);INSERT INTO kept (what) VALUES ('it');"
    )
    for database, text in (("postgres", "CREATE DATABASE skep_cell1;"), ("skep_cell1", statements)):
        subprocess.run(
            [str(postgres), "--single", "-j", "-D", str(server.data), database],
            input=text.replace(";", ";\n\n"),
            text=True,
            check=True,
            capture_output=True,
            cwd=folder,
            **server._as,
        )


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def _said_by_nats(url: str, options: str) -> str:
    with socket.create_connection(("127.0.0.1", _port(url)), timeout=10) as connection:
        file = connection.makefile("rwb")
        assert file.readline().startswith(b"INFO ")
        file.write(f"CONNECT {options}\r\nPING\r\n".encode())
        file.flush()
        return next(line for line in map(bytes.strip, file) if line != b"+OK").decode()


def _open_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.lstat().st_mode & 0o066]


async def test_a_stranger_gets_into_neither(open_folder: Path) -> None:
    directory = StateDirectory(open_folder / "state")
    directory.make(passed=True)
    servers = LocalServers(directory.servers)
    try:
        await servers.start()
        await servers.make_database("cell1")
        await servers.make_database("cell2")
        url = servers.database_url("cell1")
        with psycopg.connect(_plain(url)) as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("skep_cell1",)
        for stranger in ("postgres@", "skep_cell1@", "postgres:guessed@", "skep_cell1:guessed@"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(f"postgresql://{stranger}127.0.0.1:{_port(url)}/skep_cell1")
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(_plain(url).replace("/skep_cell1?", "/skep_cell2?"))
        user, _, password = servers.nats_sign_in.read_text().strip().partition(":")
        known = json.dumps({"user": user, "pass": password})
        assert "@" not in servers.nats_url
        assert _said_by_nats(servers.nats_url, known) == "PONG"
        assert _said_by_nats(servers.nats_url, "{}") == "-ERR 'Authorization Violation'"
    finally:
        await servers.stop()
    assert _open_below(open_folder) == []


async def test_a_cluster_that_trusted_everybody_is_closed_and_keeps_its_data(open_folder: Path) -> None:
    folder = open_folder / "servers"
    folder.mkdir()
    folder.chmod(0o755)
    _of_an_older_release(folder / "postgres")
    for passwords_are_lost in (False, True):
        if passwords_are_lost:
            (folder / "passwords.json").unlink()
        servers = LocalServers(folder)
        try:
            await servers.start()
            await servers.make_database("cell1")
            url = servers.database_url("cell1")
            with psycopg.connect(_plain(url)) as connection:
                assert connection.execute("SELECT what FROM kept").fetchall()[0] == ("it",)
                connection.execute("INSERT INTO kept (what) VALUES ('more')")
                connection.execute("ALTER TABLE kept ADD COLUMN later" + str(passwords_are_lost) + " text")
            with pytest.raises(psycopg.OperationalError, match="no password"):
                psycopg.connect(f"postgresql://postgres@127.0.0.1:{_port(url)}/postgres")
        finally:
            await servers.stop()


async def test_a_password_whose_answer_was_lost_is_found_out(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "START_SECONDS", 2.0)
    directory = StateDirectory(open_folder / "state")
    directory.make(passed=True)
    servers = LocalServers(directory.servers)
    postgres = servers._postgres
    try:
        postgres.start()
        for dies in (False, True):
            servers.passwords.change(replaced)
            fresh = servers.passwords.of("postgres")
            with postgres.connect() as connection:
                access.set_password(connection, "postgres", fresh)
            if dies:
                postgres.kill()
                await asyncio.to_thread(servers._start_postgres)
            else:
                servers._give_roles()
            assert access.is_closed(postgres.data, fresh)
            postgres.connect().close()
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(f"postgresql://postgres:guessed@127.0.0.1:{postgres.port}/postgres")
    finally:
        await servers.stop()


def test_data_is_looked_for_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_TO_OTHERS", tmp_path / "beside")
    folder = tmp_path / "state" / "servers" / "postgres"
    folder.mkdir(parents=True)
    digest = str(module._reachable(folder).name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    folder.parent.chmod(0o700)
    beside = module._reachable(folder)
    assert beside == tmp_path / "beside" / beside.name, digest
    assert (tmp_path / "beside").stat().st_mode & 0o777 == 0o711
    (folder / "data").mkdir()
    (folder / "data" / "PG_VERSION").write_text("15")
    assert module._reachable(folder) == folder, "it was made when the directory was open"
    shutil.rmtree(folder / "data")
    (beside / "data").mkdir(parents=True)
    (beside / "data" / "PG_VERSION").write_text("15")
    folder.parent.chmod(0o711)
    assert module._reachable(folder) == beside, "it was made when the directory was closed"


def test_passwords_that_cannot_be_read_are_not_replaced(tmp_path: Path) -> None:
    folder = StateDirectory(tmp_path / "state").servers
    folder.mkdir(parents=True)
    (folder / "passwords.json").write_text("{")
    with pytest.raises(Misconfigured, match=r"passwords\.json cannot be read"):
        LocalServers(folder)


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")
