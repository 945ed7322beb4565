"""A loop runs its pass when nudged and now and then, never two at once, whatever the pass does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog

from skep.contracts.eventually import PATIENCE
from skep.domain.errors import Unavailable
from skep.reconciler.loop import Loop

NEVER = 3600.0
"""A period that no test lives to see: a pass has another reason than time."""
LONG = PATIENCE


class Passes:
    """A pass that notes its runs, can be held, fail, or say that there is more."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.at_once = 0
        self.most_at_once = 0
        self.more = 0
        self.error: Exception | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._changed = asyncio.Condition()

    async def run(self) -> bool:
        self.begun += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self._tell()
        await self.go_on.wait()
        self.at_once -= 1
        self.ended += 1
        await self._tell()
        if self.error is not None:
            raise self.error
        self.more -= 1
        return self.more >= 0

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, *, begun: int = 0, ended: int = 0) -> None:
        async with asyncio.timeout(LONG), self._changed:
            await self._changed.wait_for(lambda: self.begun >= begun and self.ended >= ended)


@pytest.fixture
def passes() -> Passes:
    return Passes()


@pytest.fixture
async def loop(passes: Passes) -> AsyncIterator[Loop]:
    made = Loop("test", passes.run, every=NEVER)
    yield made
    passes.go_on.set()
    await made.stop()


async def test_the_first_pass_comes_with_the_start(loop: Loop, passes: Passes) -> None:
    loop.start()
    await passes.until(ended=1)


async def test_a_nudge_runs_a_pass(loop: Loop, passes: Passes) -> None:
    loop.start()
    await passes.until(ended=1)
    loop.nudge()
    await passes.until(ended=2)


async def test_nudges_during_a_pass_run_one_more_and_only_one(loop: Loop, passes: Passes) -> None:
    passes.go_on.clear()
    loop.start()
    await passes.until(begun=1)
    for _ in range(5):
        loop.nudge()
    passes.go_on.set()
    await passes.until(ended=2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert passes.begun == 2
    assert passes.most_at_once == 1


async def test_a_pass_that_leaves_work_is_followed_by_another_at_once(loop: Loop, passes: Passes) -> None:
    passes.more = 3
    loop.start()
    await passes.until(ended=4)


async def test_a_pass_comes_again_after_its_period(passes: Passes) -> None:
    loop = Loop("test", passes.run, every=0.001)
    loop.start()
    await passes.until(ended=3)
    await loop.stop()


@pytest.mark.parametrize(("error", "level"), [(Unavailable("not now"), "warning"), (RuntimeError("bug"), "error")])
async def test_an_error_is_logged_and_stops_nothing(loop: Loop, passes: Passes, error: Exception, level: str) -> None:
    passes.error = error
    with structlog.testing.capture_logs() as logged:
        loop.start()
        await passes.until(ended=1)
        loop.nudge()
        await passes.until(ended=2)
        passes.error = None
        loop.nudge()
        await passes.until(ended=3)
    assert [(line["event"], line["log_level"], line["loop"]) for line in logged] == [("pass failed", level, "test")] * 2


async def test_stopping_waits_for_the_pass_under_way_and_begins_no_other(loop: Loop, passes: Passes) -> None:
    passes.go_on.clear()
    passes.more = 9
    loop.start()
    await passes.until(begun=1)
    stopping = asyncio.create_task(loop.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    passes.go_on.set()
    async with asyncio.timeout(LONG):
        await stopping
    assert (passes.begun, passes.ended) == (1, 1)


async def test_stopping_what_never_started_is_no_error(passes: Passes) -> None:
    await Loop("test", passes.run, every=NEVER).stop()
    assert passes.begun == 0


async def test_nudges_right_after_a_pass_share_the_next_one(passes: Passes) -> None:
    loop = Loop("gathering", passes.run, every=NEVER, apart=1.0)
    loop.start()
    await passes.until(ended=1)
    for _ in range(3):
        loop.nudge()
        await asyncio.sleep(0)
    await passes.until(ended=2)
    await loop.stop()
    assert passes.begun == 2
