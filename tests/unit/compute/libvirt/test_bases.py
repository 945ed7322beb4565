"""The bytes of images below the disks of guests: shared, checked, and kept for a time after the last guest."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bases import BasesKept, ImageBases
from skep.domain.images import Image

BYTES = b"boot" * 4096


def image(name: str, data: bytes = BYTES) -> Image:
    return Image(id=name, disk_format="raw", os_hash_algo="sha512", os_hash_value=hashlib.sha512(data).hexdigest())


class Host:
    """A host whose copies are counted."""

    def __init__(self, directory: Path, *, seconds: float = 3600, most: int = 1 << 30) -> None:
        self.directory = directory / "bases"
        self.directory.mkdir(exist_ok=True)
        self.file = directory / "image"
        self.file.write_bytes(BYTES)
        self.copies = 0
        self.owed = 0
        self.taken: list[int] = []
        self.bases = ImageBases(self.directory, BasesKept(seconds=seconds, most=most), self._copy, lambda: self.owed)

    def _copy(self, source: Path, target: Path) -> None:
        self.copies += 1
        shutil.copyfile(source, target)

    def guest(self, number: int, of: Image) -> Path:
        """Give a guest the bytes of an image; return them."""
        place = self.directory.parent / f"guest-{number}"
        place.mkdir(exist_ok=True)
        self.bases.link(of, self.file, place / "base.raw", self.taken.append)
        return place / "base.raw"

    def names(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}


def test_all_guests_share_one_file_and_so_does_one_that_comes_after_the_last(tmp_path: Path) -> None:
    host = Host(tmp_path)
    files = [host.guest(number, image("one")) for number in range(3)]
    assert len({path.stat().st_ino for path in files}) == 1
    assert files[0].stat().st_nlink == 4, "the links are the count of its guests, and one"
    for path in files:
        path.unlink()
    host.bases.prune()
    host.guest(4, image("one"))
    assert host.copies == 1
    host.guest(5, image("other"))
    assert host.copies == 2
    assert [bool(more) for more in host.taken] == [True, False, False, False, True]


def test_what_no_guest_uses_goes_after_a_time_and_what_one_uses_stays(tmp_path: Path) -> None:
    host = Host(tmp_path, seconds=0)
    used = host.guest(1, image("used"))
    host.guest(2, image("unused")).unlink()
    assert len(host.names()) == 2
    host.bases.prune()
    [left] = host.directory.iterdir()
    assert left.samefile(used)


def test_the_longest_unused_go_where_there_is_too_much(tmp_path: Path) -> None:
    size = 4 * 4096
    host = Host(tmp_path, most=2 * size)
    made = {}
    for number, name in enumerate(("first", "second", "third")):
        base = host.guest(number, image(name))
        [made[name]] = [path.name for path in host.directory.iterdir() if path.samefile(base)]
        base.unlink()
    host.bases.prune()
    assert host.names() == {made["second"], made["third"]}


def test_room_is_made_for_another_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path)
    host.guest(1, image("unused")).unlink()
    used = host.guest(2, image("used"))
    full = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: full)
    host.guest(3, image("new"))
    assert len(host.names()) == 2
    assert used.exists()


def test_room_is_made_for_guests_that_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path)
    host.guest(1, image("unused")).unlink()
    used = host.guest(2, image("used"))
    room = shutil.disk_usage(tmp_path)._replace(total=1600, free=101)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: room)
    host.bases.prune()
    assert len(host.names()) == 2
    room = room._replace(free=99)
    host.bases.prune()
    assert len(host.names()) == 1
    assert used.exists()


def test_room_is_made_for_what_guests_were_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path)
    host.guest(1, image("unused")).unlink()
    room = shutil.disk_usage(tmp_path)._replace(total=1600, free=500)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: room)
    host.owed = 500
    host.bases.prune()
    assert len(host.names()) == 1
    host.owed = 501
    host.bases.prune()
    assert host.names() == set()


def test_what_has_no_room_is_not_copied(tmp_path: Path) -> None:
    host = Host(tmp_path)

    def refuse(_more: int) -> None:
        raise DriverError("NoSpaceLeft", "promised to others")

    with pytest.raises(DriverError, match="promised to others"):
        host.bases.link(image("one"), host.file, tmp_path / "base.raw", refuse)
    assert host.copies == 0


def test_bytes_that_were_damaged_meanwhile_are_made_anew(tmp_path: Path) -> None:
    host = Host(tmp_path)
    old = host.guest(1, image("one"))
    old.chmod(0o600)
    old.write_bytes(b"x" + BYTES[1:])
    again = Host(tmp_path)  # another agent, which has not looked at them yet
    assert again.guest(2, image("one")).read_bytes() == BYTES
    assert again.copies == 1
    assert again.guest(3, image("one")).read_bytes() == BYTES
    assert again.copies == 1
    assert old.stat().st_nlink == 1, "the guest that runs on them keeps them"


def test_a_disk_that_gives_back_other_bytes_is_named(tmp_path: Path) -> None:
    host = Host(tmp_path)
    with pytest.raises(DriverError, match="does not give back what was written") as raised:
        host.guest(1, image("one", b"others"))
    assert raised.value.error == "StorageUnavailable"
    assert host.names() == set()
    assert [path.name for path in (tmp_path / "guest-1").iterdir()] == []
