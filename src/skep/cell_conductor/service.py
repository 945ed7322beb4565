"""The cell conductor as a running service: its lease, its loops, the messages of its cell."""

from __future__ import annotations

import asyncio
import dataclasses

from skep.cell_conductor.beats import Beats
from skep.cell_conductor.builds import Builds
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.deadlines import Deadlines
from skep.cell_conductor.deletes import Deletes
from skep.cell_conductor.fences import Fences
from skep.cell_conductor.guest_questions import GuestQuestions
from skep.cell_conductor.guests import Guests
from skep.cell_conductor.hints import HintedLoops
from skep.cell_conductor.host_networks import CellNetworks
from skep.cell_conductor.hosts import Hosts
from skep.cell_conductor.moves import Moves
from skep.cell_conductor.offloads import Offloads
from skep.cell_conductor.orders import SealingTransport
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.reclaims import Reclaims
from skep.cell_conductor.recovery import Recovery
from skep.cell_conductor.refusals import RefusedAgents
from skep.cell_conductor.reschedule import Reschedules
from skep.cell_conductor.sessions import Sessions
from skep.cell_conductor.speakers import Speakers
from skep.cell_conductor.tasks import Tasks
from skep.database.cell import between_cells, recovery
from skep.database.cell.tables import leases, time
from skep.database.clocks import DatabaseClock
from skep.domain.context import RequestContext
from skep.messages.to_cell_conductor import (
    AnswerAboutGuest,
    AttemptFailed,
    Built,
    Destroyed,
    GuestsFound,
    Heartbeat,
    InstancesChanged,
    MayAct,
    MayBuild,
    MayMove,
    MayResume,
    MaySpawn,
    MoveStepDone,
    QuestionsAsked,
    ReadContents,
    ReadNetworks,
    RegisterAgent,
    Registration,
    ReportGuests,
    ReportHost,
    ReportProgress,
    RequestConnections,
    RequestDisks,
    RequestTicket,
    SignedReport,
    TaskDone,
)
from skep.reconciler.beginnings import until_done
from skep.reconciler.lease import Lease, Time
from skep.reconciler.loop import Loop
from skep.transport.base import Handlers, Subscription, cell_conductor


