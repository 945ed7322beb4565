"""The table of states: Nova's words for each, which may follow which, and the sets that all else takes from it."""

from __future__ import annotations

import pytest

from skep.domain.instances import State, Task
from skep.domain.states import (
    BUILD_OVER,
    BUILD_STATES,
    BUILT_BY_HOST,
    ENDS,
    FROZEN,
    GUEST_ON_HOST,
    ON_HOST,
    PLACELESS,
    SETTLED,
    TABLE,
    UNSEEN,
    before,
    check,
    status,
    stored,
    task_state,
    vm_state,
)

STATUSES = {
    (State.ACTIVE, None): "ACTIVE",
    (State.ACTIVE, Task.REBOOTING): "REBOOT",
    (State.ACTIVE, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.ACTIVE, Task.UPDATING_PASSWORD): "PASSWORD",
    (State.STOPPED, None): "SHUTOFF",
    (State.STOPPED, Task.REBOOTING): "REBOOT",
    (State.STOPPED, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.ACTIVE, Task.RESIZE_PREP): "RESIZE",
    (State.ACTIVE, Task.RESIZE_MIGRATING): "RESIZE",
    (State.ACTIVE, Task.RESIZE_FINISH): "RESIZE",
    (State.STOPPED, Task.RESIZE_PREP): "RESIZE",
    (State.STOPPED, Task.RESIZE_MIGRATING): "RESIZE",
    (State.STOPPED, Task.RESIZE_FINISH): "RESIZE",
    (State.ACTIVE, Task.EVACUATING): "REBUILD",
    (State.ACTIVE, Task.EVACUATE_SPAWNING): "REBUILD",
    (State.STOPPED, Task.EVACUATING): "REBUILD",
    (State.STOPPED, Task.EVACUATE_SPAWNING): "REBUILD",
    (State.ERROR, Task.EVACUATING): "REBUILD",
    (State.ERROR, Task.EVACUATE_SPAWNING): "REBUILD",
    (State.ACTIVE, Task.REBUILDING): "REBUILD",
    (State.ACTIVE, Task.REBUILD_BLOCK_DEVICE_MAPPING): "REBUILD",
    (State.ACTIVE, Task.REBUILD_SPAWNING): "REBUILD",
    (State.STOPPED, Task.REBUILDING): "REBUILD",
    (State.STOPPED, Task.REBUILD_BLOCK_DEVICE_MAPPING): "REBUILD",
    (State.STOPPED, Task.REBUILD_SPAWNING): "REBUILD",
    (State.ERROR, Task.REBUILDING): "REBUILD",
    (State.ERROR, Task.REBUILD_BLOCK_DEVICE_MAPPING): "REBUILD",
    (State.ERROR, Task.REBUILD_SPAWNING): "REBUILD",
    (State.RESIZED, None): "VERIFY_RESIZE",
    (State.RESIZED, Task.RESIZE_REVERTING): "REVERT_RESIZE",
    (State.PAUSED, None): "PAUSED",
    (State.PAUSED, Task.REBOOTING): "REBOOT",
    (State.PAUSED, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.SUSPENDED, None): "SUSPENDED",
    (State.SUSPENDED, Task.REBOOTING): "REBOOT",
    (State.SUSPENDED, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.RESCUED, None): "RESCUE",
    (State.RESCUED, Task.REBOOTING): "REBOOT",
    (State.RESCUED, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.SOFT_DELETED, None): "SOFT_DELETED",
    (State.SOFT_DELETED, Task.REBOOTING): "REBOOT",
    (State.SOFT_DELETED, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.SHELVED, None): "SHELVED",
    (State.SHELVED, Task.REBOOTING): "REBOOT",
    (State.SHELVED, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.SHELVED_OFFLOADED, None): "SHELVED_OFFLOADED",
    (State.SHELVED_OFFLOADED, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.ERROR, None): "ERROR",
    (State.ERROR, Task.REBOOTING_HARD): "HARD_REBOOT",
    (State.DELETED, None): "DELETED",
    (State.MOVED, None): "DELETED",
    (State.AWAY, None): "ACTIVE",
    (State.ACTIVE, Task.MIGRATING): "MIGRATING",
    (State.PAUSED, Task.MIGRATING): "MIGRATING",
}
"""Every pair that says something else than its state does."""

WORDS = {Task.EVACUATING: "rebuilding", Task.EVACUATE_SPAWNING: "rebuild_spawning"}
"""What users see of tasks that are Nova's under another name."""

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
    assert task_state(state, task) == (WORDS.get(task, task.value) if task else BUILD_TASKS.get(state))


