"""A step is timed, logged once, and a place to crash at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from skep.domain.actions import ACTION_STEPS
from skep.domain.builds import STEPS
from skep.telemetry import steps as step_runner
from skep.telemetry.logs import get_logger
from skep.telemetry.metrics import Metrics
from skep.telemetry.steps import CrashPoint, Steps


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MutableMapping[str, Any]]]:
    monkeypatch.setattr(step_runner, "log", get_logger("skep.telemetry.steps"))  # whatever the old one has cached
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as captured:
        yield captured


def seconds_passing(*seconds: float) -> Iterator[float]:
    yield from seconds


def counted(metrics: Metrics, step: str, outcome: str) -> float:
    labels = {"step": step, "outcome": outcome}
    return metrics.registry.get_sample_value("skep_build_step_seconds_count", labels) or 0.0


async def test_a_step_counts_and_logs_when_it_ends(lines: list[MutableMapping[str, Any]]) -> None:
    metrics = Metrics()
    ticks = seconds_passing(10.0, 10.25)
    steps = Steps(metrics, timer=lambda: next(ticks))
    async with steps.step("stage", instance="i", attempt=1, cell="c", members=3) as run:
        run.note(rows=2)
    assert counted(metrics, "stage", "ok") == 1
    assert metrics.registry.get_sample_value("skep_build_step_seconds_sum", {"step": "stage", "outcome": "ok"}) == 0.25
    (line,) = lines
    assert line == {
        "event": "stage",
        "log_level": "info",
        "source": "skep.telemetry.steps",
        "instance": "i",
        "attempt": 1,
        "cell": "c",
        "outcome": "ok",
        "milliseconds": 250.0,
        "members": 3,
        "rows": 2,
    }


async def test_lines_inside_a_step_bear_its_keys_and_later_ones_do_not(
    lines: list[MutableMapping[str, Any]],
) -> None:
    log = get_logger("skep.example")
    async with Steps(Metrics()).step("spawn", instance="i", host="h"):
        log.info("inside")
    log.info("outside")
    inside, _, outside = lines
    assert (inside["instance"], inside["host"]) == ("i", "h")
    assert "instance" not in outside


async def test_the_work_may_say_how_it_ended(lines: list[MutableMapping[str, Any]]) -> None:
    metrics = Metrics()
    async with Steps(metrics).step("map") as run:
        run.outcome = "replaced"
    assert counted(metrics, "map", "replaced") == 1
    assert lines[0]["outcome"] == "replaced"


@pytest.mark.parametrize(
    ("error", "outcome"), [(RuntimeError("boom"), "error"), (asyncio.CancelledError(), "cancelled")]
)
async def test_a_failed_step_is_counted_and_its_error_passes(
    error: BaseException, outcome: str, lines: list[MutableMapping[str, Any]]
) -> None:
    metrics = Metrics()
    with pytest.raises(type(error)):
        async with Steps(metrics).step("spawn"):
            raise error
    assert counted(metrics, "spawn", outcome) == 1
    assert (lines[0]["outcome"], lines[0]["error"]) == (outcome, type(error).__name__)


async def test_crash_points_stand_before_and_after_the_work() -> None:
    seen: list[object] = []

    async def hook(point: CrashPoint) -> None:
        seen.append((point.step, point.when, point.instance, point.attempt))

    async with Steps(Metrics(), crash_hook=hook).step("built", instance="i", attempt=4):
        seen.append("work")
    assert seen == [("built", "before", "i", 4), "work", ("built", "after", "i", 4)]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(("when", "worked"), [("before", False), ("after", True)])
async def test_a_crash_passes_through_the_step(when: str, worked: bool) -> None:
    done = False

    async def hook(point: CrashPoint) -> None:
        if point.when == when:
            raise Killed

    with pytest.raises(Killed):
        async with Steps(Metrics(), crash_hook=hook).step("claim"):
            done = True
    assert done is worked


async def test_no_crash_point_after_work_that_failed() -> None:
    seen: list[str] = []

    async def hook(point: CrashPoint) -> None:
        seen.append(point.when)

    with pytest.raises(RuntimeError):
        async with Steps(Metrics(), crash_hook=hook).step("claim"):
            raise RuntimeError
    assert seen == ["before"]


def test_a_name_outside_the_table_is_a_bug() -> None:
    steps = Steps(Metrics())
    for name in (*STEPS, *ACTION_STEPS):
        steps.step(name)
    with pytest.raises(ValueError, match="no step 'stagger'"):
        steps.step("stagger")
