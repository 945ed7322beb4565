"""What `skep doctor` says of this machine."""

from __future__ import annotations

import fcntl
import socket
from pathlib import Path

from skep.cli import checks
from skep.config.notifications import NotificationsSettings
from skep.config.sections import (
    ApiSettings,
    Config,
    DatabaseSettings,
    IdentitySettings,
    ImagesSettings,
    StateSettings,
)


def test_old_programs_are_named() -> None:
    assert checks.interpreter((3, 11, 0)).verdict == "good"
    assert checks.interpreter((3, 9, 2)).message == "3.9.2; 3.11 or newer is needed"
    assert checks.sqlite((3, 40, 1)).verdict == "good"
    assert checks.sqlite((3, 34, 0)).verdict == "bad"


def test_the_client_is_only_missed() -> None:
    assert checks.client(None).verdict == "warning"
    assert checks.client(Path("/somewhere/openstack")).message == "/somewhere/openstack"


def test_the_state_directory(tmp_path: Path) -> None:
    assert checks.state_directory(tmp_path).verdict == "good"
    assert checks.state_directory(tmp_path / "a" / "b").message.endswith("(made at the first start)")
    (tmp_path / "file").touch()
    assert checks.state_directory(tmp_path / "file").verdict == "bad"
    assert checks.disk(tmp_path / "a" / "b").name == "disk"


def test_databases_of_a_stopped_cloud_of_processes_are_not_looked_at(tmp_path: Path) -> None:
    config = Config(
        state=StateSettings(directory=str(tmp_path)),
        api=ApiSettings(port=0),
        identity=IdentitySettings(port=0),
        images=ImagesSettings(port=0),
        database=DatabaseSettings(api_url="postgresql://skep@127.0.0.1:1/skep_api"),
    )

    def databases() -> checks.Check:
        [check] = [one for one in checks.of_installation(config, running=False) if one.name == "databases"]
        return check

    (tmp_path / "processes.env").touch()
    assert databases().verdict == "bad", "its servers are elsewhere, and should run"
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "passwords.json").write_text("{}")
    assert databases().verdict == "skipped"
    assert databases().message.endswith("is stopped, its PostgreSQL too; `skep up --processes` starts it")
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert databases().verdict == "bad"


def test_a_taken_port_names_its_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        check = checks.port_free("api", "127.0.0.1", port, running=False)
        assert check.verdict == "bad"
        assert "api.port (SKEP_API__PORT)" in check.message
        skipped = checks.port_free("api", "127.0.0.1", port, running=True)
        assert skipped.verdict == "skipped"
        assert str(port) not in skipped.message, "the cloud may have another port than the configuration says"
    assert checks.port_free("api", "127.0.0.1", port, running=False).verdict == "good"
    assert checks.port_free("api", "127.0.0.1", 0, running=False).message == "any free one"


def test_a_cloud_that_runs_holds_its_directory(tmp_path: Path) -> None:
    assert not checks.is_running(tmp_path)
    lock = tmp_path / "lock"
    lock.touch()
    assert not checks.is_running(tmp_path)
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert checks.is_running(tmp_path)
    assert not checks.is_running(tmp_path)


def test_the_broker_of_notifications(tmp_path: Path) -> None:
    def looked_at(url: str) -> list[tuple[str, str]]:
        config = Config(
            state=StateSettings(directory=str(tmp_path)), notifications=NotificationsSettings(transport_url=url)
        )
        found = [one for one in checks.of_installation(config, running=True) if one.name == "notifications"]
        return [(one.verdict, one.message) for one in found]

    assert looked_at("") == []
    [(verdict, message)] = looked_at("rabbit://skep:s3cret@host:0/")
    assert (verdict, message) == ("bad", "notifications.transport_url: a port must be from 1 to 65535")
    with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # it does not listen
        port, closed = there.getsockname()[1], bound.getsockname()[1]
        both = f"rabbit://skep:s3cret@127.0.0.1:{closed},skep:s3cret@127.0.0.1:{port}/"
        assert looked_at(both) == [("good", f"127.0.0.1:{port} takes connections")]
        [(verdict, message)] = looked_at(f"rabbit://skep:s3cret@127.0.0.1:{closed}/")
        assert verdict == "warning"
        assert message.startswith(f"no broker takes connections, 127.0.0.1:{closed}: ")
        assert "s3cret" not in message
