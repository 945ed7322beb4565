"""What sets off each step and each request of servers with ports and volumes, and what must be true afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from skep.domain.actions import ACTION_STEPS
from skep_lab.beside.services import Json
from skep_lab.beside.walk import Request, WalkBeside
from skep_lab.crash.move_operations import LIVE, RESIZE
from skep_lab.crash.points import BESIDE_STEPS, Point, points_of
from skep_lab.crash.walk import FAILING, MEMBERS, MOVING, STAYING
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
OF_CONNECTED: tuple[Asked, ...] = (OF_MOVES[1], OF_MOVES[2], OF_MOVES[4])
"""Of a live migration between hosts that connect volumes: a second attachment is made with its connector."""
_STEPS_OF_CONNECTED = ("move_live_prepare", "move_live_copy", "move_live_take_up", "move_live_take_back")
Die: TypeAlias = Callable[[Callable[[], object]], None]
"""Sets something off, and sees the cloud die in its midst."""


class BesideCase(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cloud dies, and in the midst of what."""

    kind: Literal["build", "end", "move", "live", "attach", "swap", "snapshot", "extend"]
    at: Point | Request
    server: str = "server"
    """How names of servers begin."""
    members: int = FEW
    first: tuple[Json, ...] = ()
    """What was done to one of them before."""
    action: Json = {}
    after: str = "ACTIVE"

    @property
    def attaches(self) -> bool:
        """Whether the hosts connect volumes."""
        return self.kind == "live"

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


def _of_connected() -> Iterator[BesideCase]:
    for request in _requests(OF_CONNECTED):
        yield BesideCase(kind="live", at=request, action=LIVE)
    for step in _STEPS_OF_CONNECTED:
        server = STAYING if step == "move_live_take_back" else "server"
        for point in points_of(step):
            yield BesideCase(kind="live", at=point, server=server, action=LIVE)


_TOLD: dict[Literal["swap", "snapshot", "extend"], tuple[tuple[str, str], ...]] = {
    "swap": (
        ("POST", "attachments"),
        ("PUT", "attachments/*"),
        ("POST", "attachments/*/action"),
        ("DELETE", "attachments/*"),
        ("POST", "volumes/*/action"),
    ),
    "snapshot": (("POST", "snapshots/*/action"),),
    "extend": (),
}
"""What hosts do for the volume service, and the requests to it that come then."""


def _of_hosts() -> Iterator[BesideCase]:
    for kind, asked in _TOLD.items():
        for method, path in asked:
            for moment in MOMENTS:
                yield BesideCase(kind=kind, at=Request(service="cinder", method=method, path=path, moment=moment))
        for step in ACTION_STEPS:
            for point in points_of(step):
                yield BesideCase(kind=kind, at=point)


CASES = (
    *_of_steps(),
    *(BesideCase(kind="build", at=one) for one in _requests(OF_BUILDS)),
    *(BesideCase(kind="end", at=one) for one in _requests(OF_ENDS)),
    *_of_moves(),
    *_of_connected(),
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
    *_of_hosts(),
)
"""All that the walk beside services comes to."""


def walk_to(walk: WalkBeside, case: BesideCase) -> None:
    """Die there, begin anew, and see that all is well. Raises AssertionError."""

    def die(trigger: Callable[[], object]) -> None:
        if isinstance(case.at, Point):
            walk.crash(case.at, trigger)
        else:
            walk.crash_at(case.at, trigger)

    _WALKS[case.kind](walk, case, die)


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


def _swap(walk: WalkBeside, case: BesideCase, die: Die) -> None:
    """Die while another volume comes in the place of one; afterwards it is moved, unless nothing was promised."""
    chosen, *_ = _there(walk, case)
    volume = _volume_of(walk, chosen)
    other = walk.services.begin_move(volume)
    body = {"volumeAttachment": {"volumeId": other}}
    die(lambda: walk.sent("PUT", f"/servers/{chosen}/os-volume_attachments/{volume}", body))
    walk.process.start()
    begun = "swap_volume" in {one["action"] for one in _records(walk, chosen)}
    if not begun:
        walk.services.give_up_move(volume, other)
    walk.well("after a restart")
    assert walk.services.moved(volume) == ("success" if begun else "error")
    assert walk.statuses()[chosen] == "ACTIVE"


def _snapshot(walk: WalkBeside, case: BesideCase, die: Die) -> None:
    """Die while a host makes a snapshot of a volume; afterwards the service knows that it is made."""
    chosen, *_ = _there(walk, case)
    volume = _volume_of(walk, chosen)
    snapshot = walk.services.begin_snapshot(volume)
    info = {"snapshot_id": snapshot, "type": "qcow2", "new_file": f"file.{snapshot}"}
    body = {"snapshot": {"volume_id": volume, "create_info": info}}
    die(lambda: walk.sent("POST", "/os-assisted-volume-snapshots", body))
    walk.recovered()
    walk.until(lambda: walk.services.snapshot_status(snapshot) == "available", "the snapshot is there")
    walk.services.remove_snapshot(snapshot)
    assert walk.statuses()[chosen] == "ACTIVE"


def _extend(walk: WalkBeside, case: BesideCase, die: Die) -> None:
    """Die while a guest is told that a volume has grown; afterwards it was told."""
    chosen, *_ = _there(walk, case)
    volume = _volume_of(walk, chosen)
    walk.services.grow(volume)
    event = {"name": "volume-extended", "server_uuid": chosen, "tag": volume}
    die(lambda: walk.sent("POST", "/os-server-external-events", {"events": [event]}))
    walk.recovered()
    [told] = [one["request_id"] for one in _records(walk, chosen) if one["action"] == "extend_volume"]

    def well() -> bool:
        record = walk.process.answer(f"/servers/{chosen}/os-instance-actions/{told}")["instanceAction"]
        return [one["result"] for one in record["events"]] == ["Success"]

    walk.until(well, "the guest was told")
    assert walk.statuses()[chosen] == "ACTIVE"


_WALKS: dict[str, Callable[[WalkBeside, BesideCase, Die], None]] = {
    "build": _build,
    "end": _end,
    "move": _move,
    "live": _move,
    "attach": _attach,
    "swap": _swap,
    "snapshot": _snapshot,
    "extend": _extend,
}
"""By the kind of a case."""


def _records(walk: WalkBeside, server: str) -> list[Json]:
    """Return what the server says was done to it."""
    found: list[Json] = walk.process.answer(f"/servers/{server}/os-instance-actions")["instanceActions"]
    return found


def _volume_of(walk: WalkBeside, server: str) -> str:
    """Return a volume that a user brought to a server, and that stays after it."""
    path = f"/servers/{server}/os-volume_attachments"
    there: set[str] = {one["volumeId"] for one in walk.process.answer(path)["volumeAttachments"]}
    [mine] = there & walk.services.things.volumes
    return mine


def _there(walk: WalkBeside, case: BesideCase) -> list[str]:
    walk.create(case.server, case.members)
    uuids = walk.wait_statuses("ACTIVE")
    walk.well("at the beginning")
    return uuids
