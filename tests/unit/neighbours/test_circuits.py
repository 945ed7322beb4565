"""What a process does about services that are away."""

from __future__ import annotations

import contextlib

import pytest

from skep.domain.errors import BadRequest, Unavailable, Unreachable
from skep.neighbours.circuits import Asking, CircuitOutcome, CircuitRules, Circuits, NotAsked, never_away


class Watched:
    """Services of a process whose time is set by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.changes: list[tuple[str, bool]] = []
        self.spared: list[str] = []
        self.circuits = Circuits(
            CircuitRules(failures=2, pause=5.0, patience=10.0),
            lambda: self.now,
            changed=lambda service, away: self.changes.append((service, away)),
            spared=self.spared.append,
        )

    def ask(self, outcome: CircuitOutcome, service: str = "one") -> None:
        with self.circuits.asking(service) as asking:
            asking.tell(outcome)

    def silent(self, service: str = "one") -> None:
        """Ask, and get no answer."""
        with pytest.raises(Unreachable, match="silence"), self.circuits.asking(service):
            raise Unreachable("silence")

    def refused(self, service: str = "one") -> NotAsked:
        """See that a request is not sent."""
        with pytest.raises(NotAsked) as raised, self.circuits.asking(service):
            raise AssertionError("it is sent")
        return raised.value


def test_what_never_has_an_answer_keeps_nothing_else_from_it() -> None:
    """A pass may begin with the one thing that a service cannot read: it is the probe once, then others are."""
    watched = Watched()

    def sick() -> None:
        with contextlib.suppress(Unavailable), watched.circuits.asking("one", "sick"):
            raise Unreachable("silence")

    for _ in range(2):
        sick()
    assert watched.changes == [("one", True)]
    for _ in range(11):
        watched.now += 1.0
        sick()
    with watched.circuits.asking("one", "healthy") as asking:
        asking.tell(CircuitOutcome.ANSWERED)
    assert watched.changes == [("one", True), ("one", False)]


def test_what_had_no_answer_is_asked_for_again_where_nothing_else_is() -> None:
    watched = Watched()
    with pytest.raises(Unavailable), watched.circuits.asking("one", "sick"):
        raise Unreachable("silence")
    with pytest.raises(Unavailable), watched.circuits.asking("one", "sick"):
        raise Unreachable("silence")
    watched.now = 5.0
    with pytest.raises(Unavailable, match="silence"), watched.circuits.asking("one", "sick"):
        raise Unreachable("silence")
    watched.now = 14.0
    with pytest.raises(NotAsked) as raised, watched.circuits.asking("one", "sick"):
        raise AssertionError("it is sent")
    assert raised.value.retry_after == 1
    watched.now = 15.0
    with watched.circuits.asking("one", "sick") as asking:
        asking.tell(CircuitOutcome.ANSWERED)
    assert watched.changes == [("one", True), ("one", False)]


def test_each_service_is_judged_by_itself() -> None:
    watched = Watched()
    watched.silent()
    watched.ask(CircuitOutcome.FAILED)
    watched.refused()
    watched.ask(CircuitOutcome.ANSWERED, "other")
    assert watched.changes == [("one", True)]
    assert watched.spared == ["one"]


def test_the_refusal_says_who_is_away_and_when_to_come_again() -> None:
    watched = Watched()
    watched.silent()
    watched.silent()
    watched.now = 1.5
    error = watched.refused()
    assert "one does not answer" in str(error)
    assert error.retry_after == 4
    assert isinstance(error, Unavailable)


def test_one_probe_at_a_time_goes_through_and_the_first_answer_brings_the_service_back() -> None:
    watched = Watched()
    watched.silent()
    watched.silent()
    watched.now = 5.0
    with watched.circuits.asking("one") as probe:
        assert watched.refused().retry_after == 1
        probe.tell(CircuitOutcome.FAILED)
    watched.refused()
    watched.now = 10.0
    with watched.circuits.asking("one") as probe:
        probe.tell(CircuitOutcome.ANSWERED)
        watched.ask(CircuitOutcome.ANSWERED)
    assert watched.changes == [("one", True), ("one", False)]


def test_a_probe_that_its_client_gave_up_leaves_its_place_to_the_next() -> None:
    watched = Watched()
    watched.silent()
    watched.silent()
    watched.now = 5.0
    with watched.circuits.asking("one"):
        pass
    watched.ask(CircuitOutcome.ANSWERED)


def test_a_probe_without_an_end_is_forgotten() -> None:
    watched = Watched()
    watched.silent()
    watched.silent()
    watched.now = 5.0
    with watched.circuits.asking("one") as endless:
        watched.now = 20.0
        with watched.circuits.asking("one") as second:
            endless.tell(CircuitOutcome.FAILED)
            watched.refused()
            second.tell(CircuitOutcome.ANSWERED)
    assert watched.changes == [("one", True), ("one", False)]


def test_what_failed_before_a_service_came_back_says_nothing_of_it() -> None:
    watched = Watched()
    old: list[Asking] = []
    with watched.circuits.asking("one") as first, watched.circuits.asking("one") as second:
        old += [first, second]
        watched.silent()
        watched.silent()
        watched.now = 5.0
        watched.ask(CircuitOutcome.ANSWERED)
        for one in old:
            one.tell(CircuitOutcome.FAILED)
    watched.ask(CircuitOutcome.ANSWERED)
    assert watched.changes == [("one", True), ("one", False)]


def test_what_a_client_caused_never_counts() -> None:
    watched = Watched()
    for _ in range(5):
        watched.ask(CircuitOutcome.ANSWERED)
        with pytest.raises(BadRequest), watched.circuits.asking("one"):
            raise BadRequest("the body of the request broke off")
    assert watched.changes == []


def test_nothing_is_ever_away_where_that_is_not_wished() -> None:
    circuits = never_away()
    for _ in range(100):
        with pytest.raises(Unreachable), circuits.asking("one"):
            raise Unreachable("silence")
