"""Deciding once more what a scheduler decided, on what it knew at that moment, and comparing.

Pure: entries of a decision log come in, figures come out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from skep.placement.deciding import Seat
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.entries import (
    Decided,
    Dropped,
    EndedRequest,
    Entry,
    Found,
    Header,
    Known,
    LoggedAnswer,
    LoggedRequest,
    UnreadableLine,
)
from skep.scheduler.decision_log.recording import answer_of, found_of
from skep.scheduler.decision_log.retelling import RetoldDeciding, RetoldStates

MOST_DIFFERENCES = 20
"""So many differences are kept; all are counted."""


@dataclass(frozen=True, slots=True)
class DecisionDifference:
    """One decision that came out otherwise."""

    run: str
    segment: int
    decision: int
    """Its number in the segment."""
    instance: str
    attempt: int
    recorded: str
    replayed: str


@dataclass(slots=True)
class ReplayCounts:
    """What is counted whenever a log is told once more."""

    segments: int = 0
    incomplete: int = 0
    """Segments that end before their snapshot does: nothing of them can be decided."""
    changes: int = 0
    """Lines that tell of records, beats, epochs and other schedulers."""
    decisions: int = 0
    dry_runs: int = 0
    """Of the decisions."""
    differences: list[DecisionDifference] = field(default_factory=list)

    def settings(self, recorded: SchedulerSettings) -> SchedulerSettings:
        """Return by what settings is decided, in a segment that was recorded under others."""
        return recorded

    def judge(self, told: Told, recorded: LoggedAnswer, replayed: LoggedAnswer) -> None:
        """Compare two answers to one request for a host."""
        raise NotImplementedError

    def judge_found(self, told: Told, recorded: Found, replayed: Found | None) -> None:
        """Compare what was found of an attempt that had a claim."""
        raise NotImplementedError

    def count(self, told: Told) -> None:
        """Count a decision."""
        self.decisions += 1
        self.dry_runs += told.dry_run

    def differ(self, told: Told, recorded: LoggedAnswer | Found, replayed: LoggedAnswer | Found | None) -> None:
        """Keep a difference, one of the first."""
        if len(self.differences) < MOST_DIFFERENCES:
            self.differences.append(
                DecisionDifference(
                    run=told.header.run,
                    segment=told.header.segment,
                    decision=told.decision,
                    instance=told.seat.instance,
                    attempt=told.seat.attempt,
                    recorded=said(recorded),
                    replayed=said(replayed),
                )
            )


@dataclass(slots=True)
class Tally(ReplayCounts):
    """What came of a replay: whether everything came out the same."""

    reproduced: int = 0

    def judge(self, told: Told, recorded: LoggedAnswer, replayed: LoggedAnswer) -> None:
        """Compare host, alternates, claim and counts."""
        self._compare(told, recorded, replayed)

    def judge_found(self, told: Told, recorded: Found, replayed: Found | None) -> None:
        """Compare host, alternates and counts."""
        self._compare(told, recorded, replayed)

    def _compare(self, told: Told, recorded: LoggedAnswer | Found, replayed: LoggedAnswer | Found | None) -> None:
        self.count(told)
        if recorded == replayed:
            self.reproduced += 1
        else:
            self.differ(told, recorded, replayed)


class Told(NamedTuple):
    """Which decision it is."""

    header: Header
    decision: int
    """Its number in the segment."""
    seat: Seat
    dry_run: bool


def replay(segment: Iterable[Entry], counted: ReplayCounts) -> None:
    """Decide once more all that one segment holds, and count it.

    Raises Unreadable where lines contradict each other, Misconfigured where the settings name a filter or weigher that
    is not installed.
    """
    lines = iter(segment)
    header = next(lines, None)
    counted.segments += 1
    if not isinstance(header, Header):
        counted.incomplete += 1
        return
    retelling = _Retelling(header, counted)
    for entry in lines:
        retelling.take(entry)
    if not retelling.is_known:
        counted.incomplete += 1


class _Retelling:
    """One segment, line by line."""

    def __init__(self, header: Header, counted: ReplayCounts) -> None:
        self.is_known = False
        self._header = header
        self._counted = counted
        self._settings = counted.settings(header.settings)
        self._states = RetoldStates(self._settings)
        self._requests: dict[int, RetoldDeciding] = {}
        self._decisions = 0

    def take(self, entry: Entry) -> None:
        match entry:
            case LoggedRequest():
                self._requests[entry.number] = RetoldDeciding(self._states, self._settings, entry)
            case Decided():
                self._decide(entry)
            case Found():
                self._find(entry)
            case Dropped():
                request = self._request(entry.number)
                request.drop_from(request.seats[entry.member], entry.node)
            case EndedRequest():
                self._end(entry)
            case Header():
                raise UnreadableLine("expected one header in a segment, got a second")
            case _:
                self.is_known = self.is_known or isinstance(entry, Known)
                self._counted.changes += 1
                self._states.take_change(entry)

    def _decide(self, entry: Decided) -> None:
        request = self._request(entry.number)
        seat = request.seats[entry.member]
        seat.shunned = entry.shunned
        self._states.settle()
        request.decide(seat)
        answer = answer_of(seat)
        self._counted.judge(self._told(request, seat), entry.answer, answer)
        if answer != entry.answer:
            request.follow(seat, entry.answer)

    def _find(self, entry: Found) -> None:
        request = self._request(entry.number)
        seat = request.seats[entry.member]
        self._states.settle()
        found = found_of(entry.number, entry.member, seat) if request.find(seat) else None
        self._counted.judge_found(self._told(request, seat), entry, found)

    def _end(self, entry: EndedRequest) -> None:
        request = self._request(entry.number)
        del self._requests[entry.number]
        for seat, node in zip(request.seats, entry.nodes, strict=True):
            if node is not None:
                request.drop_from(seat, node)

    def _request(self, number: int) -> RetoldDeciding:
        if number not in self._requests:
            raise UnreadableLine(f"request {number} is decided, but the segment does not contain it")
        return self._requests[number]

    def _told(self, request: RetoldDeciding, seat: Seat) -> Told:
        self._decisions += 1
        return Told(self._header, self._decisions, seat, request.dry_run)


def said(answer: LoggedAnswer | Found | None) -> str:
    """Return an answer in words."""
    if answer is None:
        return "no claim of the attempt is known"
    if isinstance(answer, LoggedAnswer) and answer.claim is None:
        return f"nobody: {answer.reason or _counts(answer)}"
    node = answer.node if isinstance(answer, Found) else answer.claim.node if answer.claim is not None else ""
    others = f", then {', '.join(answer.alternates)}" if answer.alternates else ""
    counts = f"; of {answer.considered} hosts" if isinstance(answer, Found) else f"; {_counts(answer)}"
    return f"{node}{others}{counts}"


def _counts(answer: LoggedAnswer) -> str:
    stages = "; ".join(f"{one.left} left by {one.stage}" for one in answer.stages)
    return f"{answer.considered} hosts considered{f'; {stages}' if stages else ''}"
