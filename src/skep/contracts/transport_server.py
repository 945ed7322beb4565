"""A server that notes what it is asked, for tests of transports."""

from __future__ import annotations

import asyncio
from typing import Any

from skep.contracts.eventually import PATIENCE
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
from skep.messages.to_cell_conductor import MayBuild, Permission
from skep.messages.to_super_conductor import CellChanged
from skep.transport.base import Handlers

SHORT = 0.05
"""Seconds that a call waits where nobody will answer."""
LONG = PATIENCE
"""Seconds that a wait may take at most where an answer will come."""

QUESTION = MayBuild(instance=InstanceUuid("i"), attempt=3, host="h")


class Server:
    """Handlers that note what they get. `hold` makes them wait; `error` makes them fail."""

    def __init__(self, *, granted: bool = True) -> None:
        self.granted = granted
        self.taken: list[tuple[Any, RequestContext | None]] = []
        self.finished = 0
        self.arrived = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: Exception | None = None

    @property
    def handlers(self) -> Handlers:
        """What to serve."""
        return {MayBuild: self.answer, CellChanged: self.answer}

    def hold(self) -> None:
        """Have handlers wait until `go_on` is set."""
        self.go_on.clear()

    async def answer(self, message: Any, context: RequestContext | None) -> Permission:
        """Note a message; answer it as this server does."""
        self.taken.append((message, context))
        self.arrived.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        self.finished += 1
        return Permission(granted=self.granted)
