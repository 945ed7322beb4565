"""Which passwords own servers take: one of each role of PostgreSQL, of NATS one or two users by turns."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from skep.domain.errors import Misconfigured, Unreachable
from skep.processes.directory import InUse, StateDirectory
from skep.processes.supervisor import server_rotation
from skep.processes.supervisor import servers as servers_module
from skep.processes.supervisor.passwords import (
    ServerPasswords,
    nats_old,
    nats_used,
    replaced,
    roles,
    sign_in,
    without_old,
)
from skep.processes.supervisor.server_rotation import ServerRotation
from skep.processes.supervisor.servers import LocalServers

FIRST = {"nats": "a", "postgres": "b", "skep_api": "c", "skep_cell1": "d"}


def test_the_users_of_nats_take_turns_and_all_else_gets_another_password() -> None:
    once = replaced(FIRST)
    assert (nats_used(once), nats_old(once), once["nats"]) == ("nats_2", "nats", "a")
    assert roles(once).keys() == roles(FIRST).keys() == {"skep_api", "skep_cell1"}
    assert not {*once.values()} & {"b", "c", "d"}
    dropped = without_old(once)
    assert (nats_used(dropped), nats_old(dropped)) == ("nats_2", None)
    assert {**once} == {**dropped, "nats": "a"}
    again = replaced(dropped)
    assert (nats_used(again), nats_old(again)) == ("nats", "nats_2")
    assert without_old(FIRST) == FIRST


def test_two_that_write_the_file_lose_nothing_of_each_other(tmp_path: Path) -> None:
    cloud, command = ServerPasswords(tmp_path / "passwords.json"), ServerPasswords(tmp_path / "passwords.json")
    first = cloud.of("skep_api")
    command.change(replaced)
    fresh = cloud.of("skep_cell1")
    assert command.of("skep_cell1") == fresh
    assert cloud.of("skep_api") == command.of("skep_api") != first
    assert (tmp_path / "passwords.json").stat().st_mode & 0o777 == 0o600


def test_a_stopped_cloud_takes_both_steps_at_once(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    with pytest.raises(Misconfigured, match="has no servers of its own"):
        ServerRotation(directory)
    directory.servers.mkdir(parents=True)
    ServerPasswords(directory.servers / "passwords.json").change(lambda _: FIRST)
    rotation = ServerRotation(directory)
    assert (rotation.users, rotation.next_step, rotation.refusal()) == (("skep",), "use", None)
    assert rotation.advance().steps == ("use", "drop")
    assert (rotation.users, rotation.next_step) == (("skep_2",), "use")


@contextmanager
def _running(root: Path) -> Iterator[ServerRotation]:
    """Hold a directory as a cloud does that has taken all passwords long ago."""
    directory = StateDirectory(root)
    directory.servers.mkdir(parents=True)
    passwords = ServerPasswords(directory.servers / "passwords.json")
    passwords.change(lambda _: FIRST)
    _take(directory)
    with (root / "supervisor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield ServerRotation(directory)


def _take(directory: StateDirectory, *, ago: float = 60) -> None:
    """Have processes sign in by what is written down, since so many seconds."""
    file = directory.servers / "nats.sign-in"
    file.write_text(sign_in(ServerPasswords(directory.servers / "passwords.json").known) + "\n")
    os.utime(file, (time.time() - ago,) * 2)


def test_the_old_user_of_nats_stays_while_the_cloud_has_not_taken_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_rotation, "TAKE_SECONDS", 0)
    with _running(tmp_path) as rotation:
        with pytest.raises(Unreachable, match="does not use the passwords"):
            rotation.advance()
        assert rotation.next_step == "drop"
        assert "does not use the passwords" in str(rotation.refusal())
        _take(StateDirectory(tmp_path), ago=0)
        assert "sign in by the new user of NATS for another" in str(rotation.refusal())
        _take(StateDirectory(tmp_path))
        assert rotation.refusal() is None


def test_a_cloud_of_a_release_before_has_to_be_restarted_first(tmp_path: Path) -> None:
    with _running(tmp_path) as rotation:
        (tmp_path / "servers" / "nats.sign-in").unlink()
        for _ in ("use", "drop"):
            assert "restart it with this release first" in str(rotation.refusal())
            ServerPasswords(rotation.file).change(replaced)


class _Nats:
    """Stands for NATS, and sees that whoever signs in by the file is let in at every moment."""

    port = 1

    def __init__(self, servers: LocalServers) -> None:
        self.users: list[list[str]] = []
        self._sign_in = servers.nats_sign_in

    def reconfigure(self, config: str) -> None:
        users = json.loads(config.partition("authorization: ")[2])["users"]
        assert self._sign_in.read_text().strip() in {f"{one['user']}:{one['password']}" for one in users}
        self.users.append([one["user"] for one in users])


class _Postgres:
    """Stands for PostgreSQL."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.roles: dict[str, str] = {}
        self._meanwhile = meanwhile
        """What happens while a database is made."""

    port = 1

    def give_database(self, name: str, password: str) -> None:
        self._meanwhile()
        self.roles[name] = password

    def set_passwords(self, _password: str, roles: Mapping[str, str], given: Callable[[str], None]) -> None:
        for name, password in roles.items():
            self.roles[name] = password
            given(name)


def test_a_database_that_is_made_meanwhile_gets_the_password_that_its_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = LocalServers(tmp_path / "servers")
    rotation = threading.Thread(target=servers._give_roles)

    def rotate() -> None:
        servers.passwords.change(replaced)
        rotation.start()
        rotation.join(0.2)  # it ends, or waits for whoever makes the database

    postgres = _Postgres(rotate)
    monkeypatch.setattr(servers, "_postgres", postgres)
    url = servers.renewed_location("cell1", tmp_path / "absent")
    rotation.join()
    said = (servers.folder / "passfiles" / "skep_cell1").read_text().strip().rpartition(":")[2]
    assert "passfile" in str(url)
    assert postgres.roles["skep_cell1"] == said == servers.passwords.of("skep_cell1")


async def test_nats_refuses_no_user_that_processes_may_still_sign_in_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = LocalServers(tmp_path / "servers")
    known = servers.passwords.known
    servers._write_sign_in(known)
    nats = _Nats(servers)
    monkeypatch.setattr(servers, "_nats", nats)
    monkeypatch.setattr(servers, "_postgres", _Postgres())

    async def accepted(_port: int, user: str, _password: str) -> None:
        assert user in nats.users[-1]

    monkeypatch.setattr(servers_module, "until_accepted", accepted)
    servers.passwords.change(replaced)
    servers.passwords.change(without_old)
    await servers._apply()
    assert nats.users == [["skep", "skep_2"]]
    assert servers.nats_sign_in.read_text().startswith("skep_2:")
    await servers._apply()
    assert nats.users == [["skep", "skep_2"]], "processes have not had the time to go over"
    servers._settled_at = 0.0
    await servers._apply()
    await servers._apply()
    assert nats.users == [["skep", "skep_2"], ["skep_2"]]


def test_of_two_commands_that_begin_a_rotation_of_servers_one_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_rotation, "TAKE_SECONDS", 0)
    with _running(tmp_path) as rotation:
        with pytest.raises(Unreachable):
            rotation.advance("use")
        written = rotation.file.read_bytes()
        with pytest.raises(InUse, match="another command has taken the step `use`"):
            ServerRotation(StateDirectory(tmp_path)).advance("use")
        assert rotation.file.read_bytes() == written
