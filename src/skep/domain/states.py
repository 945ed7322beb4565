"""The states of an instance: one row for each, with all that is true of it. Every other list of states comes from here.

    (BuildRequest) ──stage──> STAGED ──map──> SCHEDULED ──may_build──> BUILDING ──may_spawn──> SPAWNING
                                │                ^   │                    │                       │  │
                                │ no host        │   └────── failed ──────┴───────────────────────┘  │ built
                                v                │              v                                    v
                              ERROR <─ exhausted ┴──────── RESCHEDULING           STOPPED <─stop── ACTIVE
                                ^                               │ no host in the cell    └────start─────^
                                └─ no other cell ─ LEAVING <─ HANDED_BACK
                                                      └──> MOVED (and STAGED in another cell)

ACTIVE becomes PAUSED, SUSPENDED and RESCUED, too, and each of the five any other, as its guest is. SOFT_DELETED
follows each of them, and ERROR; restored, it is ACTIVE. SHELVED follows all but RESCUED, SHELVED_OFFLOADED follows it.
An offloaded server is built anew from its image: RESCHEDULING and what follows, in another cell too, until it is ACTIVE
or SHELVED_OFFLOADED again. One that was MOVED may come back: it is STAGED over that row.

A cold move to another cell has a row in both: the one where the server is not is AWAY. ACTIVE, STOPPED and RESIZED
become AWAY where it was, and AWAY becomes one of them where it is then (`database/cell/between_cells.py`).

Any state may become ERROR or DELETED. Deleting is a *task* beside the state, so that users see what is being deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import msgspec

from skep.domain.instances import State, Task


class StateRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of every instance in one state."""

    vm_state: str
    """Nova's."""
    status: str
    """The API's, while nothing is being done to the server."""
    task_state: str | None = None
    """Nova's, while nothing else is being done to the server."""
    building: bool = False
    """A build is under way: a conductor or a host has to go on with it, and its secrets are kept."""
    settled: bool = False
    """The build is over and the server lives: it stays so until something is asked of it."""
    on_host: bool = False
    """The row's host was chosen for the row's attempt and has not ended it: the attempt is open there."""
    placeless: bool = False
    """A host is being looked for: the row's attempt is on none, and a row of another cell goes before this one."""
    visible: bool = True
    """Users may see the row, as far as its cell knows."""
    frozen: bool = False
    """The mapping says whether this row is the server: users see it only if it does, and their writes wait for that."""
    followers: frozenset[State] = frozenset()
    """States that writes may make of this one."""


_BY_GUEST = frozenset({State.ACTIVE, State.STOPPED, State.PAUSED, State.SUSPENDED, State.RESCUED})
"""States that say how the guest was left: any of them may follow any other (`domain/guests.py`)."""

_PUT_AWAY = frozenset({State.SOFT_DELETED, State.SHELVED})
"""States in which a host keeps a guest that is off."""

_BETWEEN_CELLS = frozenset({State.RESIZED, State.AWAY})
"""States that a cold move makes of a server, where it is then and where it was."""

