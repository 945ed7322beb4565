"""Formats of disks, told by their own bytes: what an image says of itself is looked at before QEMU opens it.

A disk that names other files (a backing file, a data file) would give its guest what the host alone may read, so an
image that does is refused here, by its header alone: no program has opened it yet.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError
from skep.domain.images import Image

SECTOR = 512
FORMATS = ("raw", "qcow2")
"""Those that guests boot from, in Glance's words."""

QCOW2 = b"QFI\xfb"
SIGNS: tuple[tuple[str, int, bytes], ...] = (
    ("qcow2", 0, QCOW2),
    ("qed", 0, b"QED\0"),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"COWD"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vhdx", 0, b"vhdxfile"),
    ("vpc", 0, b"conectix"),
    ("vdi", 64, b"\x7f\x10\xda\xbe"),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
)
"""By which bytes a file is of another format than raw: the format, where they are, what they are."""

_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
"""The header of qcow2 version 3 (QEMU, docs/interop/qcow2.txt)."""
_KNOWN_FEATURES = 0b11001
"""Bits of incompatible features that an image may have: dirty, compression type, extended L2 entries. Not: corrupt, and
data in another file."""
_LARGEST = 1 << 50
"""Bytes"""
_CLUSTER = 1 << 16
"""Bytes of the clusters of a disk that is made here, as of qemu-img's."""
_PER_TABLE = _CLUSTER * (_CLUSTER // 8)
"""Bytes of a disk that one entry of its first table leads to."""
_BACKING_FORMAT = 0xE2792ACA
"""The extension of a header that says the format of the file under it."""


class Qcow2Header(msgspec.Struct, frozen=True):
    """What is read of a qcow2 file."""

    size: int
    """Bytes of the disk in it."""
    backing: str
    """The name of the file under it; empty: it has none."""


def image_format(image: Image) -> str:
    """Return the disk format of an image; one that says none is raw. Raises DriverError for others than ours."""
    disk_format = image.disk_format or "raw"
    if disk_format not in FORMATS:
        raise DriverError(
            "DiskFormatNotSupported", f"disk_format: {disk_format}; guests boot from {' and '.join(FORMATS)}"
        )
    return disk_format


def format_of(path: Path) -> str:
    """Return the format that the bytes of a file are of. Raises OSError."""
    with path.open("rb") as file:
        start = file.read(4096)
    return next((name for name, at, sign in SIGNS if start[at : at + len(sign)] == sign), "raw")


def virtual_size(path: Path, disk_format: str) -> int:
    """Return the bytes of the disk that an image is of, whole sectors.

    Raises DriverError `ImageUnacceptable` for an image that is not of this format, or names other files; OSError.
    """
    found = format_of(path)
    if found != disk_format:
        raise DriverError("ImageUnacceptable", f"disk_format: the image says {disk_format}, its bytes are {found}")
    if disk_format == "raw":
        return -(-path.stat().st_size // SECTOR) * SECTOR
    header = read_qcow2(path)
    if header.backing:
        raise DriverError("ImageUnacceptable", "the image names a backing file")
    return header.size


def read_qcow2(path: Path) -> Qcow2Header:
    """Return what the header of a qcow2 file says.

    Raises DriverError `ImageUnacceptable` for one that is damaged, encrypted, or has its data in another file; OSError.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        if len(start) < 72 or start[:4] != QCOW2:
            raise DriverError("ImageUnacceptable", "the disk is no qcow2 file")
        values = _HEADER.unpack(start.ljust(_HEADER.size, b"\0"))
        version, backing_at, backing_length, size, encrypted = values[1], values[2], values[3], values[5], values[6]
        features = values[13] if version >= 3 else 0
        _check(version, features, encrypted, size)
        if not backing_at:
            return Qcow2Header(size=_whole(size), backing="")
        if backing_length > 1023:
            raise DriverError("ImageUnacceptable", "the name of the backing file is too long")
        file.seek(backing_at)
        return Qcow2Header(size=_whole(size), backing=file.read(backing_length).decode(errors="replace") or "?")


def write_qcow2(path: Path, size: int, backing: str = "", backing_format: str = "") -> None:
    """Make an empty qcow2 disk of a file that is there and empty; what is under it is named, not opened.

    It is as `qemu-img create -u` makes it. Each build makes one, for which no program has to be started so.
    Raises DriverError `StorageUnavailable` for more bytes than such a disk may have, OSError.
    """
    if size > _LARGEST:
        raise DriverError("StorageUnavailable", f"a disk has {_LARGEST} bytes at most, not {size}")
    tables = -(-size // _PER_TABLE)
    counts, block, first = _CLUSTER, 2 * _CLUSTER, 3 * _CLUSTER
    used = 3 + -(-tables * 8 // _CLUSTER)
    name, said = backing.encode(), backing_format.encode()
    under = struct.pack(">II", _BACKING_FORMAT, len(said)) + said.ljust(-(-len(said) // 8) * 8, b"\0") if name else b""
    extensions = under + struct.pack(">II", 0, 0)
    backing_at = _HEADER.size + len(extensions) if name else 0
    header = _HEADER.pack(
        *(QCOW2, 3, backing_at, len(name), _CLUSTER.bit_length() - 1, size, 0, tables, first),
        *(counts, 1, 0, 0, 0, 0, 0, 4, _HEADER.size),
    )
    with path.open("r+b") as file:
        file.truncate(used * _CLUSTER)
        for at, content in (
            (0, header + extensions + name),
            (counts, struct.pack(">Q", block)),
            (block, struct.pack(">H", 1) * used),
        ):
            file.seek(at)
            file.write(content)
        file.flush()
        os.fdatasync(file.fileno())


def _check(version: int, features: int, encrypted: int, size: int) -> None:
    if version not in (2, 3):
        raise DriverError("ImageUnacceptable", f"the qcow2 file is of version {version}")
    if features & ~_KNOWN_FEATURES:
        raise DriverError(
            "ImageUnacceptable", f"the qcow2 file has features that are refused: {features & ~_KNOWN_FEATURES:#x}"
        )
    if encrypted:
        raise DriverError("ImageUnacceptable", "the qcow2 file is encrypted")
    if size > _LARGEST:
        raise DriverError("ImageUnacceptable", f"the qcow2 file says that its disk has {size} bytes")


def _whole(size: int) -> int:
    return -(-size // SECTOR) * SECTOR
