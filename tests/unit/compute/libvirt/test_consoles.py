"""Console files: read from the end, cut, and followed over a cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.consoles import end_of, trim
from skep.compute.drivers.libvirt.serials import BEFORE, piece_of, terminal_of


@pytest.fixture
def console(tmp_path: Path) -> Path:
    path = tmp_path / "console.log"
    path.write_bytes(b"0123456789")
    return path


def test_the_end_is_read(console: Path) -> None:
    assert end_of(console, 4) == b"6789"
    assert end_of(console, 100) == b"0123456789"
    assert end_of(console.with_name("absent"), 4) == b""


def test_a_link_in_its_place_is_not_followed(console: Path) -> None:
    link = console.with_name("link")
    link.symlink_to(console)
    for look in (lambda: end_of(link, 4), lambda: piece_of(link, 0), lambda: trim(link, 1)):
        with pytest.raises(OSError, match="symbolic links"):
            look()


def test_a_file_is_cut_once_it_is_twice_as_large(console: Path) -> None:
    trim(console, 5)
    assert console.read_bytes() == b"0123456789"
    with console.open("ab", buffering=0) as guest:
        trim(console, 4)
        guest.write(b"ab")
    assert console.read_bytes() == b"6789ab"


def test_a_reader_goes_on_where_it_was(console: Path) -> None:
    at, data = piece_of(console, -BEFORE)
    assert data == b"0123456789"
    assert piece_of(console, at) == (10, b"")
    with console.open("ab") as guest:
        guest.write(b"ab")
    assert piece_of(console, at) == (12, b"ab")
    trim(console, 4)
    assert piece_of(console, 12) == (4, b""), "what was read is not read again"
    assert piece_of(console, -2) == (4, b"ab")


def test_the_terminal_is_that_of_the_serial_line() -> None:
    serial = "<domain><devices><serial type='pty'><source path='/dev/pts/3'/></serial></devices></domain>"
    assert terminal_of(serial) == "/dev/pts/3"
    assert terminal_of("<domain><devices/></domain>") is None
