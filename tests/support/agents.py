"""A stage for one agent: a transport, a cell conductor that does as it is told, a directory that outlives the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from skep.compute.agent import JOURNAL_FILE, Agent
from skep.compute.drivers.contents import Opener, keeps_closed
from skep.compute.drivers.fake import GUESTS_FILE, FakeDriver, FakeSettings
from skep.compute.drivers.guest_log import GuestEvent, read_events
from skep.compute.exchange import Exchange
from skep.compute.image_cache import ImageCache
from skep.compute.settings import ComputeSettings
from skep.compute.snapshots import Snapshots
from skep.compute.steps import StepRun
from skep.contracts.eventually import PATIENCE
from skep.domain.claims import ClaimKey
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import StaleAgent, Unavailable
from skep.domain.flavors import Flavor
from skep.domain.host_networks import HostNetworks, packed
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, ProjectId, RequestId, UserId
from skep.domain.images import Image
from skep.domain.instances import Instance, Task
from skep.domain.resources import Resources
from skep.domain.sessions import connections_label, contents_label, seal_to_run
from skep.domain.vifs import Vif
from skep.domain.volumes import ConnectedVolume, ConnectedVolumes, ServerVolume
from skep.messages.base import Done
from skep.messages.to_cell_conductor import (
    ActPermission,
    AnswerAboutGuest,
    AttemptFailed,
    Built,
    Destroyed,
    GuestsFound,
    Heartbeat,
    HostReported,
    MayAct,
    MayBuild,
    MayMove,
    MayResume,
    MaySpawn,
    MoveStepDone,
    NetworksOfHost,
    Permission,
    ReadContents,
    ReadNetworks,
    RegisterAgent,
    Registration,
    ReportGuests,
    ReportHost,
    ReportProgress,
    RequestConnections,
    RequestTicket,
    SealedConnections,
    SealedContents,
    SealedTicket,
    Settled,
    TaskDone,
)
from skep.messages.to_compute import (
    BuildAndRunInstance,
    ChangePower,
    MoveStep,
    RunAction,
    TellGuests,
    TerminateInstance,
    UndoAttempt,
)
from skep.neighbours.images.tickets import ImageTicket
from skep.transport.base import cell_conductor, compute
from skep.transport.memory import MemoryTransport

MessageT = TypeVar("MessageT")

CELL = CellUuid("11111111-1111-4111-8111-111111111111")
HOST = "host-1"
MOVE = "00000000-0000-4000-8000-00000000a001"
CONTEXT = RequestContext(request_id=RequestId("req-1"), project_id=ProjectId("project"), user_id=UserId("user"))
QUICK = ComputeSettings(
    reserved_host_memory_mb=0,
    report_delay_seconds=0.001,
    heartbeat_seconds=0.05,
    progress_seconds=0.01,
    networks_seconds=0.01,
    resend_seconds=0.002,
    call_timeout_seconds=0.5,
)


class ScriptedConductor:
    """Answers an agent's calls with settable values and keeps all that it heard."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.may_build = True
        self.may_spawn = True
        self.may_act = True
        self.active: set[InstanceUuid] = set()
        """Servers that are to run."""
        self.yes_seconds = 60.0
        self.takes_guests = True
        self.current = True
        self.mapped = True
        self.fenced = False
        self.number: int | None = None
        """The incarnation that reports of other ones are told to take."""
        self.stale: set[type[Any]] = set()
        """Calls of these types are refused, for a younger agent has registered."""
        self.understood = True
        """What reports are told: whether the cell knows which orders the agent takes."""
        self.epoch = "epoch-1"
        self.claims: dict[tuple[InstanceUuid, int], ClaimKey] = {}
        self.silent: set[type[Any]] = set()
        """Calls of these types are heard and never answered."""
        self.contents: bytes | None = None
        """Passwords and files of every guest, as JSON; None: nobody above the cell has the key."""
        self.takes_tickets = True
        self.ticket: ImageTicket | None = None
        """What every host gets for every image; None: nothing."""
        self.volumes: tuple[ConnectedVolume, ...] | None = None
        """How every host reaches the volumes of every server; None: it is not told."""
        self.takes_networks = True
        self.networks: HostNetworks | None = None
        """What every host has to bring; None: others bring the networks."""
        self.withheld: set[type[Any]] = set()
        """Calls of these types are answered that nobody can answer now."""
        self._news = asyncio.Event()

    def handlers(self) -> dict[type[Any], Any]:
        """Return what the conductor's address takes."""
        answers: dict[type[Any], Callable[[Any], Any]] = {
            MayBuild: lambda _: Permission(granted=self.may_build),
            MaySpawn: lambda _: Permission(granted=self.may_spawn),
            Built: lambda _: Settled(current=self.current),
            AttemptFailed: lambda _: Settled(current=self.current),
            Destroyed: lambda _: Done(),
            MayAct: self._may_act,
            TaskDone: lambda _: Done(),
            MayMove: self._may_act,
            MayResume: lambda asked: Permission(granted=asked.instance in self.active),
            MoveStepDone: lambda _: Done(),
            AnswerAboutGuest: lambda _: Done(),
            GuestsFound: lambda _: Done(),
            ReportGuests: lambda _: None,
            RegisterAgent: lambda _: Registration(incarnation=1, mapped=self.mapped, takes_tickets=self.takes_tickets),
            ReportHost: self._report,
            Heartbeat: lambda _: None,
            ReportProgress: lambda _: None,
            ReadContents: self._contents,
            RequestTicket: self._ticket,
            RequestConnections: self._connections,
            ReadNetworks: self._networks,
        }
        return {message: self._answering(answer) for message, answer in answers.items()}

    def all(self, message: type[MessageT]) -> list[MessageT]:
        """Return what was heard of one type, in order."""
        return [one for one in self.heard if isinstance(one, message)]

    async def hears(self, message: type[MessageT], wanted: Callable[[MessageT], bool] = lambda _: True) -> MessageT:
        """Wait for a message of this type that is `wanted`, also one heard already."""
        found: list[MessageT] = []

        def look() -> bool:
            found[:] = [one for one in self.all(message) if wanted(one)]
            return bool(found)

        await self.until(look)
        return found[0]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a message makes `condition` true."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def _answering(self, answer: Callable[[Any], Any]) -> Any:
        async def handler(message: Any, context: RequestContext | None) -> Any:
            self.heard.append(message)
            self._news.set()
            if type(message) in self.silent:
                await asyncio.Event().wait()
            if type(message) in self.withheld:
                raise Unavailable("nobody answers above the cell")
            if type(message) in self.stale:
                raise StaleAgent("a younger agent of this host has registered")
            return answer(message)

        return handler

    def _may_act(self, _message: MayAct | MayMove) -> ActPermission:
        return ActPermission(granted=self.may_act, seconds=self.yes_seconds)

    def _contents(self, message: ReadContents) -> SealedContents:
        """Seal what the level above would open for the latest run of the agent."""
        if self.contents is None:
            return SealedContents(sealed=None)
        key = self.all(RegisterAgent)[-1].exchange_key
        about = contents_label(message.instance, message.attempt, message.task_id)
        return SealedContents(sealed=seal_to_run(key, about, self.contents))

    def _ticket(self, message: RequestTicket) -> SealedTicket:
        if self.ticket is None:
            return SealedTicket(sealed=None, reason="the host does not build this server")
        about = ("ticket", message.instance, message.attempt, message.image)
        key = self.all(RegisterAgent)[-1].exchange_key
        return SealedTicket(sealed=seal_to_run(key, about, msgspec.json.encode(self.ticket)))

    def _connections(self, message: RequestConnections) -> SealedConnections:
        if self.volumes is None:
            return SealedConnections(sealed=None, reason="the host has no attempt of this server")
        key = self.all(RegisterAgent)[-1].exchange_key
        told = msgspec.json.encode(ConnectedVolumes(self.volumes))
        return SealedConnections(sealed=seal_to_run(key, connections_label(message.instance, message.attempt), told))

    def _networks(self, message: ReadNetworks) -> NetworksOfHost:
        same = self.networks is None or self.networks.version == message.version
        small = None if same or self.networks is None or not message.unpacks else packed(self.networks)
        if small is not None:
            return NetworksOfHost(packed=small)
        return NetworksOfHost(brought=self.networks is not None, networks=None if same else self.networks)

    def _report(self, message: ReportHost) -> HostReported:
        if self.number not in (None, message.incarnation):
            return HostReported(epoch=self.epoch, incarnation=self.number, error="schedulers know of another agent")
        for key in message.settled:
            self.claims.pop((key.instance, key.attempt), None)
        return HostReported(
            epoch=self.epoch,
            claims=tuple(self.claims.values()),
            fenced=self.fenced,
            takes_guests=self.takes_guests,
            takes_networks=self.takes_networks,
            understood=self.understood,
        )


