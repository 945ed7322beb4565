"""Makes what starts QEMU where guests in user mode have a way to the outside, and tries it: only that shows whether a
machine allows it."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.commands import PATH, Owner
from skep.compute.drivers.libvirt.way_out import emulator
from skep.compute.drivers.libvirt.way_out.emulator import SLIRP, TOLD

FOLDER = "way-out"
"""Below the directory of a host."""
PROGRAM = "emulator"
"""In it: what libvirt takes for QEMU."""
QEMU = "qemu-system-x86_64"
SYSTEMS_PYTHON = "/usr/bin/python3"
"""Where the user that QEMU runs as does not get to the agent's own."""
LINK_LOCAL = IPv4Network("169.254.0.0/16")
"""Where a machine that is a guest itself is told who it is, and what it may."""
MULTICAST = IPv4Network("224.0.0.0/4")
"""What is sent there the machine itself hears, too."""
SECONDS = 30.0
"""So long a try may take."""
LINES = 3
"""Of what a program says when it fails: the last ones."""


class WayOut(msgspec.Struct, frozen=True, kw_only=True):
    """How guests of a host reach what is outside."""

    emulator: str
    """The path of the program."""
    closed: tuple[str, ...]
    """Blocks of addresses that guests do not reach, beside the machine's own."""

    def told(self, port: int | None) -> str:
        """Return what the program is told of a guest; the loopback port leads to it."""
        return msgspec.json.encode({"port": port, "closed": self.closed}).decode()


def make_way_out(directory: Path, closed: Sequence[str], owner: Owner | None) -> WayOut:
    """Return the way to the outside for guests of a host, once it was tried as the user that QEMU runs as.

    Raises DriverError `NetworksUnavailable` that says why there is none, ValueError for what is no block of addresses,
    OSError.
    """
    blocks = tuple(str(block) for block in (LINK_LOCAL, MULTICAST, *map(IPv4Network, closed)))
    found = {program: shutil.which(program, path=PATH) for program in (QEMU, SLIRP)}
    lacks = [program for program, path in found.items() if path is None]
    if lacks:
        raise _none(f"{' and '.join(lacks)} not installed (scripts/system-packages libvirt)")
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    _open_to(folder, owner)
    qemu = str(found[QEMU])
    program = folder / PROGRAM
    text = _text(_python(owner), qemu)
    if not program.exists() or program.read_text() != text:
        new = program.with_name(f"{PROGRAM}.new")
        new.write_text(text)
        _open_to(new, owner)
        new.replace(program)
    way = WayOut(emulator=str(program), closed=blocks)
    _run((way.emulator, "--version"), owner, {TOLD: way.told(None)})
    return way


def _open_to(path: Path, owner: Owner | None) -> None:
    """Let the user that QEMU runs as use a file or folder of the agent's, and no other user."""
    path.chmod(0o700 if owner is None else 0o750)
    if owner is not None:
        os.chown(path, os.geteuid(), owner.gid)


def _text(python: str, qemu: str) -> str:
    """Return the program. It differs where QEMU does: libvirt asks a program that has changed what it can do."""
    changed = Path(qemu).stat().st_ctime_ns
    return (
        f"#!{python} -IS\n# Written by the agent, for {qemu} of {changed}.\n"
        f"{inspect.getsource(emulator)}\n\nmain({qemu!r}, sys.argv[1:])\n"
    )


def _python(owner: Owner | None) -> str:
    """Return a Python that QEMU's user may run. Raises DriverError, OSError."""
    try:
        _run((sys.executable, "-IS", "-c", ""), owner)
    except (DriverError, OSError):
        _run((SYSTEMS_PYTHON, "-IS", "-c", ""), owner)
        return SYSTEMS_PYTHON
    return sys.executable


def _run(command: Sequence[str], owner: Owner | None, told: Mapping[str, str] | None = None) -> None:
    """Run a program as QEMU's user. Raises DriverError where it fails, OSError."""
    try:
        done = subprocess.run(  # noqa: S603 - programs and options are words of this package
            command,
            cwd="/",
            env={"PATH": PATH, "LC_ALL": "C", **(told or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=SECONDS,
            user=None if owner is None else owner.uid,
            group=None if owner is None else owner.gid,
            extra_groups=None if owner is None else (),
        )
    except subprocess.TimeoutExpired as error:
        raise _none(str(error)) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-LINES:]
        raise _none("; ".join(said).removeprefix(f"{TOLD}: ") or f"{command[0]} ended with {done.returncode}")


def _none(why: str) -> DriverError:
    return DriverError("NetworksUnavailable", f"slirp4netns is of no use here: {why}")
