"""Calls that are sent once more while their answer is awaited.

A scheduler that is halted (stopped, swapped out, its machine frozen) keeps its place in the queue group, and with it
its share of all calls, until the server gives its connection up. Its callers would each wait until their deadline. So
a call that any scheduler answers alike, and that may be answered twice, goes to the group again; the first answer is
taken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from skep.domain.errors import Overloaded, Unreachable
from skep.messages import to_scheduler, to_scheduler_capacity, to_scheduler_liveness, to_scheduler_namespaces

AGAIN_AFTER: dict[type[Any], float] = {
    to_scheduler.SelectDestinations: 2.0,
    to_scheduler.UpdateHostState: 1.0,
    to_scheduler_liveness.Beat: 1.0,
    to_scheduler.AssertClaims: 2.0,
    to_scheduler.ReleaseClaims: 1.0,
    to_scheduler.ReleaseSlots: 1.0,
    to_scheduler.GetHostStates: 1.0,
    to_scheduler.ListClaims: 1.0,
    to_scheduler.ListNamespaces: 1.0,
    to_scheduler_namespaces.GetNamespaceStates: 1.0,
    to_scheduler_capacity.GetCapacity: 5.0,
}
"""Seconds until the first repeat; each further one comes after twice as long.

They bear an attempt, an epoch or a (incarnation, seq), or only read: a copy that a halted scheduler takes up long after
the answer does no harm. What sets or removes without such a number (the operator's intent, states of other services)
is not among them: late, it could undo what was said since. Selecting waits longer, since two schedulers that are asked
at once for one attempt may each claim a host for a while.
"""


class Repeat:
    """Sends one call again and again, until it is stopped."""

    def __init__(self, send: Callable[[], Awaitable[None]], pause: float) -> None:
        """`pause`: seconds until the first time."""
        self._send = send
        self._pause = pause
        self._sending: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(pause, self._begin)

    def stop(self) -> None:
        """Send no more."""
        self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _begin(self) -> None:
        self._sending = asyncio.get_running_loop().create_task(self._again())

    async def _again(self) -> None:
        # The caller waits for his first copy anyway; that this one could not be sent is no news for him.
        with contextlib.suppress(Overloaded, Unreachable):
            await self._send()
        self._pause *= 2
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._begin)
