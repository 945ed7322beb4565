"""Numbers that are looked at, not counted: hosts, claims and waiting servers, every few seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from skep.database.api import build_requests
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.errors import SkepError
from skep.domain.hosts import HostState
from skep.domain.ids import CellUuid
from skep.reconciler.loop import Loop
from skep.telemetry.metrics import Metrics
from skep.transport.base import Transport
from skep.transport.host_states import host_states

STATES = ("up", "silent", "unknown", "disabled")


class Gauges:
    """Keeps the gauges of a process, and the backlog that the API asks for before each create."""

    def __init__(self, api: Database, cells: Mapping[CellUuid, Cell], transport: Transport, metrics: Metrics) -> None:
        self.backlog = 0
        """Servers that wait for a cell, as of half a second ago."""
        self._api = api
        self._cells = cells
        self._transport = transport
        self._metrics = metrics
        self._shown: set[str] = set()
        """Names of cells whose gauges there are: those of a cell that is gone, or has another name now, go."""
        self._loops = (
            Loop("backlog", self._count_backlog, every=0.5),
            Loop("host-gauges", self._count_hosts, every=5.0),
        )

    def start(self) -> None:
        """Begin to look."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Stop looking."""
        for loop in self._loops:
            await loop.stop()

    async def _count_backlog(self) -> bool:
        try:
            self.backlog = await self._api.read(build_requests.count)
        except SkepError:
            # A database that cannot be read says so to the next create itself.
            self.backlog = 0
        self._metrics.backlog.set(self.backlog)
        return False

    async def _count_hosts(self) -> bool:
        states = await host_states(self._transport)
        hosts: Counter[tuple[str, str]] = Counter()
        claims: Counter[str] = Counter()
        for host in states:
            known = self._cells.get(host.cell)
            name = known.name if known is not None else str(host.cell)
            hosts[name, _state(host)] += 1
            claims[name] += len(host.claims)
        shown = {cell.name for cell in self._cells.values() if not cell.is_cell0}
        for name in shown:
            self._metrics.claims.labels(name).set(claims[name])
            for state in STATES:
                self._metrics.hosts.labels(name, state).set(hosts[name, state])
        for name in self._shown - shown:
            self._metrics.claims.remove(name)
            for state in STATES:
                self._metrics.hosts.remove(name, state)
        self._shown = shown
        return False


def _state(host: HostState) -> str:
    if host.disabled:
        return "disabled"
    if host.up:
        return "up"
    return "silent" if host.silent or host.forced_down else "unknown"
