"""What stands under `deploy/` starts roles that there are, with settings that there are, and locks them in."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from skep.cli.serve import ALL_IN_ONE, ROLES, serve
from skep.config import load
from skep.contracts.eventually import PATIENCE

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CONFIGURATIONS = sorted((DEPLOY / "config").glob("*.toml"))
PAGE = (DEPLOY.parent / "docs" / "operations.md").read_text(encoding="utf-8")
PROGRAM = "/opt/skep/.venv/bin/skep"

DEMANDED = {
    "CapabilityBoundingSet": "",
    "LimitNOFILE": "65536",
    "NoNewPrivileges": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectHome": "yes",
    "ProtectSystem": "strict",
    "Restart": "always",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}

DATABASE_ABOVE = {"skep-api", "skep-metadata", "skep-super-conductor"}
"""Units that may read a configuration which names the API database."""


def service(unit: Path) -> dict[str, str]:
    parser = RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep capitals
    parser.read_string(unit.read_text(encoding="utf-8"))
    return dict(parser["Service"])


def command(unit: Path) -> list[str]:
    return shlex.split(service(unit)["ExecStart"])


def test_there_is_a_unit_for_each_role() -> None:
    assert sorted(command(unit)[2] for unit in UNITS) == sorted(set(ROLES) - {ALL_IN_ONE})


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_locks_its_role_in_and_starts_it_again(unit: Path) -> None:
    said = service(unit)
    assert {name: said.get(name) for name in DEMANDED} == DEMANDED
    assert said.get("DynamicUser") == "yes" or said["User"] not in {"", "root"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_calls_skep_with_options_that_it_has(unit: Path, tmp_path: Path) -> None:
    program, called, *arguments = command(unit)
    assert (program, called) == (PROGRAM, "serve")
    file = tmp_path / "skep.toml"
    file.touch()
    given = [str(file) if word.endswith(".toml") else word for word in arguments]
    serve.make_context("serve", given)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_service_manager_waits_longer_than_a_role_drains(unit: Path) -> None:
    assert float(service(unit)["TimeoutStopSec"]) > load(None, {}).config.process.drain_seconds


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_only_what_is_above_the_cells_is_given_the_api_database(unit: Path) -> None:
    given = service(unit).get("LoadCredential", "").rpartition("/")[2].replace("%i", "cell")
    if not given:
        assert unit.stem == "skep-compute"
        return
    config = load(DEPLOY / "config" / given, {}).config
    assert bool(config.database.api_url) == (unit.stem in DATABASE_ABOVE)
    assert bool(config.cells) == (unit.stem != "skep-scheduler")


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.stem)
def test_an_example_has_known_keys_only_and_reaches_other_processes(file: Path) -> None:
    config = load(file, {}).config
    assert config.transport.kind == "nats"
    assert config.transport.url.startswith("tls://")


def paths_in(file: Path) -> set[Path]:
    """Return the files that the processes of an example open by themselves."""
    config = load(file, {}).config
    named = (config.transport.ca_file, config.transport.cert_file, config.synchronizer.ca_file)
    return {Path(path) for path in named if path}


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.stem)
def test_a_role_can_open_what_its_example_names(file: Path) -> None:
    """It runs as a user of its own: the page closes no directory on the way to it, and lets it read the file."""
    closed: set[Path] = set()
    readable: set[Path] = set()
    for line in PAGE.splitlines():
        for said in line.partition("#")[0].split("&&"):
            words = shlex.split(said) if said.strip().startswith("install ") else []
            if "-d" in words and "-m" in words and "-o" not in words and words[words.index("-m") + 1] == "700":
                closed |= {Path(word) for word in words if word.startswith("/")}
            if words[1:3] == ["-m", "644"]:
                readable.add(Path(words[-1]))
    assert Path("/etc/skep/cells") in closed, "as the page has it"
    for path in paths_in(file):
        assert not closed & set(path.parents), path
        assert path in readable, path


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
@pytest.mark.parametrize("part", ["### A backup must be restored", "### An upgrade"])
def test_the_checklists_name_each_unit(unit: Path, part: str) -> None:
    said = PAGE.partition(f"{part}\n")[2].partition("\n### ")[0]
    assert f"{unit.stem.partition('@')[0]}" in said


def test_the_users_of_units_are_made() -> None:
    made = {
        line.split()[1]
        for line in (DEPLOY / "sysusers.d" / "skep.conf").read_text(encoding="utf-8").splitlines()
        if line.startswith("u ")
    }
    assert made == {service(unit)["User"] for unit in UNITS if "User" in service(unit)}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_every_unit(tmp_path: Path) -> None:
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):
        copy.write_text(unit.read_text(encoding="utf-8").replace(PROGRAM, "/bin/true"), encoding="utf-8")
    said = ["systemd-analyze", "verify", "--man=no", *map(str, copies)]
    done = subprocess.run(said, check=False, capture_output=True, text=True, timeout=PATIENCE)
    ours = [line for line in done.stderr.splitlines() if "skep" in line]
    assert (done.returncode, ours) == (0, [])
