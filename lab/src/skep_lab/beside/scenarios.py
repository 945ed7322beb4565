"""What sets off each step and each request of servers with ports and volumes, and what must be true afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from skep_lab.beside.services import Json
from skep_lab.beside.walk import Request, WalkBeside
from skep_lab.crash.move_operations import LIVE, RESIZE
from skep_lab.crash.points import BESIDE_STEPS, Point, points_of
from skep_lab.crash.walk import FAILING, MEMBERS, MOVING
from skep_lab.faulty_service import Moment

MIGRATE: Json = {"migrate": None}
CONFIRM: Json = {"confirmResize": None}
REVERT: Json = {"revertResize": None}
SHELVE: Json = {"shelve": None}
UNSHELVE: Json = {"unshelve": None}

_STEPS_OF_BUILDS = (
    "store take volumes select ports connect stage map settle dispatch claim may_build prepare may_spawn spawn built"
).split()
_STEPS_OF_ENDS = ("delete", "destroy", "deleted", "forget")
_OTHERS = {"failed": FAILING, "reschedule": FAILING, "move": MOVING}
"""Step -> how the name of a server begins that comes to it."""

FEW = 2
MOMENTS: tuple[Moment, ...] = ("before", "after")

Asked: TypeAlias = tuple[str, str, str, int]
"""A service, and a request to it by method and path, and how often it comes for two servers."""
OF_BUILDS: tuple[Asked, ...] = (
    ("neutron", "POST", "ports", 2),
    ("neutron", "PUT", "ports/*", 2),
    ("cinder", "POST", "volumes", 2),
    ("cinder", "POST", "attachments", 6),
    ("cinder", "PUT", "attachments/*", 6),
    ("cinder", "POST", "attachments/*/action", 6),
)
OF_ENDS: tuple[Asked, ...] = (
    ("neutron", "DELETE", "ports/*", 2),
    ("neutron", "PUT", "ports/*", 2),
    ("cinder", "DELETE", "attachments/*", 6),
    ("cinder", "DELETE", "volumes/*", 4),
)
OF_MOVES: tuple[Asked, ...] = (
    ("neutron", "PUT", "ports/*", 2),
    ("cinder", "POST", "attachments", 3),
    ("cinder", "DELETE", "attachments/*", 3),
    ("cinder", "PUT", "attachments/*", 3),
    ("cinder", "POST", "attachments/*/action", 3),
)
OF_LIVE_MIGRATIONS: tuple[Asked, ...] = (
    ("neutron", "POST", "ports/*/bindings", 2),
    ("neutron", "PUT", "ports/*/bindings/*/activate", 2),
    ("neutron", "DELETE", "ports/*/bindings/*", 2),
    *OF_MOVES[1:],
)
Die: TypeAlias = Callable[[Callable[[], object]], None]
"""Sets something off, and sees the cloud die in its midst."""


class BesideCase(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cloud dies, and in the midst of what."""

    kind: Literal["build", "end", "move", "attach"]
    at: Point | Request
    server: str = "server"
    """How names of servers begin."""
    members: int = FEW
    first: tuple[Json, ...] = ()
    """What was done to one of them before."""
    action: Json = {}
    after: str = "ACTIVE"

    def __str__(self) -> str:
        """Say which it is."""
        done = "-".join(next(iter(one)) for one in (*self.first, self.action) if one)
        return f"{self.kind}-{done}-{self.at}".replace(" ", "-")


def _of_steps() -> Iterator[BesideCase]:
    for step in BESIDE_STEPS:
        for point in points_of(step) if step in (*_STEPS_OF_BUILDS, *_STEPS_OF_ENDS, *_OTHERS) else ():
            if step in _STEPS_OF_ENDS:
                yield BesideCase(kind="end", at=point)
            elif step in _OTHERS:
                yield BesideCase(kind="build", at=point, server=_OTHERS[step], members=MEMBERS)
            else:
                yield BesideCase(kind="build", at=point)


def _requests(asked: Iterable[Asked]) -> Iterator[Request]:
    for service, method, path, times in asked:
        for moment in MOMENTS:
            for nth in (1, times):
                yield Request(service=service, method=method, path=path, moment=moment, nth=nth)


