"""The cell conductor as a running service: its lease, its loops, the messages of its cell."""

from __future__ import annotations

from skep.cell_conductor.beats import Beats
from skep.cell_conductor.builds import Builds
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.deadlines import Deadlines
from skep.cell_conductor.deletes import Deletes
from skep.cell_conductor.fences import Fences
from skep.cell_conductor.hosts import Hosts
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.reschedule import Reschedules
from skep.cell_conductor.tasks import Tasks
from skep.database.cell.tables import leases
from skep.domain.context import RequestContext
from skep.messages.to_cell_conductor import (
    BuildInstances,
    Built,
    Destroyed,
    Heartbeat,
    InstancesChanged,
    MayBuild,
    MaySpawn,
    RegisterAgent,
    Registration,
    ReportHost,
    ReportProgress,
    SignedReport,
    TaskDone,
)
from skep.reconciler.lease import Lease
from skep.reconciler.loop import Loop
from skep.transport.base import Subscription, cell_conductor


class CellConductor:
    """Drives builds, deletes and tasks inside one cell. Any number may run; rows and leases keep them apart."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._releases = Releases(parts)
        self._builds = Builds(parts, self._releases)
        self._reschedules = Reschedules(parts, self._builds, self._releases)
        self._deadlines = Deadlines(parts, self._builds, self._reschedules)
        self._deletes = Deletes(parts, self._builds, self._releases)
        self._tasks = Tasks(parts)
        self._hosts = Hosts(parts)
        self._fences = Fences(parts, self._releases, self._reschedules.choosing, self._deletes.undoing)
        self._beats = Beats(parts, self._hosts)
        self._beats.on_asserted = self._on_asserted
        self._lease = Lease(
            parts.database,
            leases,
            parts.owner,
            "cell_conductor",
            parts.clock,
            seconds=parts.settings.lease_seconds,
            host=parts.runs_on,
        )
        self._subscription: Subscription | None = None

    @property
    def _loops(self) -> tuple[Loop, ...]:
        return (
            self._hosts.reporting,
            self._beats.loop,
            self._builds.dispatching,
            self._reschedules.choosing,
            self._deadlines.loop,
            self._deletes.undoing,
            self._tasks.telling,
            self._fences.loop,
            self._releases.loop,
        )

    async def start(self) -> None:
        """Take the lease, listen to the cell, look at the whole once."""
        await self._lease.start()
        current = self._hosts.from_current
        self._subscription = await self._parts.transport.serve(
            cell_conductor(self._parts.cell.uuid),
            {
                InstancesChanged: self._on_changed,
                MayBuild: current(self._builds.may_build),
                MaySpawn: current(self._builds.may_spawn),
                Built: current(self._builds.built),
                BuildInstances: current(self._builds.failed),
                ReportProgress: self._deadlines.progress,
                Destroyed: current(self._deletes.destroyed),
                TaskDone: current(self._tasks.done),
                RegisterAgent: self._register,
                ReportHost: self._hosts.report,
                SignedReport: self._hosts.signed_report,
                Heartbeat: self._heartbeat,
            },
        )
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Finish the passes under way, stop, and let others take over at once."""
        if self._subscription is not None:
            await self._subscription.close()
        for loop in self._loops:
            await loop.stop()
        await self._lease.stop()

    def troubles(self) -> list[str]:
        """Return what keeps the cell from being served although this process runs, a sentence each."""
        return self._beats.troubles()

    async def _on_changed(self, _message: InstancesChanged, _context: RequestContext | None) -> None:
        self._builds.dispatching.nudge()
        self._deletes.undoing.nudge()
        self._tasks.telling.nudge()
        self._fences.loop.nudge()

    async def _register(self, message: RegisterAgent, context: RequestContext | None) -> Registration:
        registration = await self._hosts.register(message, context)
        await self._fences.heard(message.identity.node)
        return registration

    async def _heartbeat(self, message: Heartbeat, context: RequestContext | None) -> None:
        await self._hosts.heartbeat(message, context)
        await self._fences.heard(message.node)

    def _on_asserted(self, epoch: str | None) -> None:
        newly = epoch is not None and not self._builds.asserted
        self._builds.asserted, self._builds.epoch = epoch is not None, epoch
        if newly:
            self._builds.dispatching.nudge()
            self._reschedules.choosing.nudge()