class HaltingSteps:
    """Steps that halt for ever before or after the named one, as a process would that dies there."""

    def __init__(self, name: str = "", when: str = "") -> None:
        self.halts_at = (name, when)
        self.halted = asyncio.Event()
        self.taken: list[str] = []

    def step(
        self,
        name: str,
        *,
        request: str = "",  # noqa: ARG002
        instance: str = "",  # noqa: ARG002
        attempt: int = 0,  # noqa: ARG002
        host: str = "",  # noqa: ARG002
        cell: str = "",  # noqa: ARG002
        contexts: Iterable[RequestContext] = (),  # noqa: ARG002
    ) -> AbstractAsyncContextManager[StepRun, None]:
        """Return a run of a step that may halt."""
        self.taken.append(name)
        return _HaltingRun(self, name)

    async def pass_point(self, name: str, when: str) -> None:
        """Go on, or halt here for ever."""
        if self.halts_at == (name, when):
            self.halted.set()
            await asyncio.Event().wait()


class _HaltingRun:
    def __init__(self, steps: HaltingSteps, name: str) -> None:
        self.outcome = "ok"
        self._steps = steps
        self._name = name

    async def __aenter__(self) -> StepRun:
        await self._steps.pass_point(self._name, "before")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._steps.pass_point(self._name, "after")


