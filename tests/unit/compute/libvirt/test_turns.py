"""Calls about servers: one at a time for each, and however many wait, those about others go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from skep.compute.drivers.libvirt.turns import ServerTurns
from skep.contracts.eventually import PATIENCE

MANY = 200
"""Calls that wait for their guests."""


@pytest.fixture
def turns() -> Iterator[ServerTurns]:
    made = ServerTurns()
    yield made
    made.close()


async def test_calls_that_wait_keep_no_other_server_waiting(turns: ServerTurns) -> None:
    over = threading.Event()
    waiting = [asyncio.ensure_future(turns.run(str(number), over.wait)) for number in range(MANY)]
    try:
        async with asyncio.timeout(PATIENCE):
            assert await turns.run("another", lambda: "done") == "done"
            assert await turns.beside(lambda: "done") == "done"
        assert not any(one.done() for one in waiting)
    finally:
        over.set()
        await asyncio.gather(*waiting)


async def test_calls_about_one_server_follow_one_another_also_when_nobody_waits(turns: ServerTurns) -> None:
    begun, over = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        begun.set()
        over.wait()
        done.append("first")

    given_up = asyncio.ensure_future(turns.run("one", first))
    await asyncio.get_running_loop().run_in_executor(None, begun.wait)
    given_up.cancel()
    second = asyncio.ensure_future(turns.run("one", lambda: done.append("second")))
    await turns.run("another", lambda: done.append("another"))
    over.set()
    await second
    assert done == ["another", "first", "second"]