def test_the_tasks_are_named_as_nova_names_them() -> None:
    assert {task.value for task in Task} == set(
        "resize_prep resize_migrating resize_finish resize_reverting evacuating evacuate_spawning migrating "
        "rebuilding rebuild_block_device_mapping rebuild_spawning "
        "powering-on powering-off rebooting rebooting_hard pausing unpausing suspending resuming deleting "
        "shelving shelving_image_pending_upload shelving_image_uploading shelving_offloading unshelving spawning "
        "rescuing unrescuing updating_password triggering_crash_dump swapping_volume extending_volume "
        "attaching_interface detaching_interface attaching_volume detaching_volume snapshotting_volume "
        "deleting_volume_snapshot "
        "soft-deleting restoring image_snapshot_pending image_snapshot image_backup image_uploading".split()
    )


@pytest.mark.parametrize("state", State)
def test_the_vm_state_of_every_state(state: State) -> None:
    others = {State.SOFT_DELETED: "soft-delete", State.AWAY: "active"}
    assert vm_state(state) == ("building" if state in BUILD_STATES else others.get(state, state.value))


def test_every_state_has_its_followers_and_an_end_has_none() -> None:
    assert set(TABLE) == set(State)
    assert set(ENDS) == {State.DELETED, State.MOVED}


def test_every_living_state_can_end_in_deleted_and_every_one_but_staged_is_reached() -> None:
    assert all(State.DELETED in row.followers for state, row in TABLE.items() if state not in ENDS)
    assert {state for row in TABLE.values() for state in row.followers} == set(State) - {State.STAGED}


def test_a_build_ends() -> None:
    """From each build state in a cell some way leads to ACTIVE; what leaves its cell ends otherwise."""
    for start in BUILD_STATES - {State.HANDED_BACK, State.LEAVING}:
        reached, frontier = {start}, [start]
        while frontier:
            for after in TABLE[frontier.pop()].followers - reached:
                reached.add(after)
                frontier.append(after)
        assert {State.ACTIVE, State.ERROR, State.DELETED} <= reached


def test_the_point_of_no_return_is_passed_only_by_builds_under_way() -> None:
    # A row that a restore set back to scheduled is asked for by the host that was further.
    under_way = {State.SCHEDULED, State.BUILDING}
    assert before(State.SPAWNING) == under_way
    assert before(State.ACTIVE) == {
        *under_way,
        State.SPAWNING,
        State.STOPPED,
        State.PAUSED,
        State.SUSPENDED,
        State.RESCUED,
        State.SOFT_DELETED,
        State.SHELVED,
        State.RESIZED,
        State.AWAY,
        State.ERROR,
    }


ALL_OVER = (
    "active stopped paused suspended rescued soft_deleted shelved shelved_offloaded resized away error deleted moved"
)
SETS: dict[str, tuple[frozenset[State], str]] = {
    "build states": (BUILD_STATES, "staged scheduled building spawning rescheduling handed_back leaving"),
    "build over": (
        BUILD_OVER,
        ALL_OVER,
    ),
    "settled": (
        SETTLED,
        "active stopped paused suspended rescued soft_deleted shelved shelved_offloaded resized error",
    ),
    "on host": (
        ON_HOST,
        "scheduled building spawning active stopped paused suspended rescued soft_deleted shelved resized",
    ),
    "placeless": (PLACELESS, "rescheduling handed_back leaving"),
    "unseen": (UNSEEN, "staged away moved"),
    "frozen": (FROZEN, "staged leaving away"),
    "ends": (ENDS, "deleted moved"),
    "built by host": (BUILT_BY_HOST, "scheduled building spawning"),
    "guest on host": (GUEST_ON_HOST, "active stopped paused suspended rescued soft_deleted shelved resized"),
}
"""What statements, audits and the API ask for, said a second time."""


@pytest.mark.parametrize("name", SETS)
def test_the_sets_of_the_table(name: str) -> None:
    found, names = SETS[name]
    assert stored(found) == names.split()


def test_a_state_is_building_settled_or_at_an_end() -> None:
    """Or its row is away: the one that is its server says the rest."""
    assert set(State) == BUILD_STATES | SETTLED | ENDS | {State.AWAY}
    assert len(BUILD_STATES) + len(SETTLED) + len(ENDS) + 1 == len(State)
    assert not PLACELESS & ON_HOST


def test_a_change_that_the_table_does_not_allow_is_refused_by_name() -> None:
    check((State.ACTIVE, State.STOPPED), State.ERROR)
    check((State.LEAVING,), State.LEAVING)
    with pytest.raises(ValueError, match="an instance that is moved cannot become error"):
        check((State.ACTIVE, State.MOVED), State.ERROR)
