"""The ways of moves: their steps, who takes each, what users see meanwhile. `STEPS` is the one table.

    select ──> prepare ──> put_aside ──> transfer ──(switch)──> take_up ──> (resized) ──confirm──> over
      ^           │             └───────────┴──> take_back ──> over                 │
      └─ refused ─┘                                                                 └─revert─> revert_put_aside ─┐
                                                     over <── revert_take_up <──(switch)── revert_receive <──────┘

    evacuate_select ──> evacuate_prepare ──> evacuate_release ──(switch)──> evacuate_spawn ──> over
         ^                    │                      └──> evacuate_take_back ──> over
         └────── refused ─────┘

    live_select ──> live_prepare ──> live_copy ──(switch)──> live_take_up ──> over
      ^               │                  └──> live_take_back ──> over
      └── refused ────┘

    rebuild_prepare ──> rebuild_put_aside ──(switch)──> rebuild_spawn ──> over
          │                     └──────────> rebuild_take_back <──(back)──┘
          └─ refused: over

    reimage_prepare ──> reimage_put_aside ──> reimage_ask ──> reimage_await ──(switch)──> reimage_spawn ──> over
          │                     │                  │                └──> reimage_take_back <──(back)──┘
          └─ refused: over      └──────────────────┴──> rebuild_take_back

    a cold move for which its cell has no host (`between_cells.py`):

    select ──> seek ──> prepare ──> put_aside ──> transfer ──> hand_over ──(switch)──> take_up
    revert_receive ──> revert_hand_over ──(switch)──> revert_take_up

A rebuild stays on its host: the attempts of both sides are there. `docs/moves.md` says of each step what it writes and
why it may be repeated.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from skep.domain.builds import Step
from skep.domain.flavors import Flavor
from skep.domain.instances import Instance, Task
from skep.domain.nested.wanted import DeviceRequest
from skep.domain.request_specs import RequestSpec
from skep.domain.server_migrations import QUEUED

Side = Literal["source", "target", "back"]
"""Whose attempt a step is about: the one that the move leaves, the one that it goes to, or the one by which a revert
comes back to the host of the first."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What a resize changes of a server."""

    flavor: Flavor
    devices: tuple[DeviceRequest, ...] = ()
    """That the flavor's aliases mean."""
    disk_config: Literal["AUTO", "MANUAL"] = "MANUAL"

    def instance(self, of: Instance) -> Instance:
        """Return a server of this size."""
        return msgspec.structs.replace(of, flavor=self.flavor, disk_config=self.disk_config)

    def spec(self, of: RequestSpec) -> RequestSpec:
        """Return what placement looks at of a server of this size."""
        return of.resized(self.flavor, self.devices)


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
    waits: str | None = None
    """Nova's status until its turn has come, before which no host is told of it; None: its turn comes at once."""
    next: str | None
    """The step after it; None: the move rests, or is over."""
    on_failure: str | None = None
    """The step that follows a failure; None: the step is tried again, and the server is ERROR until it is done."""
    gives_up: bool = False
    """A failure ends the move, with the server as it was."""
    event: str | None = None
    """The event of the instance action that its end writes."""
    event_of: Side | None = None
    """Whose host the event names; None: that of the step."""
    failure_event: str | None = None
    """The event that its failure writes, where its end writes none."""
    starts: str | None = None
    """`instance.NAME.start` tells that its host may begin it (of a choice: that a host is chosen)."""
    ends: str | None = None
    """`instance.NAME.end` tells that it is done."""
    announces: str | None = None
    """`instance.NAME` tells that its host was told, before `starts`."""
    opens: str | None = None
    """`instance.NAME.start` tells, too, that it is done; what `NAME` stands for goes on after it."""
    elsewhere: str | None = None
    """The step after it in a move between cells; None: `next`."""
    elsewhere_failed: str | None = None
    """The step that follows a failure in a move between cells; None: `on_failure`."""
    above: bool = False
    """A super conductor takes it: it concerns two cells, or the volume service."""
    closes: str | None = None
    """`instance.NAME.end` tells, too, that it is done, and that what another step opened is over."""


