"""The links of guests that are to come live: they are there before the guest is, so a file says whose they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from skep.compute.drivers.libvirt.bridged.names import TAP
from skep.compute.whole_file import write_whole

AWAITED = ".taps"
"""Among the files of an attempt that awaits its guest: a link a line."""


def note_awaited(place: Path, taps: Iterable[str]) -> None:
    """Write down the links with which an attempt awaits its guest. Raises OSError."""
    write_whole(place / AWAITED, "".join(f"{tap}\n" for tap in taps).encode())


def awaited(place: Path) -> frozenset[str]:
    """Return the links with which an attempt awaits its guest; none where it awaits none. Raises OSError."""
    try:
        lines = (place / AWAITED).read_text().splitlines()
    except FileNotFoundError:
        return frozenset()
    return frozenset(line for line in lines if TAP.fullmatch(line))


def forget_awaited(place: Path) -> None:
    """Write down that an attempt awaits its guest no more. Raises OSError."""
    (place / AWAITED).unlink(missing_ok=True)
