"""What a walk knows of an operation on a server that runs: how it is asked for, and where a cloud dies in its midst.

Actions of hosts are a task in the server's row, begun by a write of the API; what follows is steps. A move comes to
some of its steps several times, and the cloud dies at each. Updates are one write. A write that was not committed has
not happened; one that was, has, answered or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from skep.domain.actions import ACTION_STEPS
from skep_lab.crash.points import Point
from skep_lab.crash.points import points_of as points_of_step

BEGIN_MOVE = "skep.api.handlers.server_moves.begin"
CHARGE_SIZES = "skep.api.handlers.charges._resize"
BEGIN_REBUILD = "skep.api.handlers.server_rebuilds.PreparedRebuild.write"
BEGIN_EVACUATION = "skep.api.handlers.server_evacuations.begin"
BEGIN = "skep.api.handlers.server_actions._write"
AWAIT = "skep.database.api.awaited_images.add"
BEGIN_IMAGE = "skep.api.handlers.server_actions._write_in_time"
AWAIT_SHELVED = "skep.database.api.awaited_images.await_shelved"
UNSHELVE = "skep.api.handlers.server_shelving._write"
OFFLOAD = "skep.database.cell.offloads.begin"
STORE = "skep.standalone.images.service._activate"
WRITE = "skep.database.cell.row_actions.carry_out"
DELETE = "skep.api.handlers.servers._delete"
BEAR = "skep.database.api.task_charges.bear"
RESTORE = "skep.api.handlers.charges._restore"
CHANGE = "skep.database.cell.instances.change"
BEFORE_BEGIN = (AWAIT, AWAIT_SHELVED, BEAR, RESTORE, CHARGE_SIZES)
"""Writes after which nothing has begun yet."""
COPIES = "follow_move"
"""The step of a move between cells that copies what is newer to the other cell."""

IMAGE = "{image}"
"""Stands in a body for the image that servers are made of."""

CloudKind = Literal["plain", "keeping", "alone", "apart"]
"""Of a walk: two cells of two hosts; likewise, and it keeps deleted and shelved servers; one host, to which servers may
be resized that are on it; two cells of one host each."""
PLAIN: CloudKind = "plain"
KEEPING: CloudKind = "keeping"
ALONE: CloudKind = "alone"
APART: CloudKind = "apart"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asks, from which status, and what it comes to."""

    name: str
    method: str = "POST"
    path: str = "/action"
    body: dict[str, object]
    before: str = "ACTIVE"
    brought: dict[str, object] = {}
    """What brings it into that status, if it is not the usual."""
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
    steps: tuple[str, ...] | None = None
    """What follows the last write, where a host acts; None: the steps of an action on a guest, if it is one."""
    cloud: CloudKind = PLAIN
    """Which cloud it is about."""
    server: str = "server"
    """How the names of the servers begin."""
    passes: dict[str, tuple[int, int]] = {}
    """Of a move or a rebuild, its steps instead: how often it comes to each, and how often that commits."""
    disk: Literal["kept", "anew"] = "kept"
    """What the disk of the server has afterwards: what its guest wrote, or the bytes of the image."""
    goes: bool | None = None
    """Whether the server is on another host afterwards; None: nobody looks."""
    source: Literal["up", "down", "lost"] = "up"
    """What its host is when it is asked: in use, said to be down while it lives, or without power until it returns."""
    leaves_cell: bool = False
    """Whether the hosts of its cell are said to be down when it is asked, so that a server goes to another cell."""
    wish: Literal["", "abort", "force_complete"] = ""
    """Of a live migration under way that would never end by itself; asked again until it is stored."""

    @property
    def follows(self) -> tuple[str, ...]:
        """The steps that follow the last write."""
        if self.steps is not None:
            return self.steps
        return tuple(ACTION_STEPS) if self.writes[-1] in (BEGIN, BEGIN_IMAGE, STORE) else ()


def points_of(operation: Operation) -> tuple[Point, ...]:
    """Return where the cloud dies: at each write and, where a host acts, at each step that follows.

    A write's are just before it is committed, and when it is and nobody knows.
    """
    writes = tuple(Point(unit=write, way=way) for write in operation.writes for way in ("before", "lost"))
    if operation.passes:
        return writes + tuple(_points_of_move(operation))
    return writes + tuple(point for step in operation.follows for point in points_of_step(step))


def may_be_joined(operation: Operation, point: Point) -> bool:
    """Tell whether a busy cloud may leave a pass out: the last copy of what is newer, done with the one before it."""
    if point.step != COPIES:
        return False
    times, commits = operation.passes[point.step]
    return 1 < point.nth == (commits if point.way == "lost" else times)


def _points_of_move(operation: Operation) -> Iterator[Point]:
    for step, (times, commits) in operation.passes.items():
        for point in points_of_step(step):
            for nth in range(1, (commits if point.way == "lost" else times) + 1):
                yield msgspec.structs.replace(point, nth=nth)
