"""Operations on servers that run, each with the writes and steps at which a cloud can die in the midst of it.

Actions of hosts are a task in the server's row, begun by a write of the API; what follows is steps. A move comes to
some of its steps several times, and the cloud dies at each. Updates are one write. A write that was not committed has
not happened; one that was, has, answered or not.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skep.domain.actions import ACTION_STEPS
from skep_lab.crash.points import Point
from skep_lab.crash.points import points_of as points_of_step
from skep_lab.crash.walk import STAYING, Walk

BEGIN_MOVE = "skep.api.handlers.server_moves.begin"
BEGIN = "skep.api.handlers.server_actions._write"
AWAIT = "skep.database.api.awaited_images.add"
BEGIN_IMAGE = "skep.api.handlers.server_actions._write_in_time"
AWAIT_SHELVED = "skep.database.api.awaited_images.await_shelved"
UNSHELVE = "skep.api.handlers.server_shelving._write"
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
    image: str = ""
    """The image that it makes of the server `{name}`, which is whole in the end or not there."""
    shelves: bool = False
    """Whether the image goes with the server, or when it is unshelved."""
    steps: tuple[str, ...] = tuple(ACTION_STEPS)
    """What follows the last write, where a host acts."""
    keeps: bool = False
    """Whether it is about a cloud that keeps deleted servers for a while."""
    server: str = "server"
    """How the names of the servers begin."""
    passes: dict[str, tuple[int, int]] = {}
    """Of a cold move, its steps instead: how often it comes to each, and how often that commits."""


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
        image="of-it",
    ),
    Operation(
        name="create-backup",
        body={"createBackup": {"name": "of-it", "backup_type": "daily", "rotation": 1}},
        writes=(AWAIT, BEGIN_IMAGE, STORE),
        image="of-it",
    ),
    Operation(name="rescue", body={"rescue": {"adminPass": "of-the-rescue"}}, after="RESCUE"),
    Operation(name="unrescue", body={"unrescue": None}, before="RESCUE"),
    Operation(name="change-password", body={"changePassword": {"adminPass": "of-the-guest"}}),
    Operation(name="trigger-crash-dump", body={"trigger_crash_dump": None}),
    Operation(
        name="shelve",
        body={"shelve": None},
        after="SHELVED_OFFLOADED",
        writes=(AWAIT, BEGIN_IMAGE, STORE),
        image="{name}-shelved",
        shelves=True,
    ),
    Operation(
        name="unshelve",
        body={"unshelve": None},
        before="SHELVED_OFFLOADED",
        writes=(AWAIT_SHELVED, UNSHELVE),
        steps=("reschedule", "dispatch", "claim", "may_build", "prepare", "may_spawn", "spawn", "built"),
        shelves=True,
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
    Operation(
        name="migrate",
        body={"migrate": None},
        after="VERIFY_RESIZE",
        writes=(BEGIN_MOVE,),
        passes={
            "move_select": (1, 1),
            "move_prepare": (1, 0),
            "move_put_aside": (1, 0),
            "move_transfer": (1, 0),
            "move_take_up": (1, 0),
            "may_move": (2, 2),
            "moved": (4, 4),
        },
    ),
    Operation(
        name="migrate-and-fail",
        body={"migrate": None},
        writes=(BEGIN_MOVE,),
        server=STAYING,
        passes={"move_take_back": (1, 0), "may_move": (2, 2), "moved": (4, 4)},
    ),
    Operation(
        name="revert",
        body={"revertResize": None},
        before="VERIFY_RESIZE",
        writes=(BEGIN_MOVE,),
        # What is told of a step that both ways have is looked for on either.
        passes={
            "move_put_aside": (1, 0),
            "move_receive": (1, 0),
            "move_take_up": (1, 0),
            "may_move": (2, 2),
            "moved": (3, 5),
        },
    ),
    Operation(name="confirm", body={"confirmResize": None}, before="VERIFY_RESIZE", writes=(WRITE,)),
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
    "RESCUE": {"rescue": None},
    "SHELVED_OFFLOADED": {"shelve": None},
    "VERIFY_RESIZE": {"migrate": None},
}
"""The action that brings a server into a status."""


def points_of(operation: Operation) -> tuple[Point, ...]:
    """Return where the cloud dies: at each write and, where a host acts, at each step that follows.

    A write's are just before it is committed, and when it is and nobody knows.
    """
    writes = tuple(Point(unit=write, way=way) for write in operation.writes for way in ("before", "lost"))
    if operation.passes:
        return writes + tuple(_points_of_move(operation))
    if operation.writes[-1] not in (BEGIN, STORE, UNSHELVE):
        return writes
    return writes + tuple(point for step in operation.steps for point in points_of_step(step))


def _points_of_move(operation: Operation) -> Iterator[Point]:
    for step, (times, commits) in operation.passes.items():
        for point in points_of_step(step):
            for nth in range(1, (commits if point.way == "lost" else times) + 1):
                yield msgspec.structs.replace(point, nth=nth)


def operate(walk: Walk, operation: Operation, point: Point) -> None:
    """Die in the midst of an operation on one of several servers; the others stay as they are."""
    walk.create(operation.server)
    chosen, *others = walk.wait_statuses("ACTIVE")
    walk.write_disk(chosen, chosen.encode())
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
    name = walk.process.answer(f"/servers/{chosen}")["server"]["name"]
    if not operation.after:
        walk.asked.created.discard(chosen)
    walk.crash(point, lambda: walk.sent(operation.method, f"/servers/{chosen}{operation.path}", operation.body))
    first = (AWAIT, AWAIT_SHELVED, BEAR, RESTORE)
    stored = (
        point.step in {*operation.steps, *operation.passes}
        or point.unit == STORE
        or (point.way == "lost" and point.unit not in first)
    )
    if stored and not operation.after:
        walk.asked.deleted.add(chosen)
    walk.recovered()
    if operation.image:
        walk.wait_images({operation.image.format(name=name): "active"} if stored else {})
    if operation.image and not operation.shelves:
        walk.remove_images()
    statuses = walk.statuses()
    assert statuses.get(chosen, "") == (operation.after if stored else operation.before)
    assert {statuses[uuid] for uuid in others} == {"ACTIVE"}
    if operation.shelves and statuses[chosen] == "ACTIVE":
        walk.wait_images({})
    if chosen in statuses:
        assert _shown(walk, chosen) == shown | (operation.shows if stored else {})
        if not operation.shelves:
            assert walk.read_disk(chosen) == chosen.encode()


def _shown(walk: Walk, uuid: str) -> dict[str, object]:
    server = walk.process.answer(f"/servers/{uuid}")["server"]
    return {key: server[key] for key in KEYS}
