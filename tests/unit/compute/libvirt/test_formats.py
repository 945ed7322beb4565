"""Images that are not what they say, or reach for other files, are refused by their bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.formats import QCOW2, SIGNS, read_qcow2, virtual_size

GIB = 1 << 30


def qcow2(
    *, version: int = 3, backing: bytes = b"", encrypted: int = 0, features: int = 0, size: int = GIB, length: int = -1
) -> bytes:
    """Return a qcow2 file that has a header only."""
    at = 512 if backing else 0
    named = len(backing) if length < 0 else length
    tables = (0, 0, 0, 0, 0, 0, features, 0, 0, 4, 104)
    header = struct.pack(">4sIQIIQIIQQIIQQQQII", QCOW2, version, at, named, 16, size, encrypted, *tables)
    return header.ljust(512, b"\0") + backing


def of(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "image"
    path.write_bytes(content)
    return path


def test_sizes_are_whole_sectors(tmp_path: Path) -> None:
    assert virtual_size(of(tmp_path, b"x" * 513), "raw") == 1024
    assert virtual_size(of(tmp_path, b""), "raw") == 0
    assert virtual_size(of(tmp_path, qcow2(size=GIB - 1)), "qcow2") == GIB
    assert virtual_size(of(tmp_path, qcow2(version=2, features=1 << 60)), "qcow2") == GIB


@pytest.mark.parametrize(("name", "at", "sign"), SIGNS)
def test_bytes_of_another_format_are_refused(tmp_path: Path, name: str, at: int, sign: bytes) -> None:
    image = of(tmp_path, b"\0" * at + sign + b"\0" * 600)
    with pytest.raises(DriverError, match=f"says raw, its bytes are {name}") as raised:
        virtual_size(image, "raw")
    assert raised.value.error == "ImageUnacceptable"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\0" * 600, "its bytes are raw"),
        (QCOW2, "no qcow2 file"),
        (qcow2(backing=b"/etc/shadow"), "backing file"),
        (qcow2(backing=b"json:{}"), "backing file"),
        (qcow2(version=1), "version 1"),
        (qcow2(version=4), "version 4"),
        (qcow2(encrypted=2), "encrypted"),
        (qcow2(features=0b100), "features that are refused: 0x4"),
        (qcow2(features=0b10), "features that are refused: 0x2"),
        (qcow2(features=1 << 40), "features that are refused"),
        (qcow2(size=1 << 60), "bytes"),
        (qcow2(backing=b"x", length=1 << 31), "too long"),
    ],
)
def test_a_qcow2_image_that_is_more_than_a_disk_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(DriverError, match=said) as raised:
        virtual_size(of(tmp_path, content), "qcow2")
    assert raised.value.error == "ImageUnacceptable"


@pytest.mark.parametrize("features", [0, 1, 0b1000, 0b10000, 0b11001])
def test_features_that_stay_in_the_file_are_taken(tmp_path: Path, features: int) -> None:
    assert virtual_size(of(tmp_path, qcow2(features=features)), "qcow2") == GIB


def test_what_is_under_a_disk_is_read(tmp_path: Path) -> None:
    assert read_qcow2(of(tmp_path, qcow2(backing=b"base.raw"))).backing == "base.raw"
    assert read_qcow2(of(tmp_path, qcow2())).backing == ""


@given(content=st.binary(max_size=700), kind=st.sampled_from(["raw", "qcow2"]))
def test_any_bytes_have_a_size_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, kind: str
) -> None:
    image = of(tmp_path_factory.getbasetemp(), QCOW2 + content if kind == "qcow2" else content)
    said, size = "", 0
    try:
        size = virtual_size(image, kind)
    except DriverError as error:
        said = error.error
    assert (said, size % 512) in (("", 0), ("ImageUnacceptable", 0))
