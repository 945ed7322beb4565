"""Console files: read from the end, cut, and followed over a cut."""

from __future__ import annotations

import os
import tty
from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.consoles import ConsoleTrimmer, end_of, trim
from skep.compute.drivers.libvirt.serials import BEFORE, SerialLine, piece_of, terminal_of
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid, new_uuid


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


def test_a_file_that_cannot_be_cut_is_told_of_once_and_keeps_no_other_uncut(
    console: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, gone = console.with_name("a link"), console.with_name("a guest that ended")
    first.symlink_to(console)
    trimmer = ConsoleTrimmer(lambda: (first, gone, console), 4, lambda: None)
    try:
        for written in (b"6789", b"cdef"):
            trimmer.cut()
            assert console.read_bytes() == written
            console.write_bytes(b"0123456789abcdef")
        assert [record.getMessage() for record in caplog.records if "cannot be cut" in record.getMessage()] == [
            f"the console of a guest cannot be cut: [Errno 40] Too many levels of symbolic links: '{first}'"
        ]
        first.unlink()
        trimmer.cut()
        first.symlink_to(console)
        trimmer.cut()
        assert caplog.text.count("cannot be cut") == 2, "it could be meanwhile"
    finally:
        trimmer.close()


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


async def test_lines_that_are_open_leave_the_terminal_empty(console: Path) -> None:
    """However much is written, and read or not; one that was given back, or whose guest ended, takes nothing."""

    async def look(path: Path, at: int) -> tuple[int, bytes]:
        return piece_of(path, at)

    async def runs() -> bool:
        return False

    guest, terminal = os.openpty()
    tty.setraw(terminal)
    os.set_blocking(guest, False)
    instance = InstanceUuid(new_uuid())
    first, second = (SerialLine(instance, console, os.ttyname(terminal), look, runs) for _ in range(2))
    left = 100_000

    async def written() -> bool:
        nonlocal left
        try:
            while left:
                left -= os.write(guest, bytes(left))
        except BlockingIOError:
            return False
        return True

    await eventually(written, "all is taken")
    await first.close()
    left = 100_000
    await eventually(written, "all is taken by the other line")
    os.close(terminal)
    os.close(guest)
    assert await second.read() == b"0123456789"
    assert await second.read() == b"", "the line has ended"
    await second.close()
