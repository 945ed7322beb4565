"""The agent on a host: takes the cell conductor's messages and keeps the host's promises across restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import structlog

from skep.compute import former_driver
from skep.compute.actions import GuestActions
from skep.compute.arrivals import Arrivals
from skep.compute.boots import Boots, boot_id
from skep.compute.builds import Builds
from skep.compute.calls import DriverCalls
from skep.compute.console_lines import ConsoleLines
from skep.compute.conversation import Conversation
from skep.compute.deletes import Deletes
from skep.compute.disk_doors import DiskDoors
from skep.compute.disk_fetching import DiskFetching
from skep.compute.disk_wire import Pace, RunProof
from skep.compute.drivers.base import Driver, DriverError, Guest, HostFacts
from skep.compute.drivers.capabilities import able
from skep.compute.drivers.contents import Opener, keeps_closed
from skep.compute.exchange import Exchange
from skep.compute.flusher import Flusher
from skep.compute.found import GuestTelling
from skep.compute.guest_questions import GuestQuestions
from skep.compute.guests import Guests
from skep.compute.host import Host
from skep.compute.identity import HostIdentity, begin_run, keep_cell_key, load_or_mint, take_next_key
from skep.compute.image_cache import ImageCache
from skep.compute.images import formats_of
from skep.compute.inventory import idle_usage
from skep.compute.journal import Journal
from skep.compute.ledger import Ledger
from skep.compute.measuring import Told, measure
from skep.compute.moves import Moves
from skep.compute.networks import networks_of
from skep.compute.outcomes import Outcomes
from skep.compute.own_clock import OwnClock
from skep.compute.progress import Progress
from skep.compute.reports import Reports
from skep.compute.restart import Restart
from skep.compute.settings import ComputeSettings
from skep.compute.snapshots import Snapshots
from skep.compute.steps import Steps, UnwatchedSteps
from skep.compute.upcalls import Upcalls
from skep.compute.work import AgentWork
from skep.domain.capabilities import Capability
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import Unavailable
from skep.domain.ids import CellUuid, Incarnation, InstanceUuid, NodeUuid, new_uuid
from skep.domain.measures import GuestMeasures
from skep.messages.to_compute import (
    AskAboutGuest,
    BuildAndRunInstance,
    ChangePower,
    MoveStep,
    ReportHostNow,
    RunAction,
    TellGuests,
    TerminateInstance,
    UndoAttempt,
)
from skep.neighbours.vendor_data import VendorDataTargets
from skep.transport.base import Handlers, Subscription, Transport, compute

log = structlog.get_logger("skep.compute")

JOURNAL_FILE = "journal.jsonl"
ARRIVALS = "arrivals"
"""The directory of disks that come from other agents, in that of the host."""


def _ignore(_ahead: float) -> None:
    """Tell nobody."""


def _ignore_calls(_call: str, _number: int) -> None:
    """Tell nobody."""


def _ignore_measures(_measures: Mapping[InstanceUuid, GuestMeasures]) -> None:
    """Tell nobody."""


class Agent:
    """One run of the agent of one host.

    `directory` holds what must survive: the node's identity and the journal. Two agents must not share it. Agents of
    one process should share a `flusher`, so that their journals are synced together.
    """

    def __init__(
        self,
        settings: ComputeSettings,
        cell: CellUuid,
        host: str,
        directory: Path,
        driver: Driver,
        transport: Transport,
        clock: Clock,
        steps: Steps | None = None,
        flusher: Flusher | None = None,
        *,
        cell_name: str = "",
        open_contents: Opener = keeps_closed,
        images: ImageCache | None = None,
        exchange: Exchange | None = None,
        snapshots: Snapshots | None = None,
        vendors: VendorDataTargets | None = None,
        boot: str | None = None,
        on_clock: Callable[[float], None] = _ignore,
        on_hung: Callable[[str, int], None] = _ignore_calls,
        on_measured: Told = _ignore_measures,
    ) -> None:
        """`images` gives the bytes of images to a driver that makes disks from them; whoever gives it closes it.
        `exchange` is where the disks of moves go from host to host; None: they go from agent to agent, if the settings
        name an address for that.

        `snapshots` stores disks as images. `vendors` say what config drives hold besides; whoever gives it closes it.

        `boot` names the boot of the machine that the agent runs after; None: the machine is asked.

        `on_clock` is told by how many seconds the host's clock is ahead of that of the cell's database.

        `on_hung` is told how many calls of the driver of a kind hang, `on_measured` what the guests take.
        """
        self.settings = settings
        self.cell = cell
        self.cell_name = cell_name or str(cell)
        """What log lines call the cell."""
        self.name = host
        self.fenced = False
        """A younger agent with the same identity has registered, and this one has stopped or is about to."""
        self._directory = directory
        self._driver = driver
        self._open_contents = open_contents
        self._images = images
        self._exchange = exchange
        self._snapshots = snapshots
        self._vendors = vendors
        self._boot = boot_id() if boot is None else boot
        self._on_clock = on_clock
        self._on_hung = on_hung
        self._on_measured = on_measured
        self._transport = transport
        self._clock = clock
        self._steps: Steps = steps or UnwatchedSteps()
        self._flusher = flusher or Flusher()
        self._flusher_is_shared = flusher is not None
        self._journal = Journal(directory / JOURNAL_FILE, self._flusher, remembered=settings.remembered_instances)
        self._process = Incarnation(new_uuid())
        self._work = AgentWork()
        self._host: Host | None = None
        self._lines: ConsoleLines | None = None
        self._doors: DiskDoors | None = None
        self._subscription: Subscription | None = None
        self._stopped = asyncio.Event()
        self._stop: asyncio.Task[None] | None = None

    @property
    def node(self) -> NodeUuid:
        """The UUID of the host's node; known once the agent has started."""
        return self._started.node

    @property
    def registered(self) -> bool:
        """Whether the cell conductor knows this agent."""
        reports = self._started.reports
        return isinstance(reports, Reports) and reports.incarnation is not None

    async def start(self) -> None:
        """Read journal and guests, take up what was interrupted, serve. Registering goes on in the background.

        Raises Misconfigured when the directory is in use or damaged, or has servers of another driver; Unavailable
        when the driver does not answer.
        """
        known = await self._flusher.run(partial(load_or_mint, self._directory, self.name))
        await self._flusher.run(self._journal.open)
        try:
            facts, guests = await self._ask_driver()
            driver = self.settings.driver
            former_driver.check(known, driver, self._journal.attempts, guests, self._directory)
            identity = await self._flusher.run(partial(begin_run, self._directory, self.name, driver))
            await self._begin(identity, facts, guests)
        except BaseException:
            await self._work.stop(0)
            self._journal.close()
            self._close_flusher()
            raise

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Take no more messages and end: builds and messages that wait go on at the next start.

        What the hypervisor has in hand may finish for `drain_seconds` (default: as set); 0 interrupts it, as the
        death of the process would.
        """
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            await subscription.close()
        if self._lines is not None:
            await self._lines.close()
        if self._doors is not None:
            await self._doors.close()
        await self._work.stop(self.settings.drain_seconds if drain_seconds is None else drain_seconds)
        await self._journal.compacted()
        await self._flusher.run(self._journal.close)
        self._close_flusher()
        self._stopped.set()

    def _close_flusher(self) -> None:
        if not self._flusher_is_shared:
            self._flusher.close()

    async def stopped(self) -> None:
        """Wait until the agent has stopped, by `stop` or because it was fenced."""
        await self._stopped.wait()

    @property
    def _started(self) -> Host:
        if self._host is None:
            raise RuntimeError(f"the agent of {self.name} has not started")
        return self._host

    async def _ask_driver(self) -> tuple[HostFacts, tuple[Guest, ...]]:
        limits = self.settings.limits
        try:
            async with asyncio.timeout(limits.facts):
                facts = await self._driver.facts()
            async with asyncio.timeout(limits.guests):
                guests = await self._driver.guests()
        except DriverError as error:
            raise Unavailable(f"the driver of host {self.name} does not answer: {error.message}") from error
        except TimeoutError as error:
            raise Unavailable(
                f"the driver of host {self.name} does not answer within {limits.facts:g} s (facts) and "
                f"{limits.guests:g} s (guests)"
            ) from error
        return facts, guests

    async def _begin(self, identity: HostIdentity, facts: HostFacts, guests: tuple[Guest, ...]) -> None:
        capabilities = able(
            self._driver,
            stores_images=self._snapshots is not None,
            exchanges=self._exchange is not None,
            wired=bool(self.settings.move_address),
        )
        usage = idle_usage(self.name, facts, self.settings, self._clock.now(), capabilities)
        own_clock = OwnClock(self._clock, self.name, self.cell_name, self._on_clock)
        reports = Reports(self._process, usage, self._fence, own_clock)
        conversation = Conversation(
            self._transport,
            self.cell,
            identity,
            self._process,
            self._keep_cell_key,
            take_next=self._take_next_key,
            require_proof=self.settings.require_signatures,
        )
        conversation.capabilities = tuple(sorted(capabilities))
        conversation.on_greeted, conversation.on_unknown = reports.beat_now, reports.register_anew
        ledger = Ledger(usage.inventory)
        ledger.set_inside(usage)
        calls = DriverCalls(
            self._driver, self.name, self.settings.limits, self.settings.max_hung_calls, self._work, self._clock
        )
        calls.on_hung, calls.on_change = self._on_hung, reports.changed
        upcalls = Upcalls(conversation, self.name, self.settings, self._work, self._clock)
        arrivals = Arrivals(self._directory / ARRIVALS)
        await self._flusher.run(partial(arrivals.sweep, self._journal.attempts.records))
        proof = RunProof(self.name) if Capability.MOVE_BY_WIRE in capabilities else None
        host = self._host = Host(
            name=self.name,
            node=identity.node,
            cell=self.cell,
            cell_name=self.cell_name,
            settings=self.settings,
            clock=self._clock,
            driver=self._driver,
            calls=calls,
            steps=self._steps,
            journal=self._journal,
            ledger=ledger,
            upcalls=upcalls,
            work=self._work,
            reports=reports,
            open_contents=self._open_contents,
            images=self._images,
            image_formats=formats_of(facts.traits),
            exchange=self._exchange,
            fetching=None if proof is None else DiskFetching(upcalls, proof, arrivals),
            snapshots=self._snapshots,
            vendors=self._vendors,
            capabilities=capabilities,
            boot=self._boot,
        )
        host.upcalls.on_stale = self._fence
        host.upcalls.saw(self._journal.attempts.latest)
        host.networks = networks = networks_of(host, self._driver)
        outcomes = Outcomes(host)
        builds = Builds(host, outcomes)
        deletes = Deletes(host, builds, outcomes)
        actions = GuestActions(host, outcomes)
        moves = Moves(host, outcomes)
        self._lines = ConsoleLines(host, self.settings.console_address)
        if proof is not None:
            pace = Pace(self.settings.move_mib_per_second)
            self._doors = DiskDoors(host, proof, self.settings.move_address, pace)
        questions = GuestQuestions(host, self._lines, self._doors)
        restart = Restart(host, builds, deletes, outcomes, guests)
        restart.count()
        restart.go_on()
        boots = Boots(host, self._directory)
        guests_seen = Guests(host, actions, moves, boots)
        reports.on_guests_taken = guests_seen.changed
        handlers = conversation.taking(
            _handlers(builds, deletes, actions, moves, reports, guests_seen, GuestTelling(host), questions)
        )
        self._subscription = await self._transport.serve(compute(self.cell, self.name), handlers)
        self._work.start(reports.run(host), name=f"reports {self.name}")
        if networks is not None:
            self._work.start(networks.run(), name=f"networks {self.name}")
        self._work.start(guests_seen.run(), name=f"guests {self.name}")
        self._work.start(measure(host, self._on_measured), name=f"measures {self.name}")
        self._work.start(Progress(host, builds, actions, moves).run(), name=f"progress {self.name}")

    async def _keep_cell_key(self, key: bytes) -> None:
        await self._flusher.run(partial(keep_cell_key, self._directory, key))

    async def _take_next_key(self, next_seed: bytes) -> None:
        await self._flusher.run(partial(take_next_key, self._directory, next_seed))

    def _fence(self) -> None:
        if not self.fenced:
            self.fenced = True
            # From now on no story takes another step, whatever the answer to what it asked.
            self._work.stopping = True
            log.critical(
                "another agent with this identity has registered after this one: this agent stops",
                host=self.name,
                node=self._started.node,
            )
            # Not one of the agent's own tasks: it has to outlive them.
            self._stop = asyncio.create_task(self.stop(), name=f"fence {self.name}")


def _handlers(
    builds: Builds,
    deletes: Deletes,
    actions: GuestActions,
    moves: Moves,
    reports: Reports,
    guests: Guests,
    found: GuestTelling,
    questions: GuestQuestions,
) -> Handlers:
    """Return what an agent does with each message: it notes the story and begins it, so no handler waits."""

    async def build(message: BuildAndRunInstance, context: RequestContext | None) -> None:  # noqa: ARG001
        builds.take(message)

    async def terminate(message: TerminateInstance, context: RequestContext | None) -> None:  # noqa: ARG001
        moves.stop(message.instance, lambda attempt: attempt <= message.attempt)
        actions.stop(message.instance, lambda attempt: attempt <= message.attempt)
        deletes.take(message)

    async def undo(message: UndoAttempt, context: RequestContext | None) -> None:  # noqa: ARG001
        moves.stop(message.instance, lambda attempt: attempt == message.attempt)
        actions.stop(message.instance, lambda attempt: attempt == message.attempt)
        deletes.take_one(message)

    async def change_power(message: ChangePower, context: RequestContext | None) -> None:  # noqa: ARG001
        actions.take_power(message)

    async def run_action(message: RunAction, context: RequestContext | None) -> None:  # noqa: ARG001
        actions.take(message)

    async def move(message: MoveStep, context: RequestContext | None) -> None:  # noqa: ARG001
        moves.take(message)

    async def report(message: ReportHostNow, context: RequestContext | None) -> None:  # noqa: ARG001
        reports.report_in_full()
        guests.changed()

    async def tell_guests(message: TellGuests, context: RequestContext | None) -> None:  # noqa: ARG001
        found.take(message)

    async def ask(message: AskAboutGuest, context: RequestContext | None) -> None:
        questions.take(message, context)

    return {
        AskAboutGuest: ask,
        BuildAndRunInstance: build,
        TerminateInstance: terminate,
        UndoAttempt: undo,
        ChangePower: change_power,
        RunAction: run_action,
        MoveStep: move,
        ReportHostNow: report,
        TellGuests: tell_guests,
    }
