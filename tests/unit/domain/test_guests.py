"""Which differences between a host's word and a row change the row."""

from __future__ import annotations

import pytest

from skep.domain.guests import Correction, GuestKnown, GuestSeen, correction, state_by
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, State, Task

ONE = InstanceUuid("one")
RUNNING, SHUTDOWN, CRASHED, PAUSED, SUSPENDED, NOSTATE = (
    PowerState.RUNNING,
    PowerState.SHUTDOWN,
    PowerState.CRASHED,
    PowerState.PAUSED,
    PowerState.SUSPENDED,
    PowerState.NOSTATE,
)


def known(
    state: State = State.ACTIVE,
    power_state: PowerState = RUNNING,
    task: Task | None = None,
    *,
    in_doubt: bool = False,
    acted_id: str | None = None,
) -> GuestKnown:
    return GuestKnown(
        instance=ONE,
        attempt=2,
        state=state,
        power_state=power_state,
        task=task,
        in_doubt=in_doubt,
        acted_id=acted_id,
    )


def seen(power_state: PowerState, *tasks: str, attempt: int = 2) -> GuestSeen:
    return GuestSeen(ONE, attempt, power_state, tasks)


@pytest.mark.parametrize(
    ("row", "power_state", "becomes"),
    [
        (known(), RUNNING, None),
        (known(), SHUTDOWN, Correction(state=State.STOPPED, power_state=SHUTDOWN)),
        (known(), CRASHED, Correction(state=State.STOPPED, power_state=CRASHED)),
        (known(), PAUSED, Correction(state=State.ACTIVE, power_state=PAUSED)),
        (known(), NOSTATE, Correction(state=State.ACTIVE, power_state=NOSTATE)),
        (known(power_state=NOSTATE), RUNNING, Correction(state=State.ACTIVE, power_state=RUNNING)),
        (known(State.STOPPED, SHUTDOWN), SHUTDOWN, None),
        (
            known(State.STOPPED, SHUTDOWN),
            RUNNING,
            Correction(state=State.STOPPED, power_state=RUNNING, stop=True),
        ),
        (
            known(State.STOPPED, RUNNING),
            RUNNING,
            Correction(state=State.STOPPED, power_state=RUNNING, stop=True),
        ),
        (known(State.PAUSED, PAUSED), PAUSED, None),
        (known(State.PAUSED, PAUSED), RUNNING, Correction(state=State.ACTIVE, power_state=RUNNING)),
        (known(State.SUSPENDED, SUSPENDED), SHUTDOWN, Correction(state=State.STOPPED, power_state=SHUTDOWN)),
        (known(State.SUSPENDED, SUSPENDED), NOSTATE, Correction(state=State.SUSPENDED, power_state=NOSTATE)),
        (known(State.STOPPED, SHUTDOWN), PAUSED, Correction(state=State.STOPPED, power_state=PAUSED)),
        (known(State.SOFT_DELETED, SHUTDOWN), SHUTDOWN, None),
        (known(State.SOFT_DELETED, SHUTDOWN), CRASHED, Correction(state=State.SOFT_DELETED, power_state=CRASHED)),
        (
            known(State.SOFT_DELETED, SHUTDOWN),
            RUNNING,
            Correction(state=State.SOFT_DELETED, power_state=RUNNING, stop=True),
        ),
        (known(State.ERROR), SHUTDOWN, Correction(state=State.ERROR, power_state=SHUTDOWN)),
        (known(State.ERROR), RUNNING, None),
    ],
)
def test_what_a_row_says_afterwards(row: GuestKnown, power_state: PowerState, becomes: Correction | None) -> None:
    assert correction(row, seen(power_state)) == becomes


def test_another_attempt_says_nothing() -> None:
    assert correction(known(), seen(SHUTDOWN, attempt=1)) is None
    assert correction(known(), seen(SHUTDOWN, attempt=3)) is None


def test_nothing_is_corrected_under_a_task_unless_it_is_in_doubt() -> None:
    row = known(task=Task.POWERING_OFF, acted_id="t")
    assert correction(row, seen(SHUTDOWN, "t")) is None
    row = known(task=Task.POWERING_OFF, acted_id="t", in_doubt=True)
    assert correction(row, seen(SHUTDOWN, "t")) == Correction(state=State.STOPPED, power_state=SHUTDOWN, settles=True)
    row = known(State.STOPPED, SHUTDOWN, Task.POWERING_ON, acted_id="t", in_doubt=True)
    assert correction(row, seen(RUNNING, "t")) == Correction(state=State.ACTIVE, power_state=RUNNING, settles=True)


