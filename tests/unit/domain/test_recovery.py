"""What becomes of a row that went back in time, by what hosts tell and by an operator's word."""

from __future__ import annotations

import msgspec
import pytest

from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import State
from skep.domain.recovery import (
    ENDED,
    Adopt,
    Doubt,
    FoundGuest,
    FoundPhase,
    GoOn,
    RowBefore,
    Verdict,
    Wait,
    decide,
    go_on,
    in_words,
)
from skep.domain.states import GUEST_ON_HOST


def row(state: State = State.SCHEDULED, *, attempt: int = 2, deleting: bool = False, told: bool = True) -> RowBefore:
    built = state in GUEST_ON_HOST
    return RowBefore(state=state, attempt=attempt, host="h1", built=built, deleting=deleting, host_told=told)


def told(
    attempt: int, phase: FoundPhase = "none", *, host: str = "h1", highest: int = 0, deleted: bool = False
) -> FoundGuest:
    return FoundGuest(
        node=NodeUuid(f"node of {host}"),
        host=host,
        instance=InstanceUuid("i"),
        attempt=attempt,
        highest=max(highest, attempt),
        phase=phase,
        deleted=deleted,
    )


WHOLE, OTHER = told(2, "whole"), told(3, "whole", host="h2")
ASIDE, TARGET, BESIDE = told(2, "aside"), told(3, "building", host="h2"), told(3, "building")
DELETED = told(0, highest=2, deleted=True)


@pytest.mark.parametrize(
    ("before", "found", "verdict"),
    [
        (row(), [WHOLE], Adopt(WHOLE)),
        (row(), [WHOLE, OTHER], Doubt("guests of attempt 2 on h1, attempt 3 on h2")),
        (row(attempt=3), [WHOLE], GoOn(2, elsewhere=False)),
        (row(State.BUILDING), [], GoOn(0, elsewhere=True)),
        (row(), [told(0, highest=2)], GoOn(2, elsewhere=False)),
        (row(), [told(0, highest=3, host="h2")], GoOn(3, elsewhere=True)),
        (row(), [DELETED], ENDED),
        (row(), [DELETED, told(0, highest=1, host="h2")], ENDED),
        (row(), [told(0, highest=2, deleted=True), told(0, highest=4, host="h2")], GoOn(4, elsewhere=True)),
        (row(), [DELETED, OTHER], Adopt(OTHER)),
        (row(deleting=True), [DELETED], GoOn(2, elsewhere=False)),
        (row(), [TARGET], Adopt(TARGET)),
        (row(), [WHOLE, TARGET], Doubt("begun beside attempt 2 on h1: attempt 3 on h2")),
        (row(State.ACTIVE), [WHOLE, TARGET], Doubt("begun beside attempt 2 on h1: attempt 3 on h2")),
        (row(State.ACTIVE), [WHOLE, BESIDE], Doubt("begun beside attempt 2 on h1: attempt 3 on h1")),
        (row(State.ACTIVE), [TARGET, told(0, highest=2)], Doubt("a move had begun: attempt 3 on h2")),
        (row(State.ACTIVE), [ASIDE, TARGET], Doubt("a move had begun: attempt 2 on h1, attempt 3 on h2")),
        (row(State.ACTIVE), [ASIDE, BESIDE], Doubt("a move had begun: attempt 2 on h1, attempt 3 on h1")),
        (row(State.ACTIVE), [ASIDE], Doubt("a move had begun: attempt 2 on h1")),
        (row(State.ACTIVE), [ASIDE, OTHER], Adopt(OTHER)),
    ],
)
def test_decisions(before: RowBefore, found: list[FoundGuest], verdict: Verdict) -> None:
    assert decide(before, found, all_told=True) == verdict


@pytest.mark.parametrize("found", [[], [DELETED], [told(0, highest=9)]], ids=["nothing", "deleted", "heard of"])
def test_what_no_host_has_waits_for_all_hosts(found: list[FoundGuest]) -> None:
    assert decide(row(), found, all_told=False) == Wait()


@pytest.mark.parametrize(
    ("before", "highest", "elsewhere"),
    [
        (row(State.SCHEDULED), 0, False),
        (row(State.SCHEDULED), 2, True),
        (row(State.BUILDING), 0, True),
        (row(State.SPAWNING, told=False), 2, True),
        (row(State.RESCHEDULING), 2, False),
        (row(State.HANDED_BACK), 7, False),
    ],
)
def test_an_operator_lets_a_row_go_on(before: RowBefore, highest: int, elsewhere: bool) -> None:
    """Also of a row whose host has not told, or has told long ago: the operator has looked."""
    assert go_on(before, highest) == GoOn(highest, elsewhere=elsewhere)


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Adopt(WHOLE), "follows the guest of attempt 2 on h1"),
        (Adopt(msgspec.structs.replace(WHOLE, phase="building")), "follows the build of attempt 2 on h1"),
        (GoOn(0, elsewhere=False), "goes on as it stood"),
        (GoOn(7, elsewhere=True), "is built on another host, above attempt 7"),
        (Doubt("guests of attempt 2 on h1"), "in doubt: guests of attempt 2 on h1"),
        (Wait(), "waits for hosts that have not told"),
    ],
)
def test_verdicts_are_told_in_plain_words(verdict: Verdict, words: str) -> None:
    assert in_words(verdict) == words
