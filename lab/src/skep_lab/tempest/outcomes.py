"""What came of the tests of a run, and the page that lists them by name."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

SET_UP = "setUpClass ("
"""A class that was refused or failed before its first test is told in one line, which begins so."""


class Came(enum.StrEnum):
    """What came of a test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_RUN = "not run"


class SuiteLine(msgspec.Struct, frozen=True):
    """A line of `inside/told.py`."""

    test: str
    status: str
    said: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """Of one test that was selected."""

    test: str
    """Its dotted name."""
    came: Came
    why: str = ""


_BEGUN = frozenset({"exists", "inprogress"})
"""Of tests that were listed or begun."""
_WORDS = {"success": Came.PASSED, "xfail": Came.PASSED, "skip": Came.SKIPPED}


def name_of(test: str) -> str:
    """Return the dotted name of a test, without the tags behind it."""
    return test.partition("[")[0]


def read(lines: Iterable[str], selected: Sequence[str]) -> list[SuiteOutcome]:
    """Return what came of each selected test; what its class was skipped or failed for counts for all of its tests."""
    known = map(msgspec.json.Decoder(SuiteLine).decode, lines)
    told = {one.test: one for one in known if one.status not in _BEGUN}
    classes = {test.removeprefix(SET_UP).rstrip(")"): one for test, one in told.items() if test.startswith(SET_UP)}
    outcomes = []
    for test in selected:
        name = name_of(test)
        one = told.get(test) or classes.get(name.rpartition(".")[0])
        if one is None:
            outcomes.append(SuiteOutcome(name, Came.NOT_RUN))
        else:
            outcomes.append(SuiteOutcome(name, _WORDS.get(one.status, Came.FAILED), one.said))
    return outcomes


def counted(outcomes: Iterable[SuiteOutcome]) -> dict[str, int]:
    """Return how many tests each outcome has."""
    counts = dict.fromkeys(map(str, Came), 0)
    for outcome in outcomes:
        counts[outcome.came] += 1
    return counts


def page(outcomes: Sequence[SuiteOutcome], known: Mapping[str, str], command: str) -> str:
    """Return the list by name. `known`: why a test that fails cannot pass; `command`: what the run was begun by."""
    counts = ", ".join(f"{number} {word}" for word, number in counted(outcomes).items() if number)
    text = [
        "# The tests of an outside suite, by name",
        "",
        f"Made by `{command}` ([conformance.md](conformance.md)): {counts}.",
        "Each line has a class and the names of its tests.",
    ]
    reasons = {outcome.test: known.get(outcome.test) or _last(outcome.why) for outcome in outcomes}
    for came in (Came.FAILED, Came.NOT_RUN, Came.SKIPPED, Came.PASSED):
        of_it = [outcome for outcome in outcomes if outcome.came is came]
        if not of_it:
            continue
        text += ["", f"## {came.capitalize()}"]
        by_reason: dict[str, list[SuiteOutcome]] = defaultdict(list)
        for outcome in of_it:
            by_reason["" if came is Came.PASSED else reasons[outcome.test]].append(outcome)
        for reason, group in sorted(by_reason.items()):
            text += ["", *([f"{reason}:", ""] if reason else []), *_classes(group)]
    return "\n".join(text) + "\n"


def _classes(outcomes: Iterable[SuiteOutcome]) -> list[str]:
    names: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        kind, _, test = outcome.test.rpartition(".")
        names[kind].append(test)
    return [f"- **{kind}**: {', '.join(sorted(tests))}" for kind, tests in sorted(names.items())]


def _last(said: str) -> str:
    """Return the last line of a traceback, or the reason of a skip, without what makes Markdown of it."""
    line = (said.splitlines() or ["no reason given"])[-1]
    return line.replace("`", "'").replace("*", "")[:200]
