"""`skep serve scheduler` as a child process: started, asked whether it is ready, killed, stopped in good order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx
from msgspec.structs import replace

from skep.config.scheduler import SchedulerSettings
from skep.config.sections import Config, SynchronizerSettings, TransportSettings
from skep.contracts.eventually import PATIENCE, eventually
from skep.processes.ports import free_port


def shared(config: Config, url: str, *, embedded: bool = True) -> Config:
    """Return the configuration with NATS as transport and as backend."""
    return replace(
        config,
        transport=TransportSettings(kind="nats", url=url),
        synchronizer=SynchronizerSettings(backend="nats", url=url, expected_hosts=100),
        scheduler=SchedulerSettings(embedded=embedded),
    )


class SchedulerProcess:
    """One scheduler with the transport and the synchronizer of `config`; its log is `log`."""

    def __init__(self, folder: Path, config: Config, *, name: str = "scheduler") -> None:
        self.log = folder / f"{name}.log"
        self.name = name
        self.port = free_port()
        """Of its health and metrics."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
        settings = {
            "TRANSPORT__KIND": config.transport.kind,
            "TRANSPORT__URL": config.transport.url,
            "TRANSPORT__PREFIX": config.transport.prefix,
            "SYNCHRONIZER__BACKEND": config.synchronizer.backend,
            "SYNCHRONIZER__URL": config.synchronizer.url,
            "SYNCHRONIZER__NAME": config.synchronizer.name,
            "SYNCHRONIZER__EXPECTED_HOSTS": str(config.synchronizer.expected_hosts),
            "LOG__FORMAT": "json",
        }
        self._environment = kept | {f"SKEP_{key}": value for key, value in settings.items()}
        self._child: asyncio.subprocess.Process | None = None

    def listen_on(self, port: int) -> None:
        """Give the next child this port for its health."""
        self.port = port

    @property
    def running(self) -> bool:
        """Whether there is a child that has not ended."""
        return self._child is not None and self._child.returncode is None

    async def launch(self) -> None:
        """Start the child and wait for nothing."""
        environment = self._environment | {"SKEP_SCHEDULER__HEALTH_PORT": str(self.port)}
        with self.log.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "skep.cli", "serve", "scheduler", env=environment, stdout=log, stderr=log
            )

    async def start(self) -> None:
        """Start the child and wait until it takes messages."""
        await self.launch()
        await self.ready()

    async def ready(self) -> None:
        """Wait until the child says that it is ready."""

        async def probe() -> bool:
            if not self.running:
                raise AssertionError(f"{self.name} ended:\n{self.tail()}")
            return not await self.reasons()

        await eventually(probe, f"{self.name} is ready")

    async def reasons(self) -> list[str]:
        """Return why the child is not ready; that nobody answers is one."""
        try:
            return list((await self._get("/readyz")).json()["reasons"])
        except httpx.TransportError as error:
            return [f"no answer: {type(error).__name__}"]

    async def placed(self) -> float:
        """Return how many requests the child placed."""
        lines = (await self._get("/metrics")).text.splitlines()
        start = 'skep_placement_decisions_total{outcome="placed"} '
        return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))

    async def clock_ahead(self, database: str) -> float | None:
        """Return by how much the child says that its clock is ahead of a database's; None where it says nothing."""
        lines = (await self._get("/metrics")).text.splitlines()
        start = f'skep_clock_ahead_seconds{{database="{database}"}} '
        return next((float(line.removeprefix(start)) for line in lines if line.startswith(start)), None)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child."""
        assert self._child is not None
        self._child.send_signal(number)

    async def kill(self) -> None:
        """End the child as a power failure does; nothing happens when none runs."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
            await self._child.wait()

    async def stop(self) -> int:
        """End the child in good order and return its status."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for the end of the child and return its status."""
        assert self._child is not None
        return await asyncio.wait_for(self._child.wait(), PATIENCE)

    def tail(self, lines: int = 20) -> str:
        """Return the end of the child's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    async def _get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE) as client:
            return await client.get(f"http://127.0.0.1:{self.port}{path}")