class AgentStage:
    """One host: its conductor, its directory, and one agent after another."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.transport = MemoryTransport()
        self.conductor = ScriptedConductor()
        self.settings = QUICK
        self.fake = FakeSettings(attaches_interfaces=True)
        self.make_driver: Callable[[], FakeDriver] = self._fake_driver
        self.clock = Clock()
        self.images: ImageCache | None = None
        self.exchange: Exchange | None = None
        self.snapshots: Snapshots | None = None
        self.open_contents: Opener = keeps_closed
        self.boot = "first"
        self.volumes: tuple[ServerVolume, ...] = ()
        """What every server has."""
        self.agent: Agent
        self.driver: FakeDriver
        self._agents: list[Agent] = []
        self._drivers: list[FakeDriver] = []

    async def __aenter__(self) -> AgentStage:
        """Let the conductor serve."""
        await self.transport.serve(cell_conductor(CELL), self.conductor.handlers())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop whatever runs."""
        for agent in self._agents:
            await agent.stop(0)
        for driver in self._drivers:
            driver.close()

    async def start(self, steps: HaltingSteps | None = None) -> Agent:
        """Start an agent over the directory and the guests that are there."""
        self.driver = self.make_driver()
        self._drivers.append(self.driver)
        self.agent = Agent(
            self.settings,
            CELL,
            HOST,
            self.directory,
            self.driver,
            self.transport,
            self.clock,
            steps=steps,
            images=self.images,
            exchange=self.exchange,
            snapshots=self.snapshots,
            open_contents=self.open_contents,
            boot=self.boot,
        )
        self._agents.append(self.agent)
        await self.agent.start()
        return self.agent

    async def crash(self) -> None:
        """End the agent as the death of its process would."""
        await self.agent.stop(0)

    async def build(
        self,
        number: int = 1,
        attempt: int = 1,
        *,
        resources: Resources | None = None,
        image: Image | None = None,
        node: NodeUuid | None = None,
        flavor: Flavor | None = None,
        secrets: bytes | None = None,
        vifs: tuple[Vif, ...] = (),
    ) -> InstanceUuid:
        """Send an order to build."""
        made = instance(number, image=image, flavor=flavor)
        made = msgspec.structs.replace(made, vifs=vifs, volumes=self.volumes)
        await self.transport.cast(
            compute(CELL, HOST),
            BuildAndRunInstance(
                context=CONTEXT,
                instance=made,
                attempt=attempt,
                node=node or self.agent.node,
                resources=made.flavor.resources() if resources is None else resources,
                secrets=secrets,
            ),
        )
        return made.uuid

    async def terminate(self, number: int = 1, attempt: int = 2) -> None:
        """Send an order to destroy."""
        await self.transport.cast(
            compute(CELL, HOST), TerminateInstance(context=CONTEXT, instance=uuid_of(number), attempt=attempt)
        )

    async def undo(self, number: int = 1, attempt: int = 1) -> None:
        """Send an order to undo one attempt."""
        await self.transport.cast(
            compute(CELL, HOST), UndoAttempt(context=CONTEXT, instance=uuid_of(number), attempt=attempt)
        )

    async def tell_guests(self, timeline: int) -> None:
        """Ask for all that the host has, as after a database went back."""
        await self.transport.cast(compute(CELL, HOST), TellGuests(timeline=timeline))

    async def move(
        self,
        step: str,
        attempt: int,
        *,
        move: str = MOVE,
        start: bool = True,
        vcpus: int = 1,
        kept: int = 0,
        target: int = 0,
        wish: str = "",
        by_wire: bool = False,
    ) -> None:
        """Send an order to take a step of a move of the first server."""
        flavor = Flavor(flavorid="moved", name="moved", vcpus=vcpus, memory_mb=512, root_gb=1)
        made = msgspec.structs.replace(instance(1, flavor=flavor), volumes=self.volumes)
        await self.transport.cast(
            compute(CELL, HOST),
            MoveStep(
                context=CONTEXT,
                move=move,
                step=step,
                instance=made,
                attempt=attempt,
                node=self.agent.node,
                resources=made.flavor.resources(),
                start=start,
                kept=kept,
                target=target,
                wish=wish,
                by_wire=by_wire,
            ),
        )

    async def moved(self, step: str, attempt: int, **more: Any) -> MoveStepDone:
        """Send an order to take a step of a move and return the answer."""
        before = len(self.conductor.all(MoveStepDone))
        await self.move(step, attempt, **more)
        await self.conductor.until(lambda: len(self.conductor.all(MoveStepDone)) > before)
        told = self.conductor.all(MoveStepDone)[-1]
        assert (told.step, told.attempt) == (step, attempt)
        return told

    async def change_power(
        self, task: Task, task_id: str, number: int = 1, attempt: int = 1, *, ask: bool = True
    ) -> None:
        """Send an order to start, stop or reboot."""
        await self.transport.cast(
            compute(CELL, HOST),
            ChangePower(
                context=CONTEXT,
                instance=uuid_of(number),
                attempt=attempt,
                task=task,
                task_id=task_id,
                ask=ask,
            ),
        )

    async def run_action(
        self,
        action: str,
        task_id: str,
        number: int = 1,
        attempt: int = 1,
        arguments: dict[str, Any] | None = None,
        secrets: bytes | None = None,
    ) -> None:
        """Send an order to act on a guest."""
        await self.transport.cast(
            compute(CELL, HOST),
            RunAction(
                context=CONTEXT,
                instance=uuid_of(number),
                attempt=attempt,
                action=action,
                task_id=task_id,
                arguments=arguments or {},
                secrets=secrets,
            ),
        )

    async def turn(self) -> None:
        """Let everybody else run, threads too."""
        await asyncio.to_thread(lambda: None)

    async def acknowledged(self, outcome: str) -> None:
        """Wait until the journal says that an outcome of this kind (`built`, `failed`, ...) is acknowledged."""
        wanted = f'"outcome":"{outcome}"'

        def stands() -> bool:
            # The line of a task that is taken up has the outcome it will have.
            lines = (self.directory / JOURNAL_FILE).read_text().splitlines()
            return any(wanted in line and '"taken":true' not in line for line in lines)

        async with asyncio.timeout(PATIENCE):
            while not stands():
                await self.turn()

    def history(self) -> tuple[GuestEvent, ...]:
        """Return what happened to the guests, from the hypervisor's own file."""
        return read_events(self.directory / GUESTS_FILE)

    def events(self) -> list[str]:
        """Return the names of what happened to the guests."""
        return [event.event for event in self.history()]

    def _fake_driver(self) -> FakeDriver:
        return FakeDriver(self.directory, HOST, self.fake, self.clock)


def uuid_of(number: int) -> InstanceUuid:
    """Return the UUID of the stage's instance of this number."""
    return InstanceUuid(f"22222222-2222-4222-8222-{number:012}")


def instance(number: int = 1, *, image: Image | None = None, flavor: Flavor | None = None) -> Instance:
    """Make a small instance."""
    return Instance(
        uuid=uuid_of(number),
        project_id=ProjectId("project"),
        user_id=UserId("user"),
        name=f"server-{number}",
        hostname=f"server-{number}",
        flavor=flavor or Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1),
        created_at=0,
        request_id=RequestId("req-1"),
        image=image,
    )