_MOVED: tuple[tuple[tuple[Json, ...], Json, str, tuple[Asked, ...]], ...] = (
    ((), MIGRATE, "VERIFY_RESIZE", OF_MOVES),
    ((), RESIZE, "VERIFY_RESIZE", OF_MOVES),
    ((MIGRATE,), REVERT, "ACTIVE", OF_MOVES),
    ((MIGRATE, CONFIRM), LIVE, "ACTIVE", OF_LIVE_MIGRATIONS),
    ((), SHELVE, "SHELVED_OFFLOADED", OF_MOVES[:3]),
    ((SHELVE,), UNSHELVE, "ACTIVE", (OF_MOVES[0], *OF_MOVES[3:])),
)
"""What was done before, the action, the status after it, the requests of which some come to a service then."""


def _of_moves() -> Iterator[BesideCase]:
    for first, action, after, asked in _MOVED:
        for request in _requests(asked):
            yield BesideCase(kind="move", at=request, first=first, action=action, after=after)


CASES = (
    *_of_steps(),
    *(BesideCase(kind="build", at=one) for one in _requests(OF_BUILDS)),
    *(BesideCase(kind="end", at=one) for one in _requests(OF_ENDS)),
    *_of_moves(),
    *(
        BesideCase(kind="attach", at=Request(service=service, method=method, path=path, moment=moment))
        for moment in MOMENTS
        for service, method, path in (
            ("cinder", "POST", "attachments"),
            ("cinder", "PUT", "attachments/*"),
            ("cinder", "DELETE", "attachments/*"),
            ("neutron", "POST", "ports"),
            ("neutron", "DELETE", "ports/*"),
        )
    ),
)
"""All that the walk beside services comes to."""


def walk_to(walk: WalkBeside, case: BesideCase) -> None:
    """Die there, begin anew, and see that all is well. Raises AssertionError."""

    def die(trigger: Callable[[], object]) -> None:
        if isinstance(case.at, Point):
            walk.crash(case.at, trigger)
        else:
            walk.crash_at(case.at, trigger)

    {"build": _build, "end": _end, "move": _move, "attach": _attach}[case.kind](walk, case, die)


def _build(walk: WalkBeside, case: BesideCase, die: Die) -> None:
    """Die while servers are built; afterwards those that were promised run, and nothing is there beside them."""
    die(lambda: walk.create(case.server, case.members))
    walk.recovered()
    statuses = walk.statuses()
    assert set(statuses.values()) <= {"ACTIVE"}, statuses
    assert walk.asked.created <= statuses.keys()


def _end(walk: WalkBeside, case: BesideCase, die: Die) -> None:
    """Die while servers are deleted; afterwards they are gone, and what users brought is free."""
    uuids = _there(walk, case)

    def ask() -> None:
        for uuid in uuids:
            walk.delete(uuid)

    die(ask)
    walk.recovered()
    for uuid in walk.statuses():
        assert uuid not in walk.asked.deleted


def _move(walk: WalkBeside, case: BesideCase, die: Die) -> None:
    """Die while a server goes to another host; afterwards it is there with all that it has, and the other stays."""
    chosen, *others = _there(walk, case)
    for action in case.first:
        assert walk.act(chosen, action)
        walk.well("before the move")
    die(lambda: walk.act(chosen, case.action))
    walk.recovered()
    assert walk.statuses()[chosen] == case.after
    assert {walk.statuses()[one] for one in others} == {"ACTIVE"}


def _attach(walk: WalkBeside, case: BesideCase, die: Die) -> None:
    """Die while a server gets or loses a volume or a port; afterwards it has it whole, or not at all."""
    chosen, *_ = _there(walk, case)
    assert isinstance(case.at, Request)
    # What it has then is not known.
    walk.asked.created.discard(chosen)
    if case.at.service == "cinder":
        path, body = f"/servers/{chosen}/os-volume_attachments", {"volumeAttachment": {"volumeId": walk.a_volume()}}
    else:
        path, body = f"/servers/{chosen}/os-interface", {"interfaceAttachment": {"net_id": walk.services.network}}
    if case.at.method != "DELETE":
        die(lambda: walk.sent("POST", path, body))
    else:
        made = walk.sent("POST", path, body)
        assert made is not None
        assert made.is_success, made.text
        [said] = made.json().values()
        walk.well("once it has more")
        die(lambda: walk.sent("DELETE", f"{path}/{said.get('port_id') or said['volumeId']}"))
    walk.recovered()
    assert walk.statuses()[chosen] == "ACTIVE"


def _there(walk: WalkBeside, case: BesideCase) -> list[str]:
    walk.create(case.server, case.members)
    uuids = walk.wait_statuses("ACTIVE")
    walk.well("at the beginning")
    return uuids