TABLE: dict[State, StateRow] = {
    State.STAGED: StateRow(
        vm_state="building",
        status="BUILD",
        task_state="scheduling",
        building=True,
        visible=False,
        frozen=True,
        followers=frozenset({State.SCHEDULED, State.ERROR, State.DELETED}),
    ),
    State.SCHEDULED: StateRow(
        vm_state="building",
        status="BUILD",
        task_state="scheduling",
        building=True,
        on_host=True,
        followers=frozenset(
            {
                State.BUILDING,
                State.SPAWNING,
                State.ACTIVE,
                State.RESCHEDULING,
                State.SHELVED_OFFLOADED,
                State.ERROR,
                State.DELETED,
            }
        ),
    ),
    State.BUILDING: StateRow(
        vm_state="building",
        status="BUILD",
        task_state="networking",
        building=True,
        on_host=True,
        followers=frozenset(
            {
                State.SPAWNING,
                State.ACTIVE,
                State.RESCHEDULING,
                State.SHELVED_OFFLOADED,
                State.ERROR,
                State.DELETED,
            }
        ),
    ),
    State.SPAWNING: StateRow(
        vm_state="building",
        status="BUILD",
        task_state="spawning",
        building=True,
        on_host=True,
        followers=frozenset({State.ACTIVE, State.RESCHEDULING, State.SHELVED_OFFLOADED, State.ERROR, State.DELETED}),
    ),
    State.RESCHEDULING: StateRow(
        vm_state="building",
        status="BUILD",
        task_state="scheduling",
        building=True,
        placeless=True,
        followers=frozenset({State.SCHEDULED, State.HANDED_BACK, State.SHELVED_OFFLOADED, State.ERROR, State.DELETED}),
    ),
    State.HANDED_BACK: StateRow(
        vm_state="building",
        status="BUILD",
        task_state="scheduling",
        building=True,
        placeless=True,
        followers=frozenset({State.LEAVING, State.MOVED, State.SHELVED_OFFLOADED, State.ERROR, State.DELETED}),
    ),
    State.LEAVING: StateRow(
        vm_state="building",
        status="BUILD",
        task_state="scheduling",
        building=True,
        placeless=True,
        frozen=True,
        followers=frozenset({State.HANDED_BACK, State.MOVED, State.SHELVED_OFFLOADED, State.ERROR, State.DELETED}),
    ),
    State.ACTIVE: StateRow(
        vm_state="active",
        status="ACTIVE",
        settled=True,
        on_host=True,
        followers=frozenset({*_BY_GUEST, *_PUT_AWAY, *_BETWEEN_CELLS, State.ERROR, State.DELETED} - {State.ACTIVE}),
    ),
    State.STOPPED: StateRow(
        vm_state="stopped",
        status="SHUTOFF",
        settled=True,
        on_host=True,
        followers=frozenset({*_BY_GUEST, *_PUT_AWAY, *_BETWEEN_CELLS, State.ERROR, State.DELETED} - {State.STOPPED}),
    ),
    State.PAUSED: StateRow(
        vm_state="paused",
        status="PAUSED",
        settled=True,
        on_host=True,
        followers=frozenset({*_BY_GUEST, *_PUT_AWAY, State.ERROR, State.DELETED} - {State.PAUSED}),
    ),
    State.SUSPENDED: StateRow(
        vm_state="suspended",
        status="SUSPENDED",
        settled=True,
        on_host=True,
        followers=frozenset({*_BY_GUEST, *_PUT_AWAY, State.ERROR, State.DELETED} - {State.SUSPENDED}),
    ),
    State.RESCUED: StateRow(
        vm_state="rescued",
        status="RESCUE",
        settled=True,
        on_host=True,
        followers=frozenset({*_BY_GUEST, State.SOFT_DELETED, State.ERROR, State.DELETED} - {State.RESCUED}),
    ),
    State.SOFT_DELETED: StateRow(
        vm_state="soft-delete",
        status="SOFT_DELETED",
        settled=True,
        on_host=True,
        followers=frozenset({*_BY_GUEST, State.ERROR, State.DELETED}),
    ),
    State.SHELVED: StateRow(
        vm_state="shelved",
        status="SHELVED",
        settled=True,
        on_host=True,
        followers=frozenset({*_BY_GUEST, State.SHELVED_OFFLOADED, State.ERROR, State.DELETED}),
    ),
    State.SHELVED_OFFLOADED: StateRow(
        vm_state="shelved_offloaded",
        status="SHELVED_OFFLOADED",
        settled=True,
        followers=frozenset({State.RESCHEDULING, State.ERROR, State.DELETED}),
    ),
    State.RESIZED: StateRow(
        vm_state="resized",
        status="VERIFY_RESIZE",
        settled=True,
        on_host=True,
        followers=frozenset({State.ACTIVE, State.STOPPED, State.AWAY, State.ERROR, State.DELETED}),
    ),
    State.AWAY: StateRow(
        vm_state="active",
        status="ACTIVE",
        visible=False,
        frozen=True,
        followers=frozenset({State.ACTIVE, State.STOPPED, State.RESIZED, State.MOVED, State.ERROR, State.DELETED}),
    ),
    State.ERROR: StateRow(
        vm_state="error",
        status="ERROR",
        settled=True,
        followers=frozenset(
            {*_BY_GUEST, State.RESIZED, State.SOFT_DELETED, State.SHELVED_OFFLOADED, State.MOVED, State.DELETED}
        ),
    ),
    State.DELETED: StateRow(vm_state="deleted", status="DELETED"),
    State.MOVED: StateRow(vm_state="moved", status="DELETED", visible=False),
}
"""In the order of a life. ERROR becomes ACTIVE when a silent host is heard again, or a reboot repairs the guest.
SCHEDULED becomes SPAWNING or ACTIVE, and BUILDING ACTIVE, when the row went back in time and its host did not. ERROR
becomes MOVED when one conductor found no other cell while another one moved the mapping there. Rows of a database that
recovers follow what their hosts have, whatever their state: `followers` does not judge those writes
(`database/cell/recovery.py`)."""

