"""What tests take: seconds, and seconds of processor, by folder, printed at the end of a run.

A plug-in of pytest: `register(config)`. Where tests run in workers, each measures its own tests and the parent adds up.
Seconds of processor include those of processes that a test started and that had ended when it did.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest

BY_FILE = "DURATIONS_BY_FILE"
"""With this variable of the environment each file has a line, not each folder."""


@dataclass
class Taken:
    """What the tests of one place took."""

    tests: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def processor_seconds() -> float:
    """Return what this process and its children that have ended have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class Durations:
    """Measures each phase of each test, and adds them up by folder."""

    def __init__(self, *, by_file: bool = False) -> None:
        self._by_file = by_file
        self._used = processor_seconds()
        self.places: dict[str, Taken] = defaultdict(Taken)

    def add(self, nodeid: str, when: str, seconds: float, cpu_seconds: float) -> None:
        """Count one phase of a test: `setup`, `call` or `teardown`."""
        path = nodeid.partition("::")[0]
        taken = self.places[path if self._by_file else str(PurePosixPath(path).parent)]
        taken.tests += when == "setup"
        taken.seconds += seconds
        taken.cpu_seconds += cpu_seconds

    def lines(self) -> Iterable[str]:
        """Return a table, what took longest first."""
        yield f"{'seconds':>9}{'processor':>11}{'tests':>7}  folder"
        for place, taken in sorted(self.places.items(), key=lambda one: -one[1].seconds):
            yield f"{taken.seconds:9.1f}{taken.cpu_seconds:11.1f}{taken.tests:7}  {place}"
        everything = self.places.values()
        yield (
            f"{sum(one.seconds for one in everything):9.1f}{sum(one.cpu_seconds for one in everything):11.1f}"
            f"{sum(one.tests for one in everything):7}  all, in all workers together"
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        used = processor_seconds()
        report.cpu_seconds = used - self._used  # type: ignore[attr-defined]  # reports keep what is added to them
        self._used = used
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.add(report.nodeid, str(report.when), report.duration, getattr(report, "cpu_seconds", 0.0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.places:
            terminalreporter.section("what tests take")
            for line in self.lines():
                terminalreporter.write_line(line)


def register(config: pytest.Config) -> None:
    """Measure this run."""
    config.pluginmanager.register(Durations(by_file=bool(os.environ.get(BY_FILE))), "durations")
