"""Disks whose first sector is all the system there is: small programs that show what a guest does."""

from __future__ import annotations

import subprocess
from pathlib import Path

MIB = 1 << 20


def bootable(code: bytes) -> bytes:
    """Return a disk that the firmware runs this code from, in 16-bit mode at 0x7c00."""
    return (code.ljust(510, b"\0") + b"\x55\xaa").ljust(MIB, b"\0")


def as_qcow2(disk: bytes, directory: Path) -> bytes:
    """Return a qcow2 file with a disk."""
    raw, made = directory / "boots.raw", directory / "boots.qcow2"
    raw.write_bytes(disk)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, made], check=True)
    return made.read_bytes()
