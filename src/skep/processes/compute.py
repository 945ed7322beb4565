"""The agent of one host in a process of its own: `skep serve compute`. It opens no database."""

from __future__ import annotations

from pathlib import Path

from skep.compute.drivers.registry import kept_rights
from skep.compute.flusher import Flusher
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid, is_uuid
from skep.processes import rights
from skep.processes.arenas import keep_few_arenas
from skep.processes.directory import StateDirectory
from skep.processes.host_images import HostImages
from skep.processes.hosts import DrivenHost
from skep.processes.process import Process
from skep.processes.role import Role
from skep.processes.wiring import check_apart, transport_in_cell


class ComputeProcess(Role):
    """Reaches its cell's messaging and its host's directory, nothing else."""

    name = "compute"

    def __init__(self, process: Process, host: str = "") -> None:
        """Take the name of the host, if the configuration's is not meant.

        Raises Misconfigured when the configuration does not say which cell the host belongs to, or when no other
        process could reach it.
        """
        check_apart(process.config)
        section = process.config.compute
        super().__init__(process, health_port=section.health_port, setting="compute.health_port")
        if not is_uuid(section.cell):
            raise Misconfigured("compute.cell: the UUID of the cell of this host is missing (`skep cell show NAME`)")
        self.cell = Cell(uuid=CellUuid(section.cell), name=section.cell_name or section.cell)
        self.host = host or section.host or process.host
        self._transport = transport_in_cell(self.config, process.metrics, f"skep-compute-{self.host}", self.cell.name)
        self._state = StateDirectory(Path(self.config.state.directory))
        self._flusher = Flusher()
        self._images: HostImages | None = None
        self._made: DrivenHost | None = None

    @property
    def directory(self) -> Path:
        """Where the host's identity, journal and guests are."""
        return self._state.host(self.cell.name, self.host)

    async def _open(self) -> None:
        keep_few_arenas()
        self._give_up_rights()
        self._state.make()
        self._on_stop("messaging", self._transport.close)
        await self._wait_for("messaging", self._transport.open)
        self._on_stop("journal", self._close_flusher)
        self._images = images = HostImages(self.config, self.directory / "images", self.process.clock)
        await images.load()
        self._on_stop("images", images.close)
        self._on_stop("agent", self._stop_host)
        await self._wait_for("driver", self._start_host)

    def _give_up_rights(self) -> None:
        """Give up what root may do beyond what the driver needs, before there are threads that would keep it."""
        kept = kept_rights(self.config.compute)
        if kept is not None and rights.is_root():
            rights.keep_only(kept)

    async def _start_host(self) -> None:
        """Start an agent with a driver of its own: those of a start that failed are closed for good."""
        made = DrivenHost(
            self.process,
            self.cell,
            self.host,
            self.directory,
            self._transport,
            self._flusher,
            key=self._state.secrets_key,
            images=self._images,
            exchange=Path(shared) if (shared := self.config.compute.exchange_directory) else None,
            on_clock=self.process.metrics.clock_ahead.labels(self.cell.name).set,
        )
        await made.start()
        self._made = made

    async def _stop_host(self) -> None:
        if self._made is not None:
            await self._made.stop()

    async def _close_flusher(self) -> None:
        self._flusher.close()

    def _troubles(self) -> list[str]:
        found = [] if self._transport.connected else ["messaging: there is no connection"]
        if self._made is not None and self._made.agent.fenced:
            found.append("another agent with this identity has registered: this one has stopped")
        elif self._made is not None and not self._made.agent.registered:
            found.append("no conductor of the cell has registered this host yet")
        return found
