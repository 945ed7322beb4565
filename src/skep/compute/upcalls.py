"""Calls to the cell conductor, repeated until they are answered: silence is never taken for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import structlog

from skep.compute.settings import ComputeSettings
from skep.compute.work import Stopping, Work
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError, StaleAgent, Unavailable
from skep.domain.ids import CellUuid
from skep.messages.base import Call, Cast
from skep.messages.to_cell_conductor import BuildInstances, Built, Destroyed, MayBuild, MaySpawn, TaskDone
from skep.transport.base import Transport, cell_conductor

ReplyT = TypeVar("ReplyT")
log = structlog.get_logger("skep.compute")

SPOKEN = (MayBuild, MaySpawn, Built, BuildInstances, Destroyed, TaskDone)
"""What only the youngest of several agents with one identity may say."""

LONGEST_PAUSE = 16
"""Times `resend_seconds`: the pause between two sendings doubles up to it."""


class Upcalls:
    """An agent's way to its cell conductor."""

    def __init__(self, transport: Transport, cell: CellUuid, host: str, settings: ComputeSettings, work: Work) -> None:
        self._transport = transport
        self._address = cell_conductor(cell)
        self._host = host
        self._settings = settings
        self._work = work
        self.incarnation: int | None = None
        """The agent's number in its cell, which goes with what it says; None before it is registered."""
        self.on_stale: Callable[[], None] = _nothing
        """Called when the conductor answers that a younger agent with this identity has registered."""

    async def ask(
        self,
        call: Call[ReplyT],
        *,
        context: RequestContext | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> ReplyT | None:
        """Send `call` until it is answered; None when the answer is no longer `wanted`.

        Raises Stopping when the agent stops.
        """
        pause = self._settings.resend_seconds
        while wanted is None or wanted():
            self._work.check()
            try:
                return await self.once(call, context=context)
            except StaleAgent:
                self.on_stale()
                raise Stopping from None
            except SkepError as error:
                # An answer that is an error is no answer either: a conductor that cannot store now will be able to.
                tell = log.info if isinstance(error, Unavailable) else log.error
                tell("not answered, sent again", call=type(call).__name__, host=self._host, error=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE * self._settings.resend_seconds)
        return None

    async def once(self, call: Call[ReplyT], *, context: RequestContext | None = None) -> ReplyT:
        """Send `call` one time. Raises Unreachable when it is not answered, or the error that was answered."""
        message: Any = call
        if isinstance(call, SPOKEN) and self.incarnation is not None:
            message = msgspec.structs.replace(call, incarnation=self.incarnation)
        reply: ReplyT = await self._transport.call(
            self._address, message, timeout=self._settings.call_timeout_seconds, context=context
        )
        return reply

    async def cast(self, cast: Cast) -> None:
        """Send a hint."""
        await self._transport.cast(self._address, cast)


def _nothing() -> None:
    return None
