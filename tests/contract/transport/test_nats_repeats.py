"""A scheduler that is halted keeps its share of the calls; its callers find another one within their deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from skep.contracts.eventually import PATIENCE
from skep.domain.context import RequestContext
from skep.domain.errors import Unreachable
from skep.messages.to_scheduler import GetHostStates, GetHostStatesReply, PublishOperatorState
from skep.transport import repeats
from skep.transport.base import SCHEDULER
from skep.transport.nats import NatsTransport

pytestmark = pytest.mark.needs_part("nats-server")

Connect = Callable[..., Awaitable[NatsTransport]]


class Halting:
    """A scheduler that is halted while it has the first messages, and goes on when it is told to."""

    def __init__(self, halted: int) -> None:
        self.asked = 0
        self.on = asyncio.Event()
        self._halted = halted

    async def take(self, _message: object, _context: RequestContext | None) -> GetHostStatesReply:
        self.asked += 1
        number = self.asked
        if number <= self._halted:
            await self.on.wait()
        return GetHostStatesReply(hosts=(), epoch=f"asked {number}")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: dict[Any, float] = repeats.AGAIN_AFTER
    monkeypatch.setitem(pauses, GetHostStates, 0.05)


@pytest.mark.usefixtures("soon")
async def test_a_call_that_a_halted_scheduler_has_is_answered_by_another(connect: Connect) -> None:
    serving, asking = await connect(), await connect()
    halting = Halting(halted=2)
    served = await serving.serve(SCHEDULER, {GetHostStates: halting.take})
    reply = await asking.call(SCHEDULER, GetHostStates(), timeout=PATIENCE)
    assert reply.epoch == "asked 3"
    halting.on.set()
    assert (await asking.call(SCHEDULER, GetHostStates(), timeout=PATIENCE)).epoch != "asked 1"
    await served.close()


async def test_what_must_not_be_done_late_is_sent_once(connect: Connect) -> None:
    serving, asking = await connect(), await connect()
    halting = Halting(halted=1)
    served = await serving.serve(SCHEDULER, {PublishOperatorState: halting.take, GetHostStates: halting.take})
    with pytest.raises(Unreachable):
        await asking.call(SCHEDULER, PublishOperatorState(hosts=(), aggregates=(), cells=()), timeout=0.5)
    assert (await asking.call(SCHEDULER, GetHostStates(), timeout=PATIENCE)).epoch == "asked 2"
    halting.on.set()
    await served.close()
