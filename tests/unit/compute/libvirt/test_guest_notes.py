"""Notes of a libvirt about guests: they count as long as the process that they name is the QEMU of their guest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.guest_notes import clear_guest_notes

MINE, OTHER = "2b1c9d4e-0d55-4c5e-9f0e-3b8a3e0c8a11", "2b1c9d4e-0d55-4c5e-9f0e-3b8a3e0c8a12"
LEFT = ("run/qemu/mine.xml", "run/qemu/mine.pid", "lib/qemu/domain-3-mine", "lib/qemu/channel/target/domain-3-mine")


@pytest.fixture
def qemu() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process with the arguments by which that of a guest is known; it ends when its input does."""
    command = [sys.executable, "-c", "input(chr(10))", "-name", "guest=mine", "-uuid", MINE, "-smp", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # for a moment of its start a process has no arguments
        yield process


def left(root: Path, uuid: str, process: int) -> list[str]:
    """Return what is left of the note about a guest, and of its files."""
    for name in LEFT:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch() if path.suffix else path.mkdir()
    domain = f"<domain type='qemu' id='3'><name>mine</name><uuid>{uuid}</uuid></domain>"
    (root / LEFT[0]).write_text(f"<domstatus state='running' pid='{process}'>{domain}</domstatus>")
    clear_guest_notes(root)
    return [name for name in LEFT if (root / name).exists()]


def test_a_guest_whose_qemu_runs_is_kept(tmp_path: Path, qemu: subprocess.Popen[bytes]) -> None:
    assert left(tmp_path, MINE, qemu.pid) == list(LEFT)


def test_that_of_another_guest_is_not_its_qemu(tmp_path: Path, qemu: subprocess.Popen[bytes]) -> None:
    assert left(tmp_path, OTHER, qemu.pid) == []


def test_a_guest_whose_qemu_has_ended_is_off(tmp_path: Path, qemu: subprocess.Popen[bytes]) -> None:
    qemu.kill()
    qemu.wait()
    assert left(tmp_path, MINE, qemu.pid) == []


@pytest.mark.parametrize("process", [0, 1])
def test_no_process_and_the_first_one_are_no_qemu(tmp_path: Path, process: int) -> None:
    assert left(tmp_path, MINE, process) == []
