"""The way of a cold move: its steps, who takes each, what users see meanwhile. `STEPS` is the one table.

    select ──> prepare ──> put_aside ──> transfer ──(switch)──> take_up ──> (resized) ──confirm──> over
      ^           │             └───────────┴──> take_back ──> over                 │
      └─ refused ─┘                                                                 └─revert─> revert_put_aside ─┐
                                                     over <── revert_take_up <──(switch)── revert_receive <──────┘

`docs/moves.md` says of each step what it writes and why it may be repeated.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from skep.domain.builds import Step
from skep.domain.instances import Task

Side = Literal["source", "target", "back"]
"""Whose attempt a step is about: the one that the move leaves, the one that it goes to, or the one by which a revert
comes back to the host of the first."""


class MoveRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a move."""

    name: str
    """In the column `step` of its row; never changes."""
    side: Side | None
    """None: a conductor takes it."""
    holder: Side
    """Whose attempt holds the server while it runs."""
    order: str = ""
    """What its host is told: a name in `skep.compute.moves.STEPS`."""
    task: Task
    """Of the server while it runs."""
    status: str
    """Nova's, of the migration while it runs."""
    next: str | None
    """The step after it; None: the move rests, or is over."""
    on_failure: str | None = None
    """The step that follows a failure; None: the step is tried again, and the server is ERROR until it is done."""
    event: str | None = None
    """The event of the instance action that its end writes."""
    starts: str | None = None
    """`instance.NAME.start` tells that its host may begin it (of a choice: that a host is chosen)."""
    ends: str | None = None
    """`instance.NAME.end` tells that it is done."""


_ROWS = (
    MoveRow(
        name="select",
        side=None,
        holder="source",
        starts="resize_prep",
        task=Task.RESIZE_PREP,
        status="pre-migrating",
        next="prepare",
    ),
    MoveRow(
        name="prepare",
        side="target",
        holder="source",
        order="prepare",
        task=Task.RESIZE_PREP,
        status="pre-migrating",
        next="put_aside",
        on_failure="select",
        event="compute_prep_resize",
        ends="resize_prep",
    ),
    MoveRow(
        name="put_aside",
        side="source",
        holder="source",
        order="put_aside",
        task=Task.RESIZE_MIGRATING,
        status="migrating",
        next="transfer",
        on_failure="take_back",
        starts="resize",
    ),
    MoveRow(
        name="transfer",
        side="target",
        holder="source",
        order="transfer",
        event="compute_resize_instance",
        ends="resize",
        task=Task.RESIZE_MIGRATING,
        status="migrating",
        next="take_up",
        on_failure="take_back",
    ),
    MoveRow(
        name="take_up",
        side="target",
        holder="target",
        order="take_up",
        task=Task.RESIZE_FINISH,
        status="post-migrating",
        next=None,
        event="compute_finish_resize",
        starts="resize_finish",
        ends="resize_finish",
    ),
    MoveRow(
        name="take_back",
        side="source",
        holder="source",
        order="take_back",
        task=Task.RESIZE_MIGRATING,
        status="migrating",
        next=None,
    ),
    MoveRow(
        name="revert_put_aside",
        side="target",
        holder="target",
        order="put_aside",
        task=Task.RESIZE_REVERTING,
        status="reverting",
        next="revert_receive",
        on_failure="revert_take_back",
        event="compute_revert_resize",
        starts="resize_revert",
    ),
    MoveRow(
        name="revert_receive",
        side="back",
        holder="target",
        order="receive",
        task=Task.RESIZE_REVERTING,
        status="reverting",
        next="revert_take_up",
        on_failure="revert_take_back",
    ),
    MoveRow(
        name="revert_take_up",
        side="back",
        holder="back",
        order="take_up",
        task=Task.RESIZE_REVERTING,
        status="reverting",
        next=None,
        event="compute_finish_revert_resize",
        ends="resize_revert",
    ),
    MoveRow(
        name="revert_take_back",
        side="target",
        holder="target",
        order="take_back",
        task=Task.RESIZE_REVERTING,
        status="reverting",
        next=None,
    ),
)

STEPS: dict[str, MoveRow] = {row.name: row for row in _ROWS}

HELD_BY: dict[Side, frozenset[str]] = {
    side: frozenset(row.name for row in _ROWS if row.holder == side) for side in get_args(Side)
}
"""The steps during which the attempt of this side holds the server."""

SWITCHES = {
    row.name: STEPS[row.next].holder for row in _ROWS if row.next is not None and STEPS[row.next].holder != row.holder
}
"""The end of these steps gives the server to another attempt, in one statement."""

MOVING = frozenset(row.task for row in _ROWS)
"""Tasks of servers under a move."""

ON_HOSTS = frozenset(row.name for row in _ROWS if row.side is not None)

_ORDERS = sorted({row.order for row in _ROWS if row.order})

MOVE_STEPS: dict[str, Step] = {
    **{f"move_{order}": Step(f"move_{order}", "compute") for order in _ORDERS},
    "move_select": Step("move_select", "cell_conductor"),
    "may_move": Step("may_move", "cell_conductor"),
    "moved": Step("moved", "cell_conductor"),
}
"""The steps as metrics, log lines and crash points name them."""
