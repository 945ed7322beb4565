"""What the driver `libvirt` changes, call by call: where a process can be killed between two of them.

Calls of libvirt are named as its library names them. Changes of the files of guests, and of what is on its way to
another host, are named `os.rename disk.new` by what Python does and to which file, programs `run qemu-img`; of these
only the moment before is known. What agents send each other of disks is named `send data`, and on the other side `keep
data`.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from skep.compute import disk_doors, disk_wire
from skep.compute.agent import ARRIVALS
from skep.compute.arrivals import ArrivingFile
from skep.compute.disk_wire import DATA, END, HOLE, MANIFEST
from skep.config.sections import Config

When = Literal["before", "after"]
Pass = Callable[[str, When], None]

CHANGING = frozenset(
    (
        *(
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
                "MigrateToURI3",
                "Resume",
                "SetMetadata",
                "Shutdown",
                "Suspend",
                "UndefineFlags",
            )
        ),
        "virStoragePoolCreateXML",
        "virStoragePoolDestroy",
        "virStorageVolCreateXML",
        "virStorageVolDelete",
    )
)
"""Calls of libvirt that change something."""
LONG = frozenset(
    {
        "virDomainCreate",
        "virDomainCreateWithFlags",
        "virDomainDestroy",
        "virDomainManagedSave",
        "virDomainMigrateToURI3",
        "run prlimit",
    }
)
"""What takes a while, so that a process may die amid it."""
FILES = {"os.rename": 1, "os.remove": 0, "os.link": 1, "os.mkdir": 0, "os.rmdir": 0}
"""What Python tells of changes of files, and which of its arguments is the file."""
IS_THERE = {"os.remove": True, "os.mkdir": False}
"""What does nothing unless its file is there, or is not there."""
PROGRAM = "subprocess.Popen"
SENT = {MANIFEST: "send manifest", DATA: "send data", HOLE: "send hole", END: "send end"}
"""What a source says of disks; that it is at work is not among it."""
KEPT = {"_add": "keep data", "_add_hole": "keep hole", "_store": "keep end"}
"""What a target does with what comes of a file."""


class _Told:
    """A library whose changing calls are told of."""

    def __init__(self, library: Any, passed: Pass) -> None:
        self._library = library
        self._passed = passed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        return _telling(found, name, self._passed) if name in CHANGING else found


def _telling(function: Any, name: str, passed: Pass) -> Any:
    """Return a function that does the same, and tells of it."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        passed(name, "before")
        done = function(*arguments)
        passed(name, "after")
        return done

    return call


def tell_of_host(config: Config, host: Path, passed: Pass) -> None:
    """Have `passed` called at each change by the driver of the agent whose directory is `host`."""
    from skep.compute.drivers.libvirt.disks import GUESTS  # what it needs is not installed everywhere

    places = {Path(config.compute.driver_options["directory"], GUESTS): "GUEST", host / ARRIVALS: "ARRIVAL"}
    if config.compute.exchange_directory:
        places[Path(config.compute.exchange_directory)] = "MEETING"
    tell_of_calls(places, passed)
    tell_of_wire(passed)


def tell_of_calls(places: Mapping[Path, str], passed: Pass) -> None:
    """Have `passed` called at each change, in the thread that makes it, as long as this process lives.

    `places`: directories whose content is looked at, and what the directories in each are called.
    """
    import libvirt  # it is not installed where no host has this driver

    libvirt.libvirtmod = _Told(libvirt.libvirtmod, passed)

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == PROGRAM:
            passed(f"run {Path(os.fsdecode(arguments[0])).name}", "before")
        elif event in FILES:
            path = Path(_path(event, arguments))
            there = IS_THERE.get(event)
            if not places.keys().isdisjoint(path.parents) and there in (None, os.path.lexists(path)):
                passed(f"{event} {places.get(path.parent, path.name)}", "before")

    sys.addaudithook(heard)


def tell_of_wire(passed: Pass) -> None:
    """Have `passed` called at each piece of a disk that goes to another host, or comes from there."""
    plain = disk_wire.send

    async def send(writer: Any, kind: bytes, payload: bytes = b"", *, length: int | None = None) -> None:
        name = SENT.get(kind)
        if name is not None:
            passed(name, "before")
        await plain(writer, kind, payload, length=length)
        if name is not None:
            passed(name, "after")

    vars(disk_doors)["send"] = send
    for method, name in KEPT.items():
        setattr(ArrivingFile, method, _telling(getattr(ArrivingFile, method), name, passed))


def _path(event: str, arguments: tuple[Any, ...]) -> str:
    path, directory = os.fsdecode(arguments[FILES[event]]), arguments[-1]
    return path if directory == -1 else str(Path(f"/proc/self/fd/{directory}").readlink() / path)
