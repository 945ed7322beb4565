"""Moves of guests of QEMU between two hosts, with what the driver of each changes for them, call by call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from skep_lab.crash.libvirt_operations import BY_NAME, points_of
from skep_lab.crash.operating import asking, bring, operate
from skep_lab.crash.points import Point
from skep_lab.processes.libvirt_walk import Kind, LibvirtAgentsWalk, Side

REPEATED = frozenset({"virDomainAbortJob"})
"""Calls that are made again at each look until they had their effect."""
SIDES: tuple[Side, ...] = ("here", "there")

_ENDED = ("virDomainDestroy", "virDomainDestroy", "virDomainUndefineFlags")
_SENT = ("send manifest", *("send data", "send data", "send end") * 2)
_KEPT = ("os.mkdir ARRIVAL", *("keep data",) * 4, *("keep end",) * 2)
_RECEIVED = ("os.mkdir GUEST", "run prlimit", "run prlimit", "os.rename disk")
_GROWN = ("os.mkdir GUEST", "run prlimit", "run prlimit", "run prlimit", "os.rename disk")
_LEFT = ("os.remove base.qcow2", "os.remove disk", "os.rmdir ARRIVAL")
_MADE = ("os.rename config.iso", "virDomainDefineXML", "virDomainCreate", "virDomainSetMetadata")
_FILES = ("os.remove config.iso", "os.remove disk", "os.remove base.qcow2", "os.remove console.log", "os.rmdir GUEST")
_GONE = (_FILES[0], "os.remove .sent", *_FILES[1:])
_AWAITED = (
    *("os.mkdir GUEST", "os.rename config.iso", "virStoragePoolCreateXML"),
    *("os.mkdir attempt-2", "os.mkdir MEETING", "os.mkdir attempt-2", "os.rename target.json"),
)
_TAKEN = (
    *("virDomainResume", "virStoragePoolDestroy", "virDomainSetMetadata", "os.remove .seen"),
    *("os.remove handed-over", "os.remove console.log", "os.remove target.json"),
    *("os.rmdir attempt-2", "os.rmdir MEETING"),
)
CALLS: Mapping[Kind, Mapping[str, Mapping[Side, tuple[str, ...]]]] = {
    "cold": {
        "migrate": {"here": (*_ENDED, *_SENT), "there": (*_KEPT, *_RECEIVED, *_LEFT, *_MADE)},
        "revert": {
            "here": (*_ENDED, *_FILES),
            "there": (*_RECEIVED, *_MADE, *_FILES),
        },
        "confirm": {"here": (), "there": _FILES},
        "resize": {"here": (*_ENDED, *_SENT), "there": (*_KEPT, *_GROWN, *_LEFT, *_MADE)},
    },
    "live": {
        "live-migrate": {
            "here": ("virStorageVolCreateXML", "os.rename .sent", "virDomainMigrateToURI3", *_GONE),
            "there": (*_AWAITED, *_TAKEN),
        }
    },
    "shared": {
        "live-migrate": {
            "here": ("os.link disk", "os.link base.qcow2", "os.rename .sent", "virDomainMigrateToURI3", *_GONE),
            "there": (*_AWAITED, *_TAKEN),
        }
    },
    "slow": {
        "abort": {
            "here": ("virDomainAbortJob", "os.remove .sent"),
            "there": (
                *("virStoragePoolDestroy", "os.remove config.iso", "os.remove disk"),
                *("os.remove .seen", "os.remove console.log", "os.rmdir GUEST"),
                *("os.remove target.json", "os.rmdir attempt-2", "os.rmdir MEETING"),
            ),
        },
        "force-complete": {"here": ("virDomainSuspend", *_GONE), "there": _TAKEN},
    },
}
"""By the kind of the cloud and the name of an operation what is called for it on each host, in order."""


class AgentCase(msgspec.Struct, frozen=True, kw_only=True):
    """One death of an agent."""

    kind: Kind
    operation: str
    side: Side
    point: Point

    def __str__(self) -> str:
        """Return what a test is called by."""
        nth = f"-{self.point.nth}" if self.point.nth > 1 else ""
        call = self.point.call.replace(" ", "-")
        return f"{self.kind}-{self.operation}-{self.side}-{self.point.way}-{call}{nth}"


def cases() -> Iterator[AgentCase]:
    """Yield each place at which an agent dies."""
    for kind, operations in CALLS.items():
        for operation, sides in operations.items():
            for side, calls in sides.items():
                for point in points_of(calls):
                    yield AgentCase(kind=kind, operation=operation, side=side, point=point)


def die_at(walk: LibvirtAgentsWalk, case: AgentCase) -> None:
    """Have an agent die there, and see that all is as it was promised. Raises AssertionError."""
    walk.side = case.side
    operate(walk, BY_NAME[case.operation], case.point)


def called(walk: LibvirtAgentsWalk, name: str) -> dict[Side, tuple[str, ...]]:
    """Return what the drivers call in an operation that nothing cuts."""
    # The first time both hosts copy the bytes of its image.
    _called(walk, name)
    walk.clear()
    return _called(walk, name)


def _called(walk: LibvirtAgentsWalk, name: str) -> dict[Side, tuple[str, ...]]:
    operation = BY_NAME[name]
    walk.create(operation.server, 1)
    [uuid] = walk.wait_statuses("ACTIVE")
    walk.well("once it is built")
    walk.write_disk(uuid, b"")
    bring(walk, operation, uuid)
    agents = {side: walk.process.cloud.children[f"compute-{walk.on(side, uuid)}"] for side in SIDES}
    ask = asking(walk, operation, uuid)
    for agent in agents.values():
        agent.calls()
    ask()
    walk.well(name)
    return {side: tuple(_without_repeats(agent.calls())) for side, agent in agents.items()}


def _without_repeats(calls: Iterable[str]) -> Iterator[str]:
    """Yield calls; what is asked until it is done is one of them."""
    before = ""
    for call in calls:
        if call not in REPEATED or call != before:
            yield call
        before = call
