"""The dnsmasq of each network: those that run are known by the file that each was started with."""

from __future__ import annotations

import hashlib
import os
import select
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged.programs import start_dnsmasq

PROC = Path("/proc")
OPTION = "--conf-file="
PATIENCE_MS = 5000
"""So long one that is told to end may take, before it is killed."""


def make_so(configurations: Mapping[str, str], directory: Path) -> None:
    """Have a dnsmasq with this configuration in each of these namespaces, and no other. Raises DriverError, OSError.

    One that does not start keeps no other from starting. The name of a file says what is in it, so one that runs with
    another configuration runs with another file.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = {_file(directory, space, text): (space, text) for space, text in configurations.items()}
    running = dict(_running(directory))
    for process, file in running.items():
        if file not in wanted:
            _end(process, file)
    failed: list[DriverError] = []
    for file, (space, text) in wanted.items():
        if file not in running.values():
            new = file.with_suffix(".new")
            new.write_text(text, encoding="ascii")
            new.replace(file)
            try:
                start_dnsmasq(space, file)
            except DriverError as error:
                failed.append(error)
    for file in directory.iterdir():
        if file not in wanted:
            file.unlink()
    if failed:
        raise failed[0]


def _file(directory: Path, space: str, text: str) -> Path:
    return directory / f"{space}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.conf"


def _running(directory: Path) -> Iterator[tuple[int, Path]]:
    """Yield the processes that were started with a file in this directory, and the file."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            file = _file_of(int(entry.name))
            if file is not None and file.parent == directory:
                yield int(entry.name), file


def _file_of(process: int) -> Path | None:
    try:
        words = (PROC / str(process) / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if Path(os.fsdecode(words[0])).name != "dnsmasq":
        return None
    files = (os.fsdecode(word).removeprefix(OPTION) for word in words if word.startswith(OPTION.encode()))
    return next(map(Path, files), None)


def _end(process: int, file: Path) -> None:
    """End a process, if it is still the one that was started with this file, and wait until it has ended."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        if _file_of(process) != file:
            return
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(handle, number)
            if ended.poll(PATIENCE_MS):
                return
        raise DriverError("NetworksUnavailable", f"dnsmasq {process} does not end")
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
