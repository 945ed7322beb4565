"""Nova's words for what an instance is, and which state may follow which."""

from __future__ import annotations

import pytest

from skep.domain.instances import BUILD_STATES, TRANSITIONS, State, Task, status, task_state, vm_state

STATUSES = {
    (State.ACTIVE, None): "ACTIVE",
    (State.ACTIVE, Task.REBOOTING): "REBOOT",
    (State.ACTIVE, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.STOPPED, None): "SHUTOFF",
    (State.STOPPED, Task.REBOOTING): "REBOOT",
    (State.STOPPED, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.ERROR, None): "ERROR",
    (State.ERROR, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.DELETED, None): "DELETED",
    (State.MOVED, None): "DELETED",
}
"""Every pair that says something else than its state does."""

BUILD_TASKS = {
    State.STAGED: "scheduling",
    State.SCHEDULED: "scheduling",
    State.RESCHEDULING: "scheduling",
    State.HANDED_BACK: "scheduling",
    State.LEAVING: "scheduling",
    State.BUILDING: "networking",
    State.SPAWNING: "spawning",
}


@pytest.mark.parametrize("task", [None, *Task])
@pytest.mark.parametrize("state", State)
def test_the_status_of_every_state_and_task(state: State, task: Task | None) -> None:
    expected = "BUILD" if state in BUILD_STATES else STATUSES.get((state, task), STATUSES.get((state, None)))
    assert status(state, task) == expected


@pytest.mark.parametrize("task", [None, *Task])
@pytest.mark.parametrize("state", State)
def test_the_task_state_of_every_state_and_task(state: State, task: Task | None) -> None:
    assert task_state(state, task) == (task.value if task else BUILD_TASKS.get(state))


def test_the_tasks_are_named_as_nova_names_them() -> None:
    assert {task.value for task in Task} == {"powering-on", "powering-off", "rebooting", "rebooting_hard", "deleting"}


@pytest.mark.parametrize("state", State)
def test_the_vm_state_of_every_state(state: State) -> None:
    assert vm_state(state) == ("building" if state in BUILD_STATES else state.value)


ENDS = {State.DELETED, State.MOVED}


def test_every_state_has_its_followers_and_an_end_has_none() -> None:
    assert set(TRANSITIONS) == set(State)
    assert {state for state, after in TRANSITIONS.items() if not after} == ENDS


def test_every_living_state_can_end_in_deleted_and_every_one_but_staged_is_reached() -> None:
    assert all(State.DELETED in after for state, after in TRANSITIONS.items() if state not in ENDS)
    assert {state for after in TRANSITIONS.values() for state in after} == set(State) - {State.STAGED}


def test_a_build_ends() -> None:
    """From each build state in a cell some way leads to ACTIVE; what leaves its cell ends otherwise."""
    for start in BUILD_STATES - {State.HANDED_BACK, State.LEAVING}:
        reached, frontier = {start}, [start]
        while frontier:
            for after in TRANSITIONS[frontier.pop()] - reached:
                reached.add(after)
                frontier.append(after)
        assert {State.ACTIVE, State.ERROR, State.DELETED} <= reached


def test_the_point_of_no_return_is_passed_only_by_builds_under_way() -> None:
    # A row that a restore set back to scheduled is asked for by the host that was further.
    under_way = {State.SCHEDULED, State.BUILDING}
    assert {state for state, after in TRANSITIONS.items() if State.SPAWNING in after} == under_way
    assert {state for state, after in TRANSITIONS.items() if State.ACTIVE in after} == {
        *under_way,
        State.SPAWNING,
        State.STOPPED,
        State.ERROR,
    }
