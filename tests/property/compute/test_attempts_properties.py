from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.compute.attempts import Attempts
from skep.compute.entries import (
    Acknowledged,
    BuildAccepted,
    BuildFailed,
    Entry,
    GuestBuilt,
    GuestDestroyed,
    LeftoverRemoved,
    SpawnGranted,
    TaskOver,
    TerminateAsked,
)
from skep.domain.builds import failure
from skep.domain.instances import PowerState, Task
from tests.support.agents import CONTEXT, instance, uuid_of

NUMBERS = st.integers(1, 3)
ATTEMPTS = st.integers(1, 4)
UUIDS = NUMBERS.map(uuid_of)
RESOURCES = st.just({"VCPU": 1})
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(
        BuildAccepted,
        at=st.just(1),
        instance=NUMBERS.map(instance),
        attempt=ATTEMPTS,
        resources=RESOURCES,
        context=st.just(CONTEXT),
    ),
    st.builds(SpawnGranted, instance=UUIDS, attempt=ATTEMPTS),
    st.builds(
        GuestBuilt,
        instance=UUIDS,
        attempt=ATTEMPTS,
        resources=RESOURCES,
        launched_at=st.just(2),
        power_state=st.just(PowerState.RUNNING),
    ),
    st.builds(
        BuildFailed,
        at=st.just(3),
        instance=UUIDS,
        attempt=ATTEMPTS,
        failure=st.just(failure("X", "x")),
        left_behind=st.booleans(),
    ),
    st.builds(LeftoverRemoved, instance=UUIDS, attempt=ATTEMPTS),
    st.builds(TerminateAsked, instance=UUIDS, attempt=ATTEMPTS),
    st.builds(GuestDestroyed, at=st.just(4), instance=UUIDS, attempt=ATTEMPTS),
    st.builds(
        TaskOver,
        at=st.just(5),
        instance=UUIDS,
        attempt=ATTEMPTS,
        task=st.just(Task.REBOOTING),
        task_id=st.sampled_from("abcdef"),
        power_state=st.just(PowerState.RUNNING),
    ),
    st.builds(
        Acknowledged,
        instance=UUIDS,
        outcome=st.sampled_from(["built", "failed", "destroyed", "task"]),
        attempt=ATTEMPTS,
        task_id=st.sampled_from("abcdef"),
    ),
)


def fold(entries: list[Entry]) -> Attempts:
    attempts = Attempts()
    for entry in entries:
        attempts.apply(entry)
    return attempts


@given(st.lists(ENTRIES, max_size=40))
def test_compaction_loses_nothing(entries: list[Entry]) -> None:
    known = fold(entries)
    assert fold(list(known.snapshot())).records == known.records


@given(st.lists(ENTRIES, max_size=40))
def test_compaction_of_a_compacted_journal_changes_nothing(entries: list[Entry]) -> None:
    once = list(fold(entries).snapshot())
    assert list(fold(once).snapshot()) == once