def test_what_was_seen_before_the_latest_action_says_nothing() -> None:
    row = known(State.STOPPED, SHUTDOWN, acted_id="t2")
    assert correction(row, seen(RUNNING, "t1")) is None
    assert correction(row, seen(RUNNING)) is None
    assert correction(row, seen(RUNNING, "t1", "t2")) is not None


@pytest.mark.parametrize("state", [State.RESIZED, State.ERROR, State.PAUSED])
@pytest.mark.parametrize("power_state", [RUNNING, PAUSED, NOSTATE])
def test_an_action_that_leads_to_no_state_leaves_it_as_it_was(state: State, power_state: PowerState) -> None:
    assert {state_by(None, state, power_state, well=well) for well in (True, False)} == {state}
    row = known(state, PAUSED, Task.TRIGGERING_CRASH_DUMP, in_doubt=True, acted_id="t")
    seen_again = correction(row, seen(power_state, "t"))
    shown = State.ACTIVE if (state, power_state) == (State.PAUSED, RUNNING) else state
    assert seen_again == Correction(state=shown, power_state=power_state, settles=True)


def test_where_an_action_leads_when_it_went_well_and_when_not() -> None:
    assert state_by(State.STOPPED, State.ERROR, SHUTDOWN, well=True) is State.STOPPED
    assert state_by(State.STOPPED, State.ERROR, RUNNING, well=False) is State.ACTIVE
    assert state_by(State.SOFT_DELETED, State.ACTIVE, SHUTDOWN, well=True) is State.SOFT_DELETED
    assert state_by(State.ACTIVE, State.SOFT_DELETED, RUNNING, well=True) is State.ACTIVE
    assert state_by(State.ACTIVE, State.SOFT_DELETED, SHUTDOWN, well=False) is State.SOFT_DELETED


def rescued(power_state: PowerState, *tasks: str) -> GuestSeen:
    return GuestSeen(ONE, 2, power_state, tasks, True)


@pytest.mark.parametrize(
    ("row", "found", "becomes"),
    [
        (known(State.RESCUED), rescued(RUNNING), None),
        (known(State.RESCUED), rescued(SHUTDOWN), Correction(state=State.RESCUED, power_state=SHUTDOWN)),
        (known(State.RESCUED), seen(RUNNING), Correction(state=State.ACTIVE, power_state=RUNNING)),
        (known(State.RESCUED), seen(SHUTDOWN), Correction(state=State.STOPPED, power_state=SHUTDOWN)),
        (known(State.RESCUED), seen(NOSTATE), Correction(state=State.RESCUED, power_state=NOSTATE)),
        (known(), rescued(RUNNING), Correction(state=State.RESCUED, power_state=RUNNING)),
        (known(State.SOFT_DELETED, SHUTDOWN), rescued(SHUTDOWN), None),
        (
            known(State.STOPPED, SHUTDOWN, Task.RESCUING, in_doubt=True),
            rescued(RUNNING),
            Correction(state=State.RESCUED, power_state=RUNNING, settles=True),
        ),
        (
            known(State.STOPPED, SHUTDOWN, Task.RESCUING, in_doubt=True),
            seen(SHUTDOWN),
            Correction(state=State.STOPPED, power_state=SHUTDOWN, settles=True),
        ),
        (
            known(State.RESCUED, RUNNING, Task.UNRESCUING, in_doubt=True),
            seen(RUNNING),
            Correction(state=State.ACTIVE, power_state=RUNNING, settles=True),
        ),
    ],
)
def test_a_row_says_whether_its_guest_is_rescued(row: GuestKnown, found: GuestSeen, becomes: Correction | None) -> None:
    assert correction(row, found) == becomes


@pytest.mark.parametrize("before", [State.ACTIVE, State.STOPPED, State.ERROR, State.RESCUED])
def test_what_a_rescue_leaves(before: State) -> None:
    assert state_by(State.RESCUED, before, RUNNING, well=True) is State.RESCUED
    assert state_by(State.ACTIVE, before, RUNNING, well=True) is State.ACTIVE
    assert state_by(State.RESCUED, before, RUNNING, well=False, rescued=True) is State.RESCUED
    assert state_by(State.RESCUED, before, NOSTATE, well=False) is before, "nobody could look"
    assert state_by(State.RESCUED, State.STOPPED, SHUTDOWN, well=False) is State.STOPPED
