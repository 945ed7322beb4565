"""Guests of QEMU that an agent of one release made, under an agent of another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skep.domain.ids import new_uuid
from skep_lab.releases import SOURCES, is_in_history, released, unpack, why_not
from tests.support.libvirt_hosts import PARTS, other_directory

pytestmark = [*PARTS, pytest.mark.timeout(600)]

FIRST = "0.10.0"
"""The first release with this driver."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the first release that has the driver. Skips where the history lacks them; in CI that fails."""
    release = released(FIRST)
    if not is_in_history(release):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why_not(release))
    there = tmp_path_factory.mktemp("release")
    unpack(release, there)
    return there


def of(sources: Path) -> dict[str, str]:
    """Return the environment of a process that runs some sources with what is installed for these."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(sources / part) for part in ("src", "lab/src", "."))}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("upgrades", [True, False], ids=["to this code", "back to the release"])
def test_an_agent_of_another_release_takes_guests_over(older: Path, *, upgrades: bool) -> None:
    """It finds, stops and removes a guest whose agent was killed."""
    before, after = (older, SOURCES) if upgrades else (SOURCES, older)
    program, uuid = [sys.executable, "-m", "tests.support.libvirt_agent"], new_uuid()
    with other_directory() as directory:
        spawn = [*program, "spawn", str(directory), str(uuid)]
        with subprocess.Popen(spawn, cwd=before, env=of(before), stdout=subprocess.PIPE, text=True) as agent:
            assert agent.stdout is not None
            assert "spawned\n" in agent.stdout
            agent.kill()
        (number,) = (int(file.read_text()) for file in directory.glob("libvirt/run/qemu/instance-*.pid"))
        adopt = [*program, "adopt", str(directory)]
        found = subprocess.run(adopt, cwd=after, env=of(after), stdout=subprocess.PIPE, check=True, text=True)
        # Releases log to the same place.
        said = [line for line in found.stdout.splitlines() if not line.startswith("{")]
        assert said == [f"{uuid} 7 RUNNING True", "SHUTDOWN", "0"]
        assert not Path(f"/proc/{number}").exists()
