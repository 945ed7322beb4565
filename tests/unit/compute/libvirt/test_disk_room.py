"""What is promised of a host's disk, what images take of it, and what is still to be written."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.disk_room import DiskRoom, DiskUse, RoomSettings

UNIT = 4096


class Usage(NamedTuple):
    total: int
    free: int


def room(directory: Path, total: int = 100, free: int = 0, **settings: object) -> DiskRoom:
    """Return the room of a disk of so many units, of which some are free."""
    (directory / "guests").mkdir(exist_ok=True)
    return DiskRoom(
        directory / "guests",
        RoomSettings(**settings),  # type: ignore[arg-type]
        overlay="disk",
        whole=("disk.raw", "swap"),
        usage=lambda _path: Usage(total * UNIT, free * UNIT),
    )


def place(directory: Path, name: str = "one_1") -> Path:
    path = directory / "guests" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def written(path: Path, units: int) -> Path:
    path.write_bytes(b"x" * units * UNIT)
    return path


def test_disks_are_promised_whole_and_owed_as_far_as_they_have_holes(tmp_path: Path) -> None:
    found, one = room(tmp_path), place(tmp_path)
    with written(one / "disk.raw", 2).open("r+b") as disk:
        disk.truncate(10 * UNIT)
    written(one / "config.iso", 3)
    (one / "disk").write_bytes(struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 0, 0, 16, 20 * UNIT).ljust(UNIT, b"\0"))
    assert found.use() == DiskUse(images=0, promised=30 * UNIT, owed=27 * UNIT)
    (one / "disk").write_bytes(b"no disk")
    assert found.use().promised == 11 * UNIT, "one that cannot be read counts as what it takes"


def test_the_disk_of_a_rescue_counts_as_far_as_it_is_larger_than_those_of_its_server(tmp_path: Path) -> None:
    found, one = room(tmp_path, 20, free=20), place(tmp_path)
    with written(one / "disk.raw", 2).open("r+b") as disk:
        disk.truncate(6 * UNIT)

    def rescue(units: int) -> None:
        header = struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 0, 0, 16, units * UNIT)
        (one / "rescue").write_bytes(header.ljust(UNIT, b"\0"))

    found.take(one, 6 * UNIT, 0)
    rescue(6)
    assert found.use() == DiskUse(images=0, promised=6 * UNIT, owed=4 * UNIT)
    found.take(one, 15 * UNIT, 0)
    rescue(15)
    assert found.use() == DiskUse(images=0, promised=15 * UNIT, owed=12 * UNIT)
    (one / "rescue").unlink()
    found.forget(one)
    assert found.use() == DiskUse(images=0, promised=6 * UNIT, owed=4 * UNIT)
    with pytest.raises(DriverError, match="there is room for"):
        found.take(one, 1 << 50, 0)
    assert found.use().promised == 6 * UNIT


def test_the_larger_of_two_attempts_of_a_server_counts(tmp_path: Path) -> None:
    found = room(tmp_path)
    for number, units in ((1, 4), (2, 6)):
        written(place(tmp_path, f"one_{number}") / "disk.raw", units)
    assert found.use().promised == 6 * UNIT


def test_images_count_once_whoever_has_them_and_so_do_those_that_were_fetched(tmp_path: Path) -> None:
    (tmp_path / "fetched").mkdir()
    found = room(tmp_path, fetched=tmp_path / "fetched")
    base = written(place(tmp_path) / "base.raw", 5)
    os.link(base, place(tmp_path, "two_1") / "base.raw")
    written(place(tmp_path, "two_1") / "rescue.qcow2", 2)
    written(tmp_path / "fetched" / "image", 1)
    assert found.use().images == 8 * UNIT


def test_what_two_servers_are_about_to_get_is_not_promised_to_both(tmp_path: Path) -> None:
    found, one, two = room(tmp_path, 20), place(tmp_path), place(tmp_path, "two_1")
    found.take(one, 10 * UNIT, 4 * UNIT)
    written(one / "base.raw.new", 2)
    assert found.use().images == 4 * UNIT, "what is half copied counts as what it will be"
    with pytest.raises(
        DriverError, match=f"promised {17 * UNIT} bytes of disks, and .* room for {16 * UNIT}$"
    ) as raised:
        found.take(two, 7 * UNIT, 0)
    assert raised.value.error == "NoSpaceLeft"
    found.take(two, 6 * UNIT, 0)
    (one / "base.raw.new").rename(one / "base.raw")
    found.has_image(one)
    assert found.use() == DiskUse(images=2 * UNIT, promised=16 * UNIT, owed=16 * UNIT)
    for path in (one, two):
        found.forget(path)
    assert found.use().promised == 0


def test_an_operator_may_keep_some_of_it_or_promise_more_than_there_is(tmp_path: Path) -> None:
    one = place(tmp_path)
    for more, fits in (({}, 20), ({"reserved": 5 * UNIT}, 15), ({"ratio": 2.0}, 40)):
        found = room(tmp_path, 20, **more)
        with pytest.raises(DriverError, match="room for"):
            found.take(one, (fits + 1) * UNIT, 0)
        found.take(one, fits * UNIT, 0)
        assert found.owed() == 20 * UNIT or fits == 15
        assert found.owed(Path("/proc")) == 0, "another disk owes them nothing"


def test_a_server_that_is_promised_nothing_more_takes_what_is_free(tmp_path: Path) -> None:
    """A rebuild or a rescue on a host that was filled before images were counted has no other host to go to."""
    found, one = room(tmp_path, 20, free=16), place(tmp_path)
    found.take(one, 20 * UNIT, 0)
    written(place(tmp_path, "two_1") / "base.raw", 4)
    found.take(one, 20 * UNIT, 0)
    found.take(one, 20 * UNIT, 5 * UNIT)
    with pytest.raises(DriverError, match="room for"):
        found.take(one, 20 * UNIT, 17 * UNIT)
    with written(one / "disk.raw", 1).open("r+b") as disk:
        disk.truncate(20 * UNIT)
    with pytest.raises(DriverError, match="room for"):
        found.take(one, 21 * UNIT, 0)
