"""Makes the agent of a fake host with its driver: inside the whole cloud, or alone."""

from __future__ import annotations

from pathlib import Path

from skep.compute.agent import Agent
from skep.compute.drivers.fake import FakeDriver
from skep.compute.flusher import Flusher
from skep.domain.cells import Cell
from skep.processes.mapping import compute_settings, fake_settings
from skep.processes.process import Process
from skep.transport.base import Transport


class FakeHost:
    """The agent of one fake host, and its driver. `directory` holds its identity, its journal and its guests."""

    def __init__(
        self, process: Process, cell: Cell, name: str, directory: Path, transport: Transport, flusher: Flusher
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.driver = FakeDriver(directory, name, fake_settings(process.config.compute.fake), process.clock)
        self.agent = Agent(
            compute_settings(process.config),
            cell.uuid,
            name,
            directory,
            self.driver,
            transport,
            process.clock,
            process.steps,
            flusher,
            cell_name=cell.name,
        )

    async def start(self) -> None:
        """Start the agent. Raises Misconfigured when the directory is in use or damaged."""
        try:
            await self.agent.start()
        except BaseException:
            self.driver.close()
            raise

    async def stop(self) -> None:
        """Stop the agent; the guests stay."""
        try:
            await self.agent.stop()
        finally:
            self.driver.close()
