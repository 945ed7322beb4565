"""Files that QEMU shows to a guest as a disk of FAT."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.commands import Owner
from skep.compute.drivers.libvirt.drives import lay_out


def test_a_directory_is_given_away_after_all_that_is_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could put a link to another file in the place of one that is still to be given."""
    given: list[tuple[str, bool]] = []

    def note(path: Path, _uid: int, _gid: int, *, follow_symlinks: bool = True) -> None:
        given.append((str(path.relative_to(tmp_path)), follow_symlinks))

    monkeypatch.setattr(os, "chown", note)
    files = {"openstack/latest/meta_data.json": b"{}", "openstack/latest/user_data": b"#!", "ec2/meta": b"{}"}
    lay_out(tmp_path / "drive", files, Owner(1, 1))
    order = [path for path, _ in given]
    assert set(order) == {"drive", *(str(path.relative_to(tmp_path)) for path in (tmp_path / "drive").rglob("*"))}
    for place, path in enumerate(order):
        assert not [later for later in order[place:] if later.startswith(f"{path}/")]
    assert not any(follows for _, follows in given)
