"""One scheduler in a process of its own, `skep serve scheduler`: it opens no database and holds no credentials."""

from __future__ import annotations

from skep.config.sections import Config
from skep.processes.process import Process, new_process
from skep.processes.role import Role
from skep.processes.scheduling import make_scheduler
from skep.processes.wiring import backend_of, check_shared, transport_of
from skep.scheduler.service import SchedulerService
from skep.telemetry.metrics import Metrics


class SchedulerProcess(Role):
    """Waits for NATS and the synchronizer's backend, reads all host states, then serves until it is stopped."""

    name = "scheduler"

    def __init__(self, config: Config, *, metrics: Metrics | None = None, process: Process | None = None) -> None:
        """Raises Misconfigured when other processes could not reach it, or a setting names what is not there."""
        check_shared(config)
        super().__init__(
            process or new_process(config, metrics=metrics),
            health_port=config.scheduler.health_port,
            setting="scheduler.health_port",
        )
        self._transport = transport_of(config, self.process.metrics, "skep-scheduler")
        self._backend = backend_of(config)
        self._service = make_scheduler(
            self.process, self._transport, self._backend, on_clock=self.process.metrics.show_clock
        )

    @property
    def service(self) -> SchedulerService:
        """The scheduler itself."""
        return self._service

    async def _open(self) -> None:
        self._on_stop("messaging", self._transport.close)
        await self._wait_for("messaging", self._transport.open)
        self._on_stop("synchronizer", self._backend.close)
        await self._wait_for("synchronizer", self._backend.open)
        self._on_stop("scheduler", self._service.stop)
        await self._wait_for("synchronizer", self._service.start)

    def _troubles(self) -> list[str]:
        """It is ready once it has read all, and follows the changes."""
        found = [] if self._transport.connected else ["messaging: there is no connection"]
        trouble = self._service.trouble
        return [*found, f"synchronizer: {trouble}"] if trouble is not None else found
