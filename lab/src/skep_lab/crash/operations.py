"""Operations on servers that run, each with the writes and steps at which a cloud can die in the midst of it.

Actions of hosts are a task in the server's row, begun by a write of the API; what follows is steps. Updates are one
write. A write that was not committed has not happened; one that was, has, answered or not.
"""

from __future__ import annotations

import msgspec

from skep.domain.actions import ACTION_STEPS
from skep_lab.crash.points import Point
from skep_lab.crash.points import points_of as points_of_step
from skep_lab.crash.walk import Walk

BEGIN = "skep.api.handlers.server_actions._write"
AWAIT = "skep.database.api.awaited_images.add"
BEGIN_IMAGE = "skep.api.handlers.server_actions._write_in_time"
STORE = "skep.standalone.images.service._activate"
WRITE = "skep.database.cell.row_actions.carry_out"
DELETE = "skep.api.handlers.servers._delete"
BEAR = "skep.database.api.task_charges.bear"
RESTORE = "skep.api.handlers.charges._restore"
CHANGE = "skep.database.cell.instances.change"
KEYS = ("metadata", "tags", "description", "locked")
"""What an update may change of what is shown."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asks, from which status, and what it comes to."""

    name: str
    method: str = "POST"
    path: str = "/action"
    body: dict[str, object]
    before: str = "ACTIVE"
    first: dict[str, object] = {}
    """An action that was done before."""
    after: str = "ACTIVE"
    """Empty: it is gone."""
    writes: tuple[str, ...] = (BEGIN,)
    shows: dict[str, object] = {}
    """What a server shows once it is done."""
    image: bool = False
    """Whether it makes an image, which is whole in the end or not there."""
    keeps: bool = False
    """Whether it is about a cloud that keeps deleted servers for a while."""


OPERATIONS = (
    Operation(name="stop", body={"os-stop": None}, after="SHUTOFF"),
    Operation(name="start", body={"os-start": None}, before="SHUTOFF"),
    Operation(name="reboot", body={"reboot": {"type": "SOFT"}}),
    Operation(name="hard-reboot", body={"reboot": {"type": "HARD"}}),
    Operation(name="pause", body={"pause": None}, after="PAUSED"),
    Operation(name="unpause", body={"unpause": None}, before="PAUSED"),
    Operation(name="suspend", body={"suspend": None}, after="SUSPENDED"),
    Operation(name="resume", body={"resume": None}, before="SUSPENDED"),
    Operation(
        name="create-image",
        body={"createImage": {"name": "of-it"}},
        writes=(AWAIT, BEGIN_IMAGE, STORE),
        image=True,
    ),
    Operation(
        name="create-backup",
        body={"createBackup": {"name": "of-it", "backup_type": "daily", "rotation": 1}},
        writes=(AWAIT, BEGIN_IMAGE, STORE),
        image=True,
    ),
    Operation(
        name="soft-delete",
        method="DELETE",
        path="",
        body={},
        after="SOFT_DELETED",
        writes=(BEAR, BEGIN),
        keeps=True,
    ),
    Operation(name="restore", body={"restore": None}, before="SOFT_DELETED", writes=(RESTORE, BEGIN), keeps=True),
    Operation(name="lock", body={"lock": None}, writes=(WRITE,), shows={"locked": True}),
    Operation(name="unlock", first={"lock": None}, body={"unlock": None}, writes=(WRITE,), shows={"locked": False}),
    Operation(name="reset-state", body={"os-resetState": {"state": "active"}}, writes=(WRITE,)),
    Operation(name="force-delete", body={"forceDelete": None}, after="", writes=(DELETE,)),
    Operation(
        name="metadata",
        method="PUT",
        path="/metadata",
        body={"metadata": {"colour": "blue"}},
        writes=(CHANGE,),
        shows={"metadata": {"colour": "blue"}},
    ),
    Operation(
        name="tags", method="PUT", path="/tags", body={"tags": ["one"]}, writes=(CHANGE,), shows={"tags": ["one"]}
    ),
    Operation(
        name="update",
        method="PUT",
        path="",
        body={"server": {"description": "new"}},
        writes=(CHANGE,),
        shows={"description": "new"},
    ),
)


BROUGHT_BY: dict[str, dict[str, object]] = {
    "SHUTOFF": {"os-stop": None},
    "PAUSED": {"pause": None},
    "SUSPENDED": {"suspend": None},
}
"""The action that brings a server into a status."""


def points_of(operation: Operation) -> tuple[Point, ...]:
    """Return where the cloud dies: at each write and, where a host acts, at each step that follows.

    A write's are just before it is committed, and when it is and nobody knows.
    """
    writes = tuple(Point(unit=write, way=way) for write in operation.writes for way in ("before", "lost"))
    if operation.writes[-1] not in (BEGIN, STORE):
        return writes
    return writes + tuple(point for step in ACTION_STEPS for point in points_of_step(step))


def operate(walk: Walk, operation: Operation, point: Point) -> None:
    """Die in the midst of an operation on one of several servers; the others stay as they are."""
    walk.create("server")
    chosen, *others = walk.wait_statuses("ACTIVE")
    if operation.before in BROUGHT_BY:
        walk.act(chosen, BROUGHT_BY[operation.before])
        walk.well(f"before {operation.name}")
    if operation.before == "SOFT_DELETED":
        answer = walk.sent("DELETE", f"/servers/{chosen}")
        assert answer is not None
        assert answer.status_code == 204
        walk.well(f"before {operation.name}")
    if operation.first:
        assert walk.act(chosen, operation.first)
    shown = _shown(walk, chosen)
    if not operation.after:
        walk.asked.created.discard(chosen)
    walk.crash(point, lambda: walk.sent(operation.method, f"/servers/{chosen}{operation.path}", operation.body))
    first = (AWAIT, BEAR, RESTORE)
    stored = point.step in ACTION_STEPS or point.unit == STORE or (point.way == "lost" and point.unit not in first)
    if stored and not operation.after:
        walk.asked.deleted.add(chosen)
    walk.recovered()
    if operation.image:
        walk.wait_images({"of-it": "active"} if stored else {})
        walk.remove_images()
    statuses = walk.statuses()
    assert statuses.get(chosen, "") == (operation.after if stored else operation.before)
    assert {statuses[uuid] for uuid in others} == {"ACTIVE"}
    if chosen in statuses:
        assert _shown(walk, chosen) == shown | (operation.shows if stored else {})


def _shown(walk: Walk, uuid: str) -> dict[str, object]:
    server = walk.process.answer(f"/servers/{uuid}")["server"]
    return {key: server[key] for key in KEYS}
