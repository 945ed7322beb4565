"""Dies in the midst of an operation on a server that runs, and sees what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable

from skep_lab.crash.move_operations import LIVE
from skep_lab.crash.operation import BEFORE_BEGIN, IMAGE, STORE, Operation, may_be_joined
from skep_lab.crash.points import Point
from skep_lab.crash.walk import Walk

KEYS = ("metadata", "tags", "description", "locked")
"""What an update may change of what is shown, beside the flavor."""
COPIED = "running"
"""What a migration is while a guest is copied."""
REFUSED_FOR_NOW = (400, 409)
"""Of a host that is not known to be down yet."""

BROUGHT_BY: dict[str, dict[str, object]] = {
    "SHUTOFF": {"os-stop": None},
    "PAUSED": {"pause": None},
    "SUSPENDED": {"suspend": None},
    "RESCUE": {"rescue": None},
    "SHELVED": {"shelve": None},
    "SHELVED_OFFLOADED": {"shelve": None},
    "VERIFY_RESIZE": {"migrate": None},
}
"""The action that brings a server into a status."""


def operate(walk: Walk, operation: Operation, point: Point) -> None:
    """Die in the midst of an operation on one of several servers; the others stay as they are."""
    walk.create(operation.server, walk.together)
    chosen, *others = walk.wait_statuses("ACTIVE")
    walk.write_disk(chosen, chosen.encode())
    lived = walk.host_of(chosen)
    bring(walk, operation, chosen)
    shown, home = _shown(walk, chosen), walk.host_of(chosen) if operation.goes is not None else ""
    name = walk.process.answer(f"/servers/{chosen}")["server"]["name"]
    if not operation.after:
        walk.asked.created.discard(chosen)
    if operation.leaves_cell:
        walk.set_down(lived, down=True)
    elif operation.source == "down":
        walk.set_down(home, down=True)
    elif operation.source == "lost":
        walk.lose(home)
    ask = asking(walk, operation, chosen)
    walk.crash(point, ask, comes=not may_be_joined(operation, point))
    stored = (
        point.step in {*operation.follows, *operation.passes}
        or point.call != ""
        or point.unit == STORE
        or (point.way == "lost" and point.unit not in BEFORE_BEGIN)
    )
    if stored and not operation.after:
        walk.asked.deleted.add(chosen)
    walk.process.start(down=operation.source == "down" or operation.leaves_cell)
    if operation.wish and not stored:
        ask()
        stored = True
    walk.well(f"after a restart, {operation.name}")
    _see_images(walk, operation, name, stored=stored)
    statuses = walk.statuses()
    before = {operation.before, "SHUTOFF"} if operation.source == "lost" else {operation.before}
    assert statuses.get(chosen, "") in ({operation.after} if stored else before)
    assert {statuses[uuid] for uuid in others} <= {"ACTIVE"}
    if operation.shelves and statuses[chosen] == "ACTIVE":
        walk.wait_images({})
    if chosen in statuses:
        assert _shown(walk, chosen) == shown | (operation.shows if stored else {})
        _see_where(walk, operation, chosen, home, stored=stored)
    if operation.leaves_cell:
        walk.set_down(lived, down=False)
    elif operation.source == "down":
        walk.set_down(home, down=False)


def _see_images(walk: Walk, operation: Operation, name: str, *, stored: bool) -> None:
    if operation.image:
        walk.wait_images({operation.image.format(name=name): "active"} if stored else {})
        if not operation.shelves:
            walk.remove_images()


def _see_where(walk: Walk, operation: Operation, uuid: str, home: str, *, stored: bool) -> None:
    if not operation.shelves:
        assert walk.has_disk(uuid, anew=stored and operation.disk == "anew")
    if operation.goes is not None:
        assert (walk.host_of(uuid) != home) == (stored and operation.goes)


def bring(walk: Walk, operation: Operation, chosen: str) -> None:
    """Bring a server to where the operation begins."""
    if operation.before == "SOFT_DELETED":
        answer = walk.sent("DELETE", f"/servers/{chosen}")
        assert answer is not None
        assert answer.status_code == 204
    elif operation.before in BROUGHT_BY:
        walk.act(chosen, operation.brought or BROUGHT_BY[operation.before])
    if operation.before != "ACTIVE":
        walk.well(f"before {operation.name}")
    if operation.first:
        assert walk.act(chosen, operation.first)
    if operation.wish:
        assert walk.act(chosen, LIVE)
        walk.until(lambda: bool(_copied(walk, chosen)), "the guest is copied")


def asking(walk: Walk, operation: Operation, chosen: str) -> Callable[[], None]:
    """Return what asks for an operation until it is accepted, or the cloud is away."""
    body = json.loads(json.dumps(operation.body).replace(IMAGE, walk.process.image))
    path = f"/servers/{chosen}{operation.path}"
    if operation.wish:
        path = path.format(migration=_copied(walk, chosen)[0])

    def ask() -> None:
        def accepted() -> bool:
            answer = walk.sent(operation.method, path, body)
            for_now = operation.source != "up" and answer is not None and answer.status_code in REFUSED_FOR_NOW
            assert for_now or answer is None or answer.is_success, answer.text
            return not for_now

        walk.until(accepted, f"{operation.name} is accepted")

    return ask


def _copied(walk: Walk, uuid: str) -> list[str]:
    """Return the live migration by which a server is copied."""
    found = walk.process.answer(f"/servers/{uuid}/migrations")["migrations"]
    return [str(one["id"]) for one in found if one["status"] == COPIED]


def _shown(walk: Walk, uuid: str) -> dict[str, object]:
    server = walk.process.answer(f"/servers/{uuid}")["server"]
    return {key: server[key] for key in KEYS} | {"flavor": server["flavor"]["original_name"]}
