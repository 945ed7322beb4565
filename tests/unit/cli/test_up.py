"""`skep up`: the driver of a cloud that was there before."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.cli.main import skep
from skep.cli.up import StartOptions, processes_of
from skep.compute.identity import begin_run
from skep.processes.supervisor.plan import ProcessNumbers

NUMBERS = ProcessNumbers(1, 1, 1, 1)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state directory that commands mean."""
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path / "state"))
    return tmp_path / "state"


def host_with(state: Path, name: str, driver: str) -> None:
    directory = state / "hosts" / "cell1" / name
    directory.mkdir(parents=True)
    begin_run(directory, name, driver)


def driver_with(asked: str | None) -> str:
    """Return the driver of a cloud of processes that is asked for with one, or without."""
    config, _ = processes_of(None, StartOptions(None, None, free_ports=True, driver=asked), NUMBERS)
    return config.compute.driver


def test_hosts_keep_the_driver_that_they_had(state: Path) -> None:
    assert driver_with(None) == "fake"
    host_with(state, "h1", "libvirt")
    assert driver_with(None) == "libvirt"
    assert driver_with("fake") == "fake", "who asks for another gets it: agents refuse what it would lose"
    host_with(state, "h2", "fake")
    assert driver_with(None) == "fake"


def test_what_is_configured_comes_before_that(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host_with(state, "h1", "libvirt")
    monkeypatch.setenv("SKEP_COMPUTE__DRIVER", "fake")
    assert driver_with(None) == "fake"


@pytest.mark.parametrize("asked", [(), ("--driver", "libvirt")])
def test_one_process_has_no_guests_of_qemu(state: Path, asked: tuple[str, ...]) -> None:
    host_with(state, "h1", "libvirt")
    refused = CliRunner().invoke(skep, ["up", *asked])
    assert refused.exit_code == 2
    assert "needs --processes: each of its hosts is a process of its own" in refused.output
    assert (str(state) in refused.output) == (not asked)
