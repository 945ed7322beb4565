"""Compares a host's report of its guests with their rows, and returns the corrections. Pure."""

from __future__ import annotations

import msgspec

from skep.domain.actions import of_task
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, State, Task

OFF = frozenset({PowerState.SHUTDOWN, PowerState.CRASHED})

KEPT_OFF = frozenset({State.SOFT_DELETED, State.SHELVED})
"""States that stay whatever becomes of the guest, until an action that went well ends them: its host keeps it off."""

_BROUGHT_BACK = frozenset({Task.RESTORING, Task.UNSHELVING})
"""Tasks that end such a state."""

_STATES = {
    PowerState.RUNNING: State.ACTIVE,
    PowerState.SHUTDOWN: State.STOPPED,
    PowerState.CRASHED: State.STOPPED,
    PowerState.PAUSED: State.PAUSED,
    PowerState.SUSPENDED: State.SUSPENDED,
}
"""How a guest was left -> the state of its server."""


class GuestSeen(msgspec.Struct, frozen=True, array_like=True):
    """A guest as its host found it, while nothing was done to it."""

    instance: InstanceUuid
    attempt: int
    power_state: PowerState
    """NOSTATE: the hypervisor has no such guest, although it was built."""
    tasks: tuple[str, ...] = ()
    """The latest starts, stops and reboots that the host had begun before it looked."""
    rescued: bool = False
    """It has a rescue disk in front of its own."""


class GuestKnown(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a guest by the row of its built server."""

    instance: InstanceUuid
    attempt: int
    state: State
    power_state: PowerState
    task: Task | None = None
    in_doubt: bool = False
    """The host was allowed to begin the task and has said nothing since: only it knows what came of it."""
    acted_id: str | None = None
    """The latest start, stop or reboot that a host was allowed to begin."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """The corrected content of the row."""

    state: State
    power_state: PowerState
    stop: bool = False
    """The guest runs although its server is stopped, shelved or deleted: it is to be stopped, as Nova's periodic sync
    does."""
    settles: bool = False
    """The task that was in doubt is over with this."""


def correction(known: GuestKnown, seen: GuestSeen) -> Correction | None:
    """Return what a row has to say instead, or None when it is right, or when the host cannot know better.

    Nothing is corrected while something is being done, nor by what was seen before the latest action.
    """
    if seen.attempt != known.attempt or (known.acted_id is not None and known.acted_id not in seen.tasks):
        return None
    if known.task is not None:
        if not known.in_doubt or of_task(known.task).is_repeated:
            return None
        return Correction(state=_settled(known, known.task, seen), power_state=seen.power_state, settles=True)
    if known.state in KEPT_OFF | {State.STOPPED} and seen.power_state is PowerState.RUNNING:
        return Correction(state=known.state, power_state=seen.power_state, stop=True)
    state = _state_shown(known.state, seen)
    if (state, seen.power_state) == (known.state, known.power_state):
        return None
    return Correction(state=state, power_state=seen.power_state)


def state_after(before: State, power_state: PowerState, *, rescued: bool = False) -> State:
    """Return the state of a server whose guest was left in `power_state` by an action, `rescued` or not.

    One that is soft-deleted or shelved stays so, however its guest is: only what went well ends it.
    """
    if before in KEPT_OFF:
        return before
    if rescued and power_state is not PowerState.NOSTATE:
        return State.RESCUED
    return _STATES.get(power_state, before)


def state_by(
    becomes: State | None, before: State, power_state: PowerState, *, well: bool, rescued: bool = False
) -> State:
    """Return the state of a server after an action that leads to `becomes`, or that went wrong.

    One that leads nowhere (None) says nothing of the state, whatever came of it.
    """
    if becomes is None:
        return before
    if not well:
        return state_after(before, power_state, rescued=rescued)
    if becomes in KEPT_OFF | {State.RESCUED}:
        return becomes
    if before in KEPT_OFF and becomes is not State.ACTIVE:
        return before
    return state_after(State.ACTIVE if before in KEPT_OFF else before, power_state)


def _settled(known: GuestKnown, task: Task, seen: GuestSeen) -> State:
    """Return the state of a server whose guest was found after a task of which nothing is known."""
    if of_task(task).becomes is None:
        return _state_shown(known.state, seen)
    restored = task in _BROUGHT_BACK and seen.power_state is PowerState.RUNNING
    return State.ACTIVE if restored else state_after(known.state, seen.power_state, rescued=seen.rescued)


def _state_shown(state: State, seen: GuestSeen) -> State:
    """Return the state of a server whose guest was found so, unasked."""
    power_state, rescued = seen.power_state, seen.rescued
    if state is State.ACTIVE:
        shows = rescued or power_state in OFF
    elif state is State.RESCUED:
        shows = not rescued
    else:
        shows = state in (State.PAUSED, State.SUSPENDED) and (power_state in OFF or power_state is PowerState.RUNNING)
    return state_after(state, power_state, rescued=rescued) if shows else state
