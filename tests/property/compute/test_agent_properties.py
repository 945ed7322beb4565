from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.compute.drivers.fake import FailureRule, FakeSettings
from skep.contracts.eventually import PATIENCE
from skep.messages.to_cell_conductor import ReportHost
from tests.support.agents import AgentStage, uuid_of
from tests.support.samples import examples

NUMBERS = st.integers(1, 2)
ATTEMPTS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("build"), NUMBERS, ATTEMPTS),
        st.tuples(st.just("terminate"), NUMBERS, ATTEMPTS),
        st.tuples(st.just("turn"), st.integers(1, 8), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
        st.tuples(st.just("answers"), st.integers(0, 7), st.just(0)),
    ),
    max_size=25,
)
RULES = st.lists(
    st.builds(
        FailureRule,
        operation=st.sampled_from(["prepare", "spawn", "destroy"]),
        times=st.integers(1, 2),
        after=st.integers(0, 2),
    ),
    max_size=2,
).map(tuple)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS, RULES)
def test_messages_in_any_order_leave_one_guest_at_most_and_nothing_after_a_delete(
    steps: list[tuple[str, int, int]], rules: tuple[FailureRule, ...]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_storm(Path(directory), steps, rules))


async def _storm(directory: Path, steps: list[tuple[str, int, int]], rules: tuple[FailureRule, ...]) -> None:
    async with AgentStage(directory) as stage:
        stage.fake = FakeSettings(failures=rules, spawn_delay=0.0005)
        await stage.start()
        for kind, first, second in steps:
            await _do(stage, kind, first, second)
        stage.conductor.may_build = stage.conductor.may_spawn = stage.conductor.current = True
        for number in (1, 2):
            await stage.terminate(number, 9)
        async with asyncio.timeout(PATIENCE):
            while await stage.driver.guests() or not _reports_nothing(stage):
                await stage.turn()
        _check_history(stage)


async def _do(stage: AgentStage, kind: str, first: int, second: int) -> None:
    if kind == "build":
        await stage.build(first, second)
    elif kind == "terminate":
        await stage.terminate(first, second)
    elif kind == "turn":
        for _ in range(first):
            await stage.turn()
    elif kind == "crash":
        await stage.crash()
        await stage.start()
    else:
        stage.conductor.may_build = bool(first & 1)
        stage.conductor.may_spawn = bool(first & 2)
        stage.conductor.current = bool(first & 4)


def _reports_nothing(stage: AgentStage) -> bool:
    reports = stage.conductor.all(ReportHost)
    return bool(reports) and not any(reports[-1].usage.used.values())


def _check_history(stage: AgentStage) -> None:
    """A guest begins only where there is none, and an attempt gets whole only after the ones before it are gone."""
    for number in (1, 2):
        there: int | None = None
        newest = 0
        for event in stage.history():
            if event.instance != uuid_of(number):
                continue
            if event.event == "spawn_begun":
                assert there is None
                assert event.attempt >= newest
                there = newest = event.attempt
            elif event.event == "destroyed":
                assert there == event.attempt
                there = None
            else:
                assert there == event.attempt
        assert there is None
