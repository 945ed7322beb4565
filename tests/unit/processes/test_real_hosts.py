"""What the agents of hosts with real guests are told, and what is refused before anything starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.libvirt.setup import LONGEST_DIRECTORY
from skep.config.sections import Config
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid
from skep.processes.directory import StateDirectory
from skep.processes.supervisor import real_hosts
from skep.processes.supervisor.plan import ProcessNumbers, orders_inside
from skep.processes.supervisor.real_hosts import (
    check_machine,
    guests_directory,
    host_settings,
    tiny_image,
    where_guests_are,
)

CELL = Cell(uuid=CellUuid("7f0c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11"), name="cell1")
STATE = StateDirectory(Path("/s"))


def config(**options: object) -> Config:
    plain = Config()
    return msgspec.structs.replace(
        plain, compute=msgspec.structs.replace(plain.compute, driver="libvirt", driver_options=options)
    )


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_each_agent_has_a_directory_of_its_own() -> None:
    hosts = ("a", "b")
    made = orders_inside(config(), ProcessNumbers(), CELL, hosts, lambda host: host_settings(config(), STATE, host))
    agents = [dict(one.settings) for one in made if one.role == "compute"]
    assert [one["SKEP_COMPUTE__DRIVER"] for one in agents] == ["libvirt", "libvirt"]
    assert [json.loads(one["SKEP_COMPUTE__DRIVER_OPTIONS"]) for one in agents] == [
        {"virt_type": "qemu", "directory": f"/s/guests/{host}"} for host in hosts
    ]


def test_options_of_the_configuration_are_kept() -> None:
    options = {"virt_type": "kvm", "directory": "/srv/skep", "shutdown_seconds": 5}
    assert json.loads(dict(host_settings(config(**options), STATE, "a"))["SKEP_COMPUTE__DRIVER_OPTIONS"]) == options


def test_a_host_with_bridges_asks_the_metadata_service_of_its_cloud() -> None:
    def told(**options: object) -> dict[str, object]:
        settings = host_settings(config(directory="/d", **options), STATE, "a", metadata_url="http://127.0.0.1:8775")
        found: dict[str, object] = json.loads(dict(settings)["SKEP_COMPUTE__DRIVER_OPTIONS"])
        return found

    secret = {
        "metadata_url": "http://127.0.0.1:8775",
        "metadata_secret": config().metadata.metadata_proxy_shared_secret,
    }
    assert told(networks="bridge").items() >= secret.items()
    assert told(networks="bridge", metadata_url="http://other", metadata_secret="s")["metadata_url"] == "http://other"
    assert told().keys() == {"directory"}, "in user mode guests reach nothing"


def test_guests_of_root_are_where_another_user_gets_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    place = guests_directory(Path("/root/a/long/path/to/the/state/directory"), "cell10-host10")
    assert place.is_relative_to("/var/lib/skep")
    assert len(str(place)) <= LONGEST_DIRECTORY


def test_guests_are_below_the_home_directory_where_the_state_directory_is_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/newcomer")
    assert guests_directory(Path("/s"), "host") == Path("/s/guests/host")
    assert where_guests_are(config(), Path("/s")) == ""
    state = Path("/home/newcomer/a/clone/of/skep/.skep")
    places = {guests_directory(state, host) for host in ("cell1-host1", "cell10-host10")}
    assert len(places) == 2
    assert {place.parent for place in places} == {Path("/home/newcomer/.skep-guests")}
    assert where_guests_are(config(), state).startswith("guests are in /home/newcomer/.skep-guests, since")
    assert where_guests_are(config(directory="/d"), state) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert where_guests_are(config(), state).startswith("guests are in /var/lib/skep/")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", f"/home/{'n' * 40}")
    with pytest.raises(Misconfigured, match=f"{state} is too long.*SKEP_STATE__DIRECTORY"):
        where_guests_are(config(), state)


def test_a_machine_without_qemu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_hosts, "PROGRAMS", ("no-such-program",))
    with pytest.raises(Misconfigured, match="no-such-program"):
        check_machine()


async def test_the_first_image_may_be_a_file(tmp_path: Path) -> None:
    """Where Debian's packages are not reached."""
    (tmp_path / "tiny.qcow2").write_bytes(b"qcow2")
    first = tiny_image(str(tmp_path / "tiny.qcow2"))
    assert [piece async for piece in first.content()] == [b"qcow2"]
    missing = tiny_image(str(tmp_path / "none"))
    with pytest.raises(Misconfigured, match=r"images\.first_image: .*/none: No such file"):
        [piece async for piece in missing.content()]


def test_a_host_has_the_options_that_its_place_asks_for() -> None:
    settings = dict(host_settings(config(virt_type="kvm"), STATE, "a", {"networks": "bridge"}))
    assert json.loads(settings["SKEP_COMPUTE__DRIVER_OPTIONS"]) == {
        "virt_type": "kvm",
        "networks": "bridge",
        "directory": "/s/guests/a",
    }
