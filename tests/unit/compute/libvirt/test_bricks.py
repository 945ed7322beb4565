"""What os-brick is asked, and what a host has to have before it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt import bricks
from skep.compute.drivers.libvirt.bricks import OsBricks

DATA = {"target_iqn": "iqn.of:it", "target_portal": "10.0.0.1:3260", "target_lun": 1}
SHARE = {"export": "10.0.0.1:/share", "name": "volume-1", "options": "-o vers=4"}


class NotedLibrary:
    """Stands for `os_brick.initiator.connector`: notes each call, and may fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    @property
    def InitiatorConnector(self) -> NotedLibrary:  # noqa: N802 - the library's name
        return self

    def factory(self, protocol: str, root_helper: str | None, *, use_multipath: bool, **more: Any) -> NotedLibrary:
        self.asked.append(("factory", protocol, root_helper, use_multipath, more))
        return self

    def connect_volume(self, data: dict[str, Any]) -> dict[str, Any]:
        self._note("connect", data)
        return {"type": "block", "path": "/dev/disk/by-id/it"}

    def disconnect_volume(self, data: dict[str, Any], device: dict[str, Any] | None, *, force: bool) -> None:
        self._note("disconnect", data, device, force)

    def extend_volume(self, data: dict[str, Any]) -> None:
        self._note("extend", data)

    def _note(self, *asked: Any) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append(asked)


@pytest.fixture
def library() -> NotedLibrary:
    return NotedLibrary()


@pytest.fixture
def host(library: NotedLibrary, tmp_path: Path) -> OsBricks:
    return OsBricks("host-1", tmp_path / "mounts", library=library, initiator=tmp_path / "name")


def test_a_volume_by_iscsi(host: OsBricks, library: NotedLibrary) -> None:
    assert host.connect("ISCSI", DATA) == "/dev/disk/by-id/it"
    host.extend("ISCSI", DATA)
    host.disconnect("ISCSI", DATA, "/dev/disk/by-id/it")
    host.disconnect("ISCSI", DATA, "")
    made: tuple[Any, ...] = ("factory", "ISCSI", None, False, {})
    assert library.asked == [
        made,
        ("connect", DATA),
        made,
        ("extend", DATA),
        made,
        ("disconnect", DATA, {"type": "block", "path": "/dev/disk/by-id/it"}, False),
        made,
        ("disconnect", DATA, None, True),
    ]


def test_the_library_is_told_of_all_portals(host: OsBricks, library: NotedLibrary) -> None:
    """It tries one after another: each use of a volume has one path."""
    portals = {
        "target_portals": ["10.0.0.1:3260", "10.0.0.2:3260"],
        "target_iqns": ["iqn.of:it", "iqn.of:it"],
        "target_luns": [1, 1],
    }
    host.connect("ISCSI", {**DATA, **portals})
    assert library.asked == [("factory", "ISCSI", None, False, {}), ("connect", {**DATA, **portals})]


def test_a_volume_on_nfs(host: OsBricks, library: NotedLibrary, tmp_path: Path) -> None:
    host.connect("NFS", SHARE)
    host.extend("NFS", SHARE)
    more = {"conn": SHARE, "nfs_mount_point_base": str(tmp_path / "mounts"), "nfs_mount_options": "-o vers=4"}
    assert library.asked == [("factory", "NFS", None, False, more), ("connect", SHARE)]


def test_what_the_library_raises_has_a_name(host: OsBricks, library: NotedLibrary) -> None:
    library.error = ValueError("no such target")
    for call in (
        lambda: host.connect("ISCSI", DATA),
        lambda: host.extend("ISCSI", DATA),
        lambda: host.disconnect("ISCSI", DATA, "/dev/x"),
    ):
        with pytest.raises(DriverError, match="ValueError: no such target") as raised:
            call()
        assert raised.value.error == "VolumeUnavailable"


def test_what_a_host_lacks_is_named(host: OsBricks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(DriverError, match="not root"):
        host.check("NFS")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(DriverError, match=r"no program mount\.nfs"):
        host.check("NFS")
    monkeypatch.setattr(shutil, "which", lambda name: f"/sbin/{name}")
    host.check("NFS")
    with pytest.raises(DriverError, match="No such file"):
        host.check("ISCSI")
    (tmp_path / "name").write_text("InitiatorName=iqn.1993-08.org.debian:01:x\n")
    with pytest.raises(DriverError, match=r"is not iqn\.2025-11\.org\.skep:host-1"):
        host.check("ISCSI")
    (tmp_path / "name").write_text("# ours\nInitiatorName=iqn.2025-11.org.skep:host-1\n")
    host.check("ISCSI")
    monkeypatch.setattr(bricks, "LIBRARY", "no_such_library")
    with pytest.raises(DriverError, match=r"skep\[volumes\]"):
        OsBricks("host-1", tmp_path).check("NFS")