class CellConductor:
    """Drives builds, deletes and tasks inside one cell. Any number may run; rows and leases keep them apart."""

    def __init__(self, parts: Parts) -> None:
        self.clock = DatabaseClock(parts.clock)
        self._time = Time(time, parts.cell.uuid, recovery.begin_if_lost)
        parts = dataclasses.replace(parts, clock=self.clock, time=self._time)
        sessions, refusals = Sessions(parts), RefusedAgents(parts.cell.name)
        parts = dataclasses.replace(parts, transport=SealingTransport(parts, sessions, refusals))
        self._parts = parts
        self._recovery = Recovery(parts, self._time)
        self._recovery.on_change = self._on_recovered
        self._releases = Releases(parts)
        self._builds = Builds(parts, self._releases)
        self._reschedules = Reschedules(parts, self._builds, self._releases)
        self._deadlines = Deadlines(parts, self._builds, self._reschedules)
        self._deletes = Deletes(parts, self._builds, self._releases)
        self._reclaims = Reclaims(parts, self._deletes)
        self._moves = Moves(parts, self._builds, self._releases, self._deletes)
        self._tasks = Tasks(parts)
        self._offloads = Offloads(parts, self._deletes)
        self._tasks.on_shelved = self._builds.on_undone = self._offloads.loop.nudge
        self._guests = Guests(parts, self._tasks)
        self._questions = GuestQuestions(parts)
        self._hosts = Hosts(parts, sessions, refusals, self._time)
        self._hosts.on_seen = self._recovery.saw
        self._speakers = Speakers(parts, sessions, refusals, self._hosts.keys, self._hosts.check_current)
        self._fences = Fences(parts, self._hosts, self._builds, self._releases, self._reschedules, self._deletes)
        self._recovery.all_heard = self._hosts.knows_who_lives
        self._builds.on_evidence = self._recovery.evidence
        self._beats = Beats(parts, self._hosts, self._time)
        self._beats.on_seen = self._recovery.saw
        self._beats.on_asserted = self._on_asserted
        self._hints = HintedLoops(
            {
                "builds": self._builds.dispatching,
                "unshelves": self._reschedules.choosing,
                "actions": self._tasks.telling,
                "deletes": self._deletes.undoing,
                "offloads": self._offloads.loop,
                "choices": self._moves.choosing,
                "steps": self._moves.ordering,
                "fences": self._fences.loop,
            },
            beside=(self._recovery.loop,),
        )
        self._lease = Lease(
            parts.database,
            leases,
            parts.owner,
            "cell_conductor",
            self.clock,
            seconds=parts.settings.lease_seconds,
            host=parts.runs_on,
            on_clock=parts.on_clock,
            time=self._time,
            understands=between_cells.UNDERSTANDS,
        )
        self._subscription: Subscription | None = None
        self._acting: asyncio.Task[None] | None = None

    @property
    def _loops(self) -> tuple[Loop, ...]:
        """Return the loops that act on no build and no guest."""
        hosts = (self._hosts.reporting, self._hosts.watching)
        return (*hosts, self._beats.loop, self._releases.loop, self._recovery.loop)

    @property
    def _acts(self) -> tuple[Loop, ...]:
        return (
            self._builds.dispatching,
            self._reschedules.choosing,
            self._deadlines.loop,
            self._deletes.undoing,
            self._reclaims.loop,
            self._moves.choosing,
            self._moves.ordering,
            self._tasks.telling,
            self._offloads.loop,
            self._questions.telling,
            self._fences.loop,
        )

    async def start(self) -> None:
        """Take the lease, listen to the cell, look at the whole once."""
        await self._lease.start()
        looked = self._recovery.once_looked
        of_youngest: Handlers = {
            MayBuild: looked(self._builds.may_build),
            MaySpawn: looked(self._builds.may_spawn),
            ReadContents: self._builds.contents,
            RequestTicket: self._builds.ticket,
            RequestConnections: self._builds.connections,
            Built: looked(self._builds.built),
            AttemptFailed: looked(self._builds.failed),
            ReportProgress: self._deadlines.progress,
            Destroyed: self._deletes.destroyed,
            MayAct: self._tasks.may_act,
            TaskDone: self._tasks.done,
            MayResume: looked(self._guests.may_resume),
            MayMove: looked(self._moves.may_move),
            MoveStepDone: looked(self._moves.done),
            ReportGuests: self._guests.reported,
            GuestsFound: self._recovery.found,
            AnswerAboutGuest: self._questions.answered,
            ReadNetworks: CellNetworks(self._parts).read,
            RequestDisks: looked(self._questions.disks),
        }
        of_any_run: Handlers = {
            ReportHost: self._hosts.report,
            SignedReport: self._hosts.signed_report,
            Heartbeat: self._heartbeat,
        }
        from_agents = self._speakers.hearing(of_youngest, of_any_run)
        self._subscription = await self._parts.transport.serve(
            cell_conductor(self._parts.cell.uuid),
            {
                InstancesChanged: self._on_changed,
                QuestionsAsked: self._questions.asked,
                RegisterAgent: self._register,
                **from_agents,
            },
        )
        for loop in self._loops:
            loop.start()
        self._acting = asyncio.create_task(
            until_done(f"acts of {self._parts.cell.name}", self._act), name=f"acts of {self._parts.cell.name}"
        )

    async def _act(self) -> None:
        """Begin to act on builds and guests, once it is known whether the database went back before the start."""
        await self._recovery.looked_at()
        for loop in self._acts:
            loop.start()

    async def stop(self) -> None:
        """Finish the passes under way, stop, and let others take over at once."""
        if self._acting is not None:
            self._acting.cancel()
            await asyncio.wait({self._acting})
        self._recovery.stop_waiting()
        if self._subscription is not None:
            await self._subscription.close()
        for loop in (*self._loops, *self._acts):
            await loop.stop()
        await self._lease.stop()

    def beat_now(self) -> None:
        """Have schedulers know at once which hosts live, not only with the beat of the next second."""
        self._beats.loop.nudge()

    def troubles(self) -> list[str]:
        """Return what keeps the cell from being served although this process runs, a sentence each."""
        return self._beats.troubles()

    async def _on_changed(self, message: InstancesChanged, _context: RequestContext | None) -> None:
        for loop in self._hints.concerned(message):
            loop.nudge()

    async def _register(self, message: RegisterAgent, context: RequestContext | None) -> Registration:
        registration = await self._hosts.register(message, context)
        await self._recovery.registered(message.identity)
        await self._fences.heard(message.identity.node)
        return registration

    async def _heartbeat(self, message: Heartbeat, context: RequestContext | None) -> None:
        await self._recovery.saw(message.seen, f"the agent of node {message.node}")
        await self._hosts.heartbeat(message, context)
        await self._fences.heard(message.node)

    def _on_recovered(self) -> None:
        self._builds.dispatching.nudge()
        self._reschedules.choosing.nudge()
        self._deletes.undoing.nudge()
        self._moves.nudge()
        self._tasks.telling.nudge()

    def _on_asserted(self, epoch: str | None) -> None:
        newly = epoch is not None and not self._builds.asserted
        self._builds.asserted, self._builds.epoch = epoch is not None, epoch
        if newly:
            self._builds.dispatching.nudge()
            self._reschedules.choosing.nudge()
