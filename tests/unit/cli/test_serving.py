"""Starting, serving, draining: signals are real ones to this process."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from skep.cli import serving
from skep.cli.failures import Failed
from skep.contracts.eventually import PATIENCE
from skep.domain.errors import Misconfigured


class Cloud:
    """Notes what is done with it."""

    def __init__(self, *, broken: bool = False, hangs: bool = False) -> None:
        self.log: list[str] = []
        self.broken = broken
        self.hangs = hangs

    async def start(self) -> None:
        if self.broken:
            raise Misconfigured("cannot listen on 127.0.0.1:8774")
        self.log.append("started")

    async def stop(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        self.log.append("stopped")

    async def greet(self) -> None:
        self.log.append("greeted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_serves_until_it_is_told(number: signal.Signals) -> None:
    cloud = Cloud()

    async def greet() -> None:
        await cloud.greet()
        os.kill(os.getpid(), number)

    await asyncio.wait_for(serving.serve(cloud, greet), PATIENCE)
    assert cloud.log == ["started", "greeted", "stopped"]


async def test_a_signal_while_greeting_stops_at_once() -> None:
    cloud = Cloud()

    async def greet() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    await asyncio.wait_for(serving.serve(cloud, greet), PATIENCE)
    assert cloud.log == ["started", "stopped"]


async def test_what_does_not_start_is_not_stopped_again() -> None:
    cloud = Cloud(broken=True)
    with pytest.raises(Misconfigured, match="8774"):
        await serving.serve(cloud, cloud.greet)
    assert cloud.log == []


async def test_a_greeting_that_fails_stops_the_cloud() -> None:
    cloud = Cloud()

    async def greet() -> None:
        raise Misconfigured("no")

    with pytest.raises(Misconfigured):
        await serving.serve(cloud, greet)
    assert cloud.log == ["started", "stopped"]


async def test_a_stop_that_hangs_is_given_up() -> None:
    cloud = Cloud(hangs=True)

    async def greet() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Failed, match="given up"):
        await asyncio.wait_for(serving.serve(cloud, greet, 0.01), PATIENCE)
