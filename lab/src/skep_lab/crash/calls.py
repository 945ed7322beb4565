"""What the driver `libvirt` changes, call by call: where a process can be killed between two of them.

Calls of libvirt are named as its library names them. Changes of the files of guests are named `os.rename disk.new` by
what Python does and to which file, programs `run qemu-img`; of these only the moment before is known.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

When = Literal["before", "after"]
Pass = Callable[[str, When], None]

CHANGING = frozenset(
    f"virDomain{name}"
    for name in (
        "AbortJob",
        "AttachDeviceFlags",
        "BackupBegin",
        "BlockResize",
        "Create",
        "CreateWithFlags",
        "DefineXML",
        "Destroy",
        "DetachDeviceFlags",
        "ManagedSave",
        "ManagedSaveDefineXML",
        "ManagedSaveRemove",
        "Resume",
        "SetMetadata",
        "Shutdown",
        "Suspend",
        "UndefineFlags",
    )
)
"""Calls of libvirt that change something."""
LONG = frozenset(
    {"virDomainCreate", "virDomainCreateWithFlags", "virDomainDestroy", "virDomainManagedSave", "run prlimit"}
)
"""What takes a while, so that a process may die amid it."""
FILES = {"os.rename": 1, "os.remove": 0, "os.link": 1, "os.mkdir": 0, "os.rmdir": 0}
"""What Python tells of changes of files, and which of its arguments is the file."""
IS_THERE = {"os.remove": True, "os.mkdir": False}
"""What does nothing unless its file is there, or is not there."""
PROGRAM = "subprocess.Popen"


class _Told:
    """A library whose changing calls are told of."""

    def __init__(self, library: Any, passed: Pass) -> None:
        self._library = library
        self._passed = passed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if name not in CHANGING:
            return found

        @functools.wraps(found)
        def call(*arguments: Any) -> Any:
            self._passed(name, "before")
            done = found(*arguments)
            self._passed(name, "after")
            return done

        return call


def tell_of_calls(guests: Path, passed: Pass) -> None:
    """Have `passed` called at each change, in the thread that makes it, as long as this process lives.

    `guests`: the directory with the files of guests.
    """
    import libvirt  # it is not installed where no host has this driver

    libvirt.libvirtmod = _Told(libvirt.libvirtmod, passed)
    within = f"{guests}/"

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == PROGRAM:
            passed(f"run {Path(os.fsdecode(arguments[0])).name}", "before")
        elif event in FILES:
            path = _path(event, arguments)
            there = IS_THERE.get(event)
            if path.startswith(within) and there in (None, os.path.lexists(path)):
                passed(f"{event} {_named(path)}", "before")

    sys.addaudithook(heard)


def _path(event: str, arguments: tuple[Any, ...]) -> str:
    path, directory = os.fsdecode(arguments[FILES[event]]), arguments[-1]
    return path if directory == -1 else str(Path(f"/proc/self/fd/{directory}").readlink() / path)


def _named(path: str) -> str:
    """Return the name of a file, or what stands for the directory of an attempt."""
    name = Path(path).name
    return "GUEST" if "_" in name else name