BUILD_STATES = frozenset(state for state, row in TABLE.items() if row.building)
BUILD_OVER = frozenset(TABLE) - BUILD_STATES
SETTLED = frozenset(state for state, row in TABLE.items() if row.settled)
ON_HOST = frozenset(state for state, row in TABLE.items() if row.on_host)
PLACELESS = frozenset(state for state, row in TABLE.items() if row.placeless)
UNSEEN = frozenset(state for state, row in TABLE.items() if not row.visible)
FROZEN = frozenset(state for state, row in TABLE.items() if row.frozen)
ENDS = frozenset(state for state, row in TABLE.items() if not row.followers)
BUILT_BY_HOST = BUILD_STATES & ON_HOST
"""A host builds the server, or is about to."""
GUEST_ON_HOST = SETTLED & ON_HOST
"""The host has the whole guest of the server."""


def stored(states: Iterable[State]) -> list[str]:
    """Return states as columns hold them, in the order of the table."""
    wanted = frozenset(states)
    return [state.value for state in TABLE if state in wanted]


def before(after: State) -> frozenset[State]:
    """Return the states that `after` may follow."""
    return frozenset(state for state, row in TABLE.items() if after in row.followers)


def check(befores: Iterable[State], after: State) -> None:
    """Raise ValueError where `after` may not follow one of the states; a state may be written over itself."""
    for state in befores:
        if after is not state and after not in TABLE[state].followers:
            raise ValueError(f"an instance that is {state} cannot become {after}")


def shown(state: State, task: Task | None, *, shelved: bool) -> tuple[State, Task | None]:
    """Return the state and the task that users see of a row.

    They are its own, but for servers that are offloaded: one whose host still undoes it is shelved, and one that is
    built from its image (`shelved`, and in a state of a build) is under a task.
    """
    if state is State.SHELVED_OFFLOADED and task is Task.SHELVING_OFFLOADING:
        return State.SHELVED, task
    if shelved and state in BUILD_STATES:
        return State.SHELVED_OFFLOADED, task or (Task.SPAWNING if state is State.SPAWNING else Task.UNSHELVING)
    return state, task


def vm_state(state: State) -> str:
    """Return Nova's vm_state of `state`."""
    return TABLE[state].vm_state


def task_state(state: State, task: Task | None) -> str | None:
    """Return Nova's task_state of an instance in `state` with `task` under way."""
    if task is None:
        return TABLE[state].task_state
    return _WORDS.get(task, task.value)


@cache
def status(state: State, task: Task | None) -> str:
    """Return the API's server status (Nova, "Server concepts": REBOOT and HARD_REBOOT while it reboots)."""
    if task is Task.REBOOTING and state in GUEST_ON_HOST - {State.RESIZED}:
        return "REBOOT"
    if task is Task.REBOOTING_HARD and state in SETTLED - {State.RESIZED}:
        return "HARD_REBOOT"
    if task is Task.UPDATING_PASSWORD and state is State.ACTIVE:
        return "PASSWORD"
    if task in _MOVING and state in (State.ACTIVE, State.STOPPED):
        return "RESIZE"
    if task in (*_REBUILDING, *_WORDS) and state in (State.ACTIVE, State.STOPPED, State.ERROR):
        return "REBUILD"
    if task is Task.RESIZE_REVERTING and state is State.RESIZED:
        return "REVERT_RESIZE"
    if task is Task.MIGRATING and state in (State.ACTIVE, State.PAUSED):
        return "MIGRATING"
    return TABLE[state].status


_WORDS = {Task.EVACUATING: "rebuilding", Task.EVACUATE_SPAWNING: "rebuild_spawning"}
"""Nova's task_state of tasks that it does not tell apart from others."""

_MOVING = frozenset({Task.RESIZE_PREP, Task.RESIZE_MIGRATING, Task.RESIZE_FINISH})
_REBUILDING = frozenset({Task.REBUILDING, Task.REBUILD_BLOCK_DEVICE_MAPPING, Task.REBUILD_SPAWNING})
