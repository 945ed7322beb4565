"""When `skep up` gives guests of a plain user a way to the outside, and what it says of it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.config.sections import Config
from skep.processes.directory import StateDirectory
from skep.processes.supervisor import ways_out
from skep.processes.supervisor.ways_out import find_way_out


def config(options: dict[str, object] | None = None, driver: str = "libvirt") -> Config:
    plain = Config()
    return msgspec.structs.replace(
        plain, compute=msgspec.structs.replace(plain.compute, driver=driver, driver_options=options or {})
    )


@pytest.fixture(autouse=True)
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Be a plain user on a machine that allows it."""
    found: list[Path] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(ways_out, "make_way_out", lambda directory, *_: found.append(directory))
    return found


def test_a_plain_user_has_it_where_it_was_tried(tmp_path: Path, tried: list[Path]) -> None:
    told, said = find_way_out(config({"virt_type": "kvm"}), StateDirectory(tmp_path))
    assert told == {"way_out": "slirp4netns"}
    assert said == "new guests reach the outside by slirp4netns, and nothing of this machine"
    [directory] = tried
    assert directory.parent == tmp_path
    assert list(tmp_path.iterdir()) == [], "nothing of the try is left"


def test_a_machine_that_does_not_allow_it_has_closed_guests_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise DriverError("NetworksUnavailable", "slirp4netns is of no use here: /dev/net/tun")

    monkeypatch.setattr(ways_out, "make_way_out", refuse)
    told, said = find_way_out(config(), StateDirectory(tmp_path))
    assert told == {}
    assert said == "new guests reach nothing outside of their QEMU: slirp4netns is of no use here: /dev/net/tun"


@pytest.mark.parametrize("options", [{"networks": "user"}, {"way_out": "none"}, {"uri": "u"}, {"directory": "/d"}])
def test_what_a_user_has_chosen_stays(tmp_path: Path, options: dict[str, object], tried: list[Path]) -> None:
    assert find_way_out(config(options), StateDirectory(tmp_path)) == ({}, "")
    assert tried == []


def test_root_and_hosts_without_guests_of_qemu_try_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: list[Path]
) -> None:
    assert find_way_out(config(driver="fake"), StateDirectory(tmp_path)) == ({}, "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_way_out(config(), StateDirectory(tmp_path)) == ({}, "")
    assert tried == []