def _rebuilding(kind: str, *, then: str) -> tuple[MoveRow, ...]:
    """Return the steps that a rebuild has, whatever it makes the guest of.

    `then`: what follows when the guest is put aside. One that is not replaced yet is taken back by the step of a plain
    rebuild.
    """
    return (
        MoveRow(
            name=f"{kind}_prepare",
            side="target",
            holder="source",
            order="rebuild_prepare",
            task=Task.REBUILDING,
            status="preparing",
            next=f"{kind}_put_aside",
            gives_up=True,
            event="rebuild_server",
            announces="rebuild_scheduled",
            starts="rebuild",
        ),
        MoveRow(
            name=f"{kind}_put_aside",
            side="source",
            holder="source",
            order="rebuild_put_aside",
            task=Task.REBUILD_BLOCK_DEVICE_MAPPING,
            status="running",
            next=then,
            on_failure="rebuild_take_back",
        ),
        MoveRow(
            name=f"{kind}_spawn",
            side="target",
            holder="target",
            order="rebuild_spawn",
            task=Task.REBUILD_SPAWNING,
            status="running",
            next=None,
            on_failure=f"{kind}_take_back",
        ),
        MoveRow(
            name=f"{kind}_take_back",
            side="source",
            holder="source",
            order="take_back",
            task=Task.REBUILD_BLOCK_DEVICE_MAPPING,
            status="running",
            next=None,
        ),
    )


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
        elsewhere_failed="seek",
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
        failure_event="compute_resize_instance",
        starts="resize",
    ),
    MoveRow(
        name="transfer",
        side="target",
        holder="source",
        order="transfer",
        event="compute_resize_instance",
        event_of="source",
        ends="resize",
        task=Task.RESIZE_MIGRATING,
        status="migrating",
        next="take_up",
        elsewhere="hand_over",
        on_failure="take_back",
    ),
    MoveRow(
        name="seek",
        side=None,
        above=True,
        holder="source",
        task=Task.RESIZE_PREP,
        status="pre-migrating",
        next="prepare",
    ),
    MoveRow(
        name="hand_over",
        side=None,
        above=True,
        holder="source",
        task=Task.RESIZE_MIGRATING,
        status="migrating",
        next="take_up",
        on_failure="take_back",
    ),
    MoveRow(
        name="revert_hand_over",
        side=None,
        above=True,
        holder="target",
        task=Task.RESIZE_REVERTING,
        status="reverting",
        next="revert_take_up",
        on_failure="revert_take_back",
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
        elsewhere="revert_hand_over",
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
    MoveRow(
        name="evacuate_select",
        side=None,
        holder="source",
        starts="rebuild_scheduled",
        task=Task.EVACUATING,
        status="accepted",
        next="evacuate_prepare",
    ),
    MoveRow(
        name="evacuate_prepare",
        side="target",
        holder="source",
        order="prepare_anew",
        task=Task.EVACUATING,
        status="pre-migrating",
        next="evacuate_release",
        on_failure="evacuate_select",
    ),
    MoveRow(
        name="evacuate_release",
        side="source",
        holder="source",
        order="release",
        task=Task.EVACUATING,
        status="pre-migrating",
        next="evacuate_spawn",
        on_failure="evacuate_take_back",
    ),
    MoveRow(
        name="evacuate_spawn",
        side="target",
        holder="target",
        order="spawn",
        task=Task.EVACUATE_SPAWNING,
        status="pre-migrating",
        next=None,
        event="compute_rebuild_instance",
        starts="rebuild",
        ends="rebuild",
    ),
    MoveRow(
        name="evacuate_take_back",
        side="source",
        holder="source",
        order="take_back",
        task=Task.EVACUATING,
        status="pre-migrating",
        next=None,
    ),
    *_rebuilding("rebuild", then="rebuild_spawn"),
    *_rebuilding("reimage", then="reimage_ask"),
    MoveRow(
        name="reimage_ask",
        side=None,
        above=True,
        holder="source",
        task=Task.REBUILD_BLOCK_DEVICE_MAPPING,
        status="running",
        next="reimage_await",
        on_failure="rebuild_take_back",
    ),
    MoveRow(
        name="reimage_await",
        side=None,
        above=True,
        holder="source",
        task=Task.REBUILD_BLOCK_DEVICE_MAPPING,
        status="running",
        next="reimage_spawn",
        on_failure="reimage_take_back",
    ),
    MoveRow(
        name="live_select",
        side=None,
        holder="source",
        starts="live_migration_pre",
        task=Task.MIGRATING,
        status="accepted",
        next="live_prepare",
    ),
    MoveRow(
        name="live_prepare",
        side="target",
        holder="source",
        order="live_prepare",
        task=Task.MIGRATING,
        status="preparing",
        waits=QUEUED,
        next="live_copy",
        on_failure="live_select",
        event="compute_pre_live_migration",
        ends="live_migration_pre",
    ),
    MoveRow(
        name="live_copy",
        side="source",
        holder="source",
        order="live_copy",
        task=Task.MIGRATING,
        status="running",
        next="live_take_up",
        on_failure="live_take_back",
        event="compute_live_migration",
        opens="live_migration_post",
    ),
    MoveRow(
        name="live_take_up",
        side="target",
        holder="target",
        order="live_take_up",
        task=Task.MIGRATING,
        status="post-migrating",
        next=None,
        event="compute_post_live_migration_at_destination",
        starts="live_migration_post_dest",
        ends="live_migration_post_dest",
        closes="live_migration_post",
    ),
    MoveRow(
        name="live_take_back",
        side="source",
        holder="source",
        order="live_take_back",
        task=Task.MIGRATING,
        status="running",
        next=None,
        starts="live_migration_rollback",
        ends="live_migration_rollback",
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

CHOICES = frozenset(row.name for row in _ROWS if row.side is None and not row.above)
"""Steps in which a cell conductor chooses a host."""

SEEK = "seek"
"""The step in which a super conductor chooses a host in another cell."""

REIMAGE_ASK, REIMAGE_AWAIT = "reimage_ask", "reimage_await"
"""The steps in which a super conductor has the volume that a server boots from filled anew, and waits for it."""
REIMAGING = frozenset({REIMAGE_ASK, REIMAGE_AWAIT})

HANDING_OVER = frozenset(row.name for row in _ROWS if row.above and row.name not in REIMAGING | {SEEK})
"""Steps in which a super conductor gives the server to another cell."""

OF_SIDE: dict[Side, frozenset[str]] = {
    side: frozenset(row.name for row in _ROWS if row.side == side) for side in get_args(Side)
}
"""The steps that the host of this side takes."""

EVACUATING = frozenset(row.name for row in _ROWS if row.task in (Task.EVACUATING, Task.EVACUATE_SPAWNING))
BEFORE_RELEASE = frozenset({"evacuate_select", "evacuate_prepare", "evacuate_release"})
"""Steps of an evacuation that may begin anew, should what is known of the lost host change."""

SWITCHES_BACK = {
    row.name: STEPS[row.on_failure].holder
    for row in _ROWS
    if row.on_failure is not None and STEPS[row.on_failure].holder != row.holder
}
"""The failure of these steps gives the server back to the attempt that had it before."""

_AFTER = {*(STEPS[name].next for name in SWITCHES), *(STEPS[name].on_failure for name in SWITCHES_BACK)}
SWITCHED = frozenset(name for name in _AFTER if name is not None)
"""Steps of the host that has got the server by a switch: those that follow it."""

MOVING = frozenset(row.task for row in _ROWS)
"""Tasks of servers under a move."""

ONCE = frozenset({"rebuild_scheduled"})
"""Notifications of steps that have no end of their own."""

WISHES = ("abort", "complete")
"""What may be wished of `live_copy` while it runs: that it comes to nothing, or that it ends by pausing the guest."""

ABORTED = "LiveMigrationAborted"
"""The error of a live migration that was ended by a wish."""

ON_HOSTS = frozenset(row.name for row in _ROWS if row.side is not None)

_ORDERS = sorted({row.order for row in _ROWS if row.order})

MOVE_STEPS: dict[str, Step] = {
    **{f"move_{order}": Step(f"move_{order}", "compute") for order in _ORDERS},
    "move_select": Step("move_select", "cell_conductor"),
    "seek": Step("seek", "super_conductor"),
    "stage_move": Step("stage_move", "super_conductor"),
    "follow_move": Step("follow_move", "super_conductor"),
    "hand_over": Step("hand_over", "super_conductor"),
    "land": Step("land", "super_conductor"),
    "fold": Step("fold", "super_conductor"),
    "may_move": Step("may_move", "cell_conductor"),
    "moved": Step("moved", "cell_conductor"),
}
"""The steps as metrics, log lines and crash points name them."""
