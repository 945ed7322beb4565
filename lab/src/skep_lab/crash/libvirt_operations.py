"""The operations on a guest of QEMU with what the driver `libvirt` changes for each, call by call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from skep_lab.crash.calls import CHANGING, LONG
from skep_lab.crash.libvirt_walk import LibvirtWalk
from skep_lab.crash.operating import asking, bring, operate
from skep_lab.crash.operation import Operation
from skep_lab.crash.operations import OPERATIONS
from skep_lab.crash.points import Point, Way

BUILD = "build"
BY_NAME: Mapping[str, Operation] = {one.name: one for one in OPERATIONS}

_STARTED = ("virDomainDefineXML", "virDomainCreate", "virDomainSetMetadata")
_FILES = ("os.remove config.iso", "os.remove disk", "os.remove base.qcow2", "os.remove console.log", "os.rmdir GUEST")
_ENDED = ("virDomainDestroy", "virDomainDestroy", "virDomainUndefineFlags")
_LINKED = ("os.mkdir GUEST", "os.link base.qcow2")
_MADE = ("os.rename config.iso", *_STARTED)
CALLS: Mapping[str, tuple[str, ...]] = {
    BUILD: (*_LINKED, "os.rename disk", *_MADE),
    "stop": ("virDomainDestroy",),
    "start": ("virDomainCreateWithFlags",),
    "reboot": ("virDomainDestroy", "virDomainCreateWithFlags"),
    "hard-reboot": ("virDomainDestroy", "virDomainCreateWithFlags"),
    "pause": ("virDomainSuspend",),
    "unpause": ("virDomainResume",),
    "suspend": ("virDomainManagedSave",),
    "resume": ("virDomainCreateWithFlags",),
    "create-image": ("virDomainBackupBegin", "os.remove snapshot.new"),
    "rescue": (
        "run prlimit",
        "os.rename rescue",
        "virDomainDestroy",
        "virDomainDefineXML",
        "virDomainCreateWithFlags",
    ),
    "unrescue": (
        "virDomainDestroy",
        "virDomainDefineXML",
        "os.remove rescue",
        "os.remove rescue.qcow2",
        "virDomainCreateWithFlags",
    ),
    "rebuild": (*_LINKED, "os.rename disk", *_ENDED, *_MADE, *_FILES),
    "resize-on-its-host": (
        *_ENDED,
        "os.mkdir GUEST",
        "run prlimit",
        "run prlimit",
        "run prlimit",
        "os.rename disk",
        "os.rename config.iso",
        *_STARTED,
    ),
    "revert-on-its-host": (
        *_ENDED,
        "os.mkdir GUEST",
        "run prlimit",
        "run prlimit",
        "os.rename disk",
        "os.rename config.iso",
        *_STARTED,
        *_FILES,
        *_FILES,
    ),
    "confirm-resize": _FILES,
    "shelve": ("virDomainDestroy", "run prlimit", "os.remove snapshot.new", *_ENDED, *_FILES),
    "unshelve": (*_LINKED, "run prlimit", "os.rename base.qcow2", "os.rename disk", *_MADE),
    "force-delete": (*_ENDED, *_FILES),
}
"""By the name of an operation what is called for it, in order, on a host that has the bytes of the image already."""

KINDS: Mapping[str, str] = {
    **dict.fromkeys((BUILD, "unshelve", "rebuild", "resize-on-its-host", "shelve", "force-delete"), "life"),
}
"""What makes a guest or removes it is alike; the rest is done to one that is there."""


class LibvirtCase(msgspec.Struct, frozen=True, kw_only=True):
    """One death of a cloud with a host of QEMU."""

    operation: str
    point: Point

    @property
    def kind(self) -> str:
        """A sample has one of each."""
        return KINDS.get(self.operation, "action")

    def __str__(self) -> str:
        """Return what a test is called by."""
        nth = f"-{self.point.nth}" if self.point.nth > 1 else ""
        return f"{self.operation}-{self.point.way}-{self.point.call.replace(' ', '-')}{nth}"


def cases() -> Iterator[LibvirtCase]:
    """Yield each place: before each call, amid those that take a while, and after those of libvirt."""
    for operation, calls in CALLS.items():
        for point in points_of(calls):
            yield LibvirtCase(operation=operation, point=point)


def points_of(calls: Iterable[str]) -> Iterator[Point]:
    """Yield each place at which a process dies that calls this, in order."""
    seen: Counter[str] = Counter()
    for call in calls:
        seen[call] += 1
        for way in _ways(call):
            yield Point(call=call, way=way, nth=seen[call])


def _ways(call: str) -> Iterator[Way]:
    yield "before"
    if call in LONG:
        yield "amid"
    if call in CHANGING:
        yield "after"


def die_at(walk: LibvirtWalk, case: LibvirtCase) -> None:
    """Die there, and see that all is as it was promised. Raises AssertionError."""
    if case.operation == BUILD:
        walk.crash(case.point, lambda: walk.create("server", 1))
        walk.recovered()
        [uuid] = walk.wait_statuses("ACTIVE")
        walk.write_disk(uuid, b"")
    else:
        operate(walk, BY_NAME[case.operation], case.point)


def called(walk: LibvirtWalk, name: str) -> tuple[str, ...]:
    """Return what the driver calls in an operation that nothing cuts."""
    if name == BUILD:
        # Once more: the first has the bytes of its image copied.
        walk.create("server", 1)
        walk.wait_statuses("ACTIVE")
        walk.clear()
    walk.process.calls()
    walk.create("server", 1)
    [uuid] = walk.wait_statuses("ACTIVE")
    walk.well("once it is built")
    if name == BUILD:
        return walk.process.calls()
    walk.write_disk(uuid, b"")
    operation = BY_NAME[name]
    bring(walk, operation, uuid)
    if not operation.after:
        walk.asked.created.discard(uuid)
        walk.asked.deleted.add(uuid)
    ask = asking(walk, operation, uuid)
    walk.process.calls()
    ask()
    walk.well(name)
    return walk.process.calls()
