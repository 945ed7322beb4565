"""What a service begins with is done however often it fails first."""

from __future__ import annotations

import asyncio

import pytest

from skep.domain.errors import Unavailable
from skep.reconciler import beginnings
from skep.reconciler.beginnings import until_done


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "RETRY_SECONDS", 0.0)


async def test_what_fails_is_done_again() -> None:
    failures: list[Exception] = [Unavailable("away"), RuntimeError("a bug")]

    async def work() -> None:
        if failures:
            raise failures.pop()

    await until_done("work", work)
    assert failures == []


async def test_a_service_that_stops_ends_it() -> None:
    tries = asyncio.Event()

    async def work() -> None:
        tries.set()
        raise Unavailable("away")

    task = asyncio.create_task(until_done("work", work))
    await tries.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
