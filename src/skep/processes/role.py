"""One role of an installation in a process of its own: waits for what it needs, says how it is, stops in order."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skep.domain.errors import Unavailable
from skep.processes import collector
from skep.processes.health import health_app
from skep.processes.listener import Listener
from skep.processes.notifying import BrokerNotifications
from skep.processes.process import Process
from skep.processes.stopping import stop_part
from skep.standalone.binding import check_bind
from skep.telemetry.logs import get_logger

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to begin, while a part that is needed is away."""

T = TypeVar("T")

log = get_logger(__name__)


class Role(ABC):
    """What all roles have. A role opens its parts in `_open`, each by `_wait_for`, and lets `_on_stop` close them."""

    name = "role"
    notifies = False
    """Whether it tells of what happens to servers and other things."""

    def __init__(self, process: Process, *, health_port: int = 0, setting: str = "") -> None:
        """`setting` names the setting of the port of its health and metrics; a port of 0 means none."""
        self.process = process
        self.config = process.config
        self._health_port = health_port
        self._setting = setting
        self._waits_for: str | None = "it has not started"
        self._parts: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    @abstractmethod
    async def _open(self) -> None:
        """Open the parts, the first needed first."""

    def _troubles(self) -> list[str]:
        """Return what keeps the started role from its work now, a sentence each."""
        return []

    async def start(self) -> None:
        """Start, and return once work is taken; parts that are away are waited for.

        Raises Misconfigured when the port is taken, the broker of notifications cannot be used as configured, or a
        part says that it can never serve; nothing runs then.
        """
        try:
            if self.notifies:
                told = BrokerNotifications(self.process)
                # Named first: the other parts tell something to the last.
                self._on_stop("notifications", told.stop)
                told.start()
            await self._listen()
            await self._open()
        except BaseException:
            await self.stop()
            raise
        self._waits_for = None
        collector.settle()
        log.info("role serves", role=self.name, owner=self.process.owner)

    async def stop(self) -> None:
        """Take no more work, finish or hand back what is under way, disconnect: the parts in reverse."""
        self._waits_for = "it is stopping"
        while self._parts:
            name, stop = self._parts.pop()
            await stop_part(name, stop())

    def reasons(self) -> list[str]:
        """Return why this process is not ready, a sentence each; empty when it is."""
        return [self._waits_for] if self._waits_for is not None else self._troubles()

    def _on_stop(self, part: str, stop: Callable[[], Awaitable[None]]) -> None:
        """Stop this part before all that were named earlier."""
        self._parts.append((part, stop))

    async def _wait_for(self, part: str, step: Callable[[], Awaitable[T]]) -> T:
        """Repeat a step of the start until what it needs is there."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await step()
            except Unavailable as error:
                self._waits_for = f"{part}: {error}"
                log.warning("waiting to start", part=part, error=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _listen(self) -> None:
        if not self._health_port:
            return
        check_bind(self.config.api.bind_host, tls=False)
        listener = Listener(
            self.config.api.bind_host,
            self._health_port,
            self._setting,
            limits=self.config.http,
            metrics=self.process.metrics,
            zero="0: none; one port for each process of a machine or network namespace",
        )
        self._on_stop("health", listener.stop)
        await listener.start(health_app(self.reasons, self.process.metrics.exposition))
