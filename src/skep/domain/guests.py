"""Compares a host's report of its guests with their rows, and returns the corrections. Pure."""

from __future__ import annotations

import msgspec

from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, State, Task

OFF = frozenset({PowerState.SHUTDOWN, PowerState.CRASHED})

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
    """The guest runs although its server is stopped or deleted: it is to be stopped (Nova's periodic sync does so)."""
    settles: bool = False
    """The task that was in doubt is over with this."""


def correction(known: GuestKnown, seen: GuestSeen) -> Correction | None:
    """Return what a row has to say instead, or None when it is right, or when the host cannot know better.

    Nothing is corrected while something is being done, nor by what was seen before the latest action.
    """
    if seen.attempt != known.attempt or (known.acted_id is not None and known.acted_id not in seen.tasks):
        return None
    if known.task is not None:
        if not known.in_doubt:
            return None
        restored = known.task is Task.RESTORING and seen.power_state is PowerState.RUNNING
        state = State.ACTIVE if restored else state_after(known.state, seen.power_state)
        return Correction(state=state, power_state=seen.power_state, settles=True)
    if known.state in (State.STOPPED, State.SOFT_DELETED) and seen.power_state is PowerState.RUNNING:
        return Correction(state=known.state, power_state=seen.power_state, stop=True)
    state = state_after(known.state, seen.power_state) if _shows(known.state, seen.power_state) else known.state
    if (state, seen.power_state) == (known.state, known.power_state):
        return None
    return Correction(state=state, power_state=seen.power_state)


def state_after(before: State, power_state: PowerState) -> State:
    """Return the state of a server whose guest was left in `power_state` by an action.

    A soft-deleted one stays so, however its guest is: only a restore that went well ends it.
    """
    if before is State.SOFT_DELETED:
        return before
    return _STATES.get(power_state, before)


def state_by(becomes: State | None, before: State, power_state: PowerState) -> State:
    """Return the state of a server after an action that went well and leads to `becomes`."""
    if becomes is State.SOFT_DELETED:
        return becomes
    return state_after(State.ACTIVE if before is State.SOFT_DELETED else before, power_state)


def _shows(state: State, power_state: PowerState) -> bool:
    """Tell whether a guest that was found in `power_state`, unasked, changes the state of its server."""
    if state is State.ACTIVE:
        return power_state in OFF
    return state in (State.PAUSED, State.SUSPENDED) and (power_state in OFF or power_state is PowerState.RUNNING)
