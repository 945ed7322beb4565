"""One scheduler in a process of its own, `skep serve scheduler`: it opens no database and holds no credentials."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

from skep.config.sections import Config
from skep.domain.clock import Clock
from skep.domain.errors import Unavailable
from skep.processes.health import health_app
from skep.processes.listener import Listener
from skep.processes.scheduling import make_scheduler
from skep.processes.stopping import stop_part
from skep.processes.wiring import backend_of, check_shared, transport_of
from skep.scheduler.service import SchedulerService
from skep.standalone.binding import check_bind
from skep.telemetry.logs import get_logger
from skep.telemetry.metrics import Metrics

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to begin, while NATS or the backend is away."""

log = get_logger(__name__)


class SchedulerProcess:
    """Waits for NATS and the synchronizer's backend, reads all host states, then serves until it is stopped."""

    def __init__(self, config: Config, *, metrics: Metrics | None = None) -> None:
        """Raises Misconfigured when other processes could not reach it, or a setting names what is not there."""
        check_shared(config)
        self.config = config
        self.metrics = metrics or Metrics()
        self._transport = transport_of(config, self.metrics, "skep-scheduler")
        self._backend = backend_of(config)
        self._service = make_scheduler(config, self._transport, self._backend, Clock(), self.metrics)
        self._listener: Listener | None = None
        self._waits_for: str | None = "it has not started"

    @property
    def service(self) -> SchedulerService:
        """The scheduler itself."""
        return self._service

    async def start(self) -> None:
        """Start, and return once messages are taken; parts that are away are waited for.

        Raises Misconfigured when the port is taken, or a server says that it can never serve; nothing runs then.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        port = self.config.scheduler.health_port
        if port:
            check_bind(self.config.api.bind_host, tls=False)
            self._listener = Listener(self.config.api.bind_host, port, "scheduler.health_port")
            await self._listener.start(health_app(self.reasons, self.metrics.exposition))
        await self._do("messaging", self._transport.open)
        await self._do("synchronizer", self._backend.open)
        await self._do("synchronizer", self._service.start)
        self._waits_for = None
        # The records that were read stay: the collector need not look at them again.
        gc.collect()
        gc.freeze()
        log.info("scheduler serves", backend=self.config.synchronizer.backend)

    async def stop(self) -> None:
        """Take no more messages, finish and answer those under way, disconnect."""
        self._waits_for = "it is stopping"
        await stop_part("scheduler", self._service.stop())
        await stop_part("synchronizer", self._backend.close())
        await stop_part("messaging", self._transport.close())
        if self._listener is not None:
            await self._listener.stop()

    def reasons(self) -> list[str]:
        """Return why this process is not ready, a sentence each: it is once it has read all and follows the changes."""
        if self._waits_for is not None:
            return [self._waits_for]
        found = [] if self._transport.connected else ["messaging: there is no connection"]
        trouble = self._service.trouble
        return [*found, f"synchronizer: {trouble}"] if trouble is not None else found

    async def _do(self, part: str, step: Callable[[], Awaitable[None]]) -> None:
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
