"""Commands that need no running cloud, and what a wrong call is told."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from skep.cli.main import COMMANDS, skep
from skep.database import schema


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty directory with an environment that names no cloud and no setting."""
    monkeypatch.chdir(tmp_path)
    for name in ("OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE", "SKEP_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for port in ("API", "IDENTITY", "IMAGES", "NETWORKS"):
        monkeypatch.setenv(f"SKEP_{port}__PORT", "0")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(skep, arguments, prog_name="skep")


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        if (*path, name) == ("bench",):
            continue
        command = group.get_command(context, name)
        assert command is not None
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
    return found


def test_every_command_has_help_with_an_example() -> None:
    for path in every_command(skep):
        result = run(*path, "--help")
        assert result.exit_code == 0, path
        assert "Example" in result.output, path
        assert f"skep {' '.join(path[:1])}" in result.output, path


def test_help_and_version_name_every_command() -> None:
    for name in COMMANDS:
        assert f"  {name} " in run("--help").output
    assert run("--version").output.startswith("skep ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "No such command 'nothing'"),
        (("config", "show", "--format", "xml"), "'xml' is not one of 'table', 'json'"),
        (("serve", "api"), "skep: transport.kind is `memory`"),
        (("up", "--cells", "0"), "0 is not in the range"),
        (("config", "show", "--config", "absent.toml"), "skep: file: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_call_is_status_2_and_one_line(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert result.stdout == ""


def test_config_show_says_where_values_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "skep.toml"
    file.write_text('[database]\napi_url = "postgresql://skep:open-sesame@db/api"\n')
    monkeypatch.setenv("SKEP_LOG__LEVEL", "debug")
    result = run("config", "show", "--config", str(file), "--changed", "--format", "json")
    rows = {row["key"]: row for row in json.loads(result.stdout)}
    assert rows["log.level"]["source"] == "SKEP_LOG__LEVEL"
    assert rows["database.api_url"]["source"] == f"{file}:[database]"
    assert "open-sesame" not in run("config", "show", "--config", str(file)).stdout
    assert set(rows) == {"log.level", "database.api_url", "api.port", "identity.port", "images.port", "networks.port"}


def test_config_docs_is_the_page() -> None:
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert run("config", "docs").stdout == page.read_text()


def test_a_wrong_setting_is_told_with_the_nearest_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_API__PROT", "1")
    result = run("db", "check")
    assert result.exit_code == 2
    assert (
        result.stderr == "skep: SKEP_API__PROT: unknown key, the nearest known one is `SKEP_API__PORT` (environment)\n"
    )


def test_databases_from_nothing_to_this_release() -> None:
    before = run("db", "check")
    assert before.exit_code == 1
    assert "run `skep db upgrade`" in before.stderr
    assert not Path(".skep").exists(), "looking makes nothing"
    assert run("db", "upgrade").exit_code == 0
    assert run("db", "check").exit_code == 0
    rows = json.loads(run("db", "current", "--format", "json").stdout)
    assert [row["database"] for row in rows] == ["api", "cell0"]
    assert all(row["revision"] == row["newest"] for row in rows)


def test_databases_of_a_running_cloud_are_left_alone() -> None:
    assert run("db", "upgrade").exit_code == 0
    with Path(".skep/lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = run("db", "upgrade")
    assert result.exit_code == 2
    assert "is in use by another process of Skep" in result.stderr


def test_a_file_that_is_no_database() -> None:
    Path(".skep/db").mkdir(parents=True)
    Path(".skep/db/api.db").write_text("not a database " * 100)
    result = run("db", "current")
    assert result.exit_code == 2
    assert result.stderr == "skep: database .skep/db/api.db cannot be used: file is not a database\n"
    assert run("doctor").exit_code == 1


def test_doctor_without_a_cloud() -> None:
    result = run("doctor", "--format", "json")
    assert result.exit_code == 0, result.output
    checks = {check["name"]: check["verdict"] for check in json.loads(result.stdout)}
    assert checks["cloud"] == "skipped"
    assert checks["databases"] == "good"


def test_doctor_says_where_the_configuration_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*arguments: str) -> str:
        checks = json.loads(run("doctor", "--format", "json", *arguments).stdout)
        return str(next(check["message"] for check in checks if check["name"] == "configuration"))

    ports = "SKEP_API__PORT, SKEP_IDENTITY__PORT, SKEP_IMAGES__PORT, SKEP_NETWORKS__PORT"
    assert said() == f"defaults and {ports}"
    file = tmp_path / "skep.toml"
    file.write_text("[log]\nlevel = 'debug'\n")
    assert said("--config", str(file)) == f"{file} and {ports}"
    monkeypatch.setenv("SKEP_CONFIG", str(file))
    assert said() == f"{file} (SKEP_CONFIG) and {ports}"


def test_doctor_names_what_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", "file")
    result = run("doctor")
    assert result.exit_code == 1
    assert "state directory" in result.stderr


def test_doctor_tells_of_a_configuration_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_API__PORT", "eighty")
    result = run("doctor", "--format", "json")
    assert result.exit_code == 1
    assert "expected int" in json.loads(result.stdout)[0]["message"]


@pytest.mark.parametrize("command", [("cell", "list"), ("host", "list"), ("server", "list"), ("doctor", "--audit")])
def test_commands_for_a_cloud_ask_which(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    result = run(*command)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("skep: which cloud?")


def test_a_role_refuses_an_old_schema_and_leaves_it_as_it_is() -> None:
    assert run("db", "upgrade").exit_code == 0
    for name, kind in (("api", "api"), ("cell0", "cell")):
        file = Path(f".skep/db/{name}.db")
        file.unlink()
        engine = sa.create_engine(f"sqlite:///{file}")
        schema.upgrade(engine, "api" if kind == "api" else "cell", "0001")
        engine.dispose()
    checked = run("db", "check")
    assert (checked.exit_code, "run `skep db upgrade`" in checked.stderr) == (1, True)
    served = run("serve", "all-in-one", "--free-ports")
    assert served.exit_code == 2, served.output
    assert "database api is at revision 0001, this release needs" in served.stderr
    assert "run `skep db upgrade`" in served.stderr
    assert run("db", "check").exit_code == 1
    assert run("db", "upgrade").exit_code == 0
    assert run("db", "check").exit_code == 0


def test_reading_about_nats_makes_no_secret_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path))
    said = run("nats", "users")
    assert (said.exit_code, "nats.key is not there" in said.output) == (2, True), said.output
    assert not (tmp_path / "keys").exists()
    listed = json.loads(run("keys", "list", "--json").stdout)
    assert [one["secret"] for one in listed] == ["tokens", "sealing"]
    monkeypatch.setenv("SKEP_TRANSPORT__ACCOUNTS", "true")
    monkeypatch.setenv("SKEP_TRANSPORT__KIND", "nats")
    listed = json.loads(run("keys", "list", "--json").stdout)
    assert [one["secret"] for one in listed] == ["tokens", "sealing", "nats"]


CRASHES = """
import os, signal
from skep.cli import main
main.skep = lambda prog_name: os.kill(os.getpid(), signal.SIGSEGV)
main.main()
"""


@pytest.mark.parametrize("stderr", ["2>said", "2>&-"])
def test_a_crash_in_native_code_says_where_the_threads_were(tmp_path: Path, stderr: str) -> None:
    said = tmp_path / "said"
    said.touch()
    command = ["sh", "-c", f'exec "$0" -c "$1" {stderr}', sys.executable, CRASHES]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == -signal.SIGSEGV
    assert ("Fatal Python error: Segmentation fault" in said.read_text()) == (stderr == "2>said")
