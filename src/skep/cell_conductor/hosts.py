"""The story of the cell's hosts: agents register, are heard, and report; of two with one identity the older stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

from skep.cell_conductor.hearing import SILENT_SECONDS, Hearing
from skep.cell_conductor.host_keys import HostKeys
from skep.cell_conductor.listening import Listening
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.refusals import RefusedAgents
from skep.cell_conductor.sessions import Sessions
from skep.database import Connection
from skep.database.cell import agents, fences, host_keys, missing_hosts, sessions
from skep.database.cell.agents import RegisteredAgent
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, NotFound, SkepError, StaleAgent, TooLarge
from skep.domain.ids import NodeUuid
from skep.domain.sessions import Session
from skep.domain.timelines import Moment
from skep.domain.wording import refuse_control_characters
from skep.messages.to_cell_conductor import (
    Heartbeat,
    HostReported,
    RegisterAgent,
    Registration,
    ReportHost,
    SignedReport,
    Welcome,
)
from skep.messages.to_compute import ReportHostNow
from skep.messages.to_scheduler import HostReport, ReportAnswer, UpdateHostState, UpdateHostStateReply
from skep.reconciler.lease import Time
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import compute, scheduler_for
from skep.transport.speaker import Speaker

log = get_logger(__name__)

OnSeen = Callable[[Moment | None, str], Awaitable[None]]

BATCH = 200
"""Reports in one call: some hundred kB."""
LOOK_AGAIN_SECONDS = 60.0
"""Between two looks at the row of an agent whose orders are not known: another conductor may have heard them."""


class Hosts:
    """Knows who of the cell's agents lives, and carries what they report to the scheduler, many in one call."""

    def __init__(
        self,
        parts: Parts,
        sessions: Sessions | None = None,
        refusals: RefusedAgents | None = None,
        time_of_database: Time | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = parts
        self._sessions = sessions or Sessions(parts)
        self._time = time_of_database
        self._monotonic = monotonic
        self._agents: dict[NodeUuid, RegisteredAgent] = {}
        self._reconnects = parts.transport.reconnects
        self.listening = Listening(SILENT_SECONDS, monotonic)
        self.listening.look(able=True)
        self._known_since: float | None = None
        """Since when hosts could be heard when it was known last who lives; None: it never was."""
        self._reports: list[tuple[HostReport, asyncio.Future[HostReported]]] = []
        self._stale: dict[NodeUuid, int] = {}
        """Older runs that were noted, so that each is noted once."""
        self._looked: dict[NodeUuid, tuple[int, float]] = {}
        """Agents that have not said which orders they take: which run, and when its row was read."""
        self._refusals = refusals or RefusedAgents(parts.cell.name)
        self.keys = HostKeys(parts, self._refusals)
        self.hearing = Hearing()
        self.epoch: str | None = None
        """In which the schedulers are, as far as they said."""
        self.reporting = Loop("reports", self._forward, every=1.0)
        self.watching = Loop("listening", self._watch, every=1.0)
        """Waits for nothing, while a beat waits for a scheduler: it stands still only where the process does."""
        self.on_listening: Callable[[], None] = _ignore
        """Called when an agent registers with a conductor that has only begun to listen."""
        self.on_seen: OnSeen = _ignore_seen
        """Is told which moment of the cell's database an agent saw that registers, and which host that is."""

    @property
    def _moment(self) -> Moment | None:
        return self._time.moment if self._time is not None else None

    async def register(self, message: RegisterAgent, _context: RequestContext | None) -> Registration:
        """Write an agent and say whether its node is mapped yet; the level above does that."""
        parts, identity = self._parts, message.identity
        refuse_control_characters(identity, "identity")
        clash = await parts.database.read(partial(agents.other_node_of, host=identity.host, node=identity.node))
        if clash is not None:
            raise Conflict(f"host {identity.host} of cell {parts.cell.name} is node {clash}, not {identity.node}")
        signed = await self.keys.admit(message)
        await self.on_seen(message.seen, f"host {identity.host}")
        session = await self._session(message)
        writing = partial(_registered, message=message, said=self.keys.said_by(message), now=parts.clock.now())
        agent = await parts.database.write(writing)
        if agent is None:
            return await self._refuse_older(message, session)
        self._know(agent)
        if session is None:
            # With a session the first thing that it says in it counts: an agent may believe none of our answers, and
            # ask for ever without serving.
            self.hearing.hear(agent.node, self._monotonic())
        if self._known_since != self.listening.since:
            self.on_listening()
        if not agent.mapped:
            await parts.tell_above()
        if session is None:
            return Registration(
                incarnation=agent.incarnation,
                mapped=agent.mapped,
                signed=signed,
                moment=self._moment,
                takes_tickets=True,
            )
        await self._sessions.begun(identity, message.exchange_key)
        welcome = Welcome(
            incarnation=agent.incarnation,
            mapped=agent.mapped,
            conductor=self._sessions.mark,
            bound_key=self.keys.bound(agent.node),
            moment=self._moment,
            takes_tickets=True,
        )
        return await self._sessions.welcome(session, welcome, message.challenge)

    async def _session(self, message: RegisterAgent) -> Session | None:
        if not message.number:
            return None
        try:
            return await self._sessions.session_with(message.identity, message.exchange_key)
        except ValueError as error:
            raise BadRequest(f"exchange_key: {error}") from error

    async def _refuse_older(self, message: RegisterAgent, session: Session | None) -> Registration:
        """Tell a run of an agent that a younger one has registered, so that it stops."""
        agent = await self._look_up(message.identity.node)
        await self._note_stale(agent, message.incarnation)
        if session is None:
            raise StaleAgent(f"a younger run of the agent of host {agent.host} has registered")
        welcome = Welcome(incarnation=0, mapped=False, conductor=self._sessions.mark, stale=True)
        return await self._sessions.welcome(session, welcome, message.challenge)

    async def heartbeat(self, message: Heartbeat, _context: RequestContext | None) -> None:
        """Note that an agent lives; an older one with the same identity does not count.

        One whose latest report was for another epoch, or that is too old, is told to report: the answer says the rest.
        """
        agent = self._agents.get(message.node)
        if agent is None or message.incarnation != agent.incarnation:
            agent = await self._look_up(message.node)
        if message.incarnation >= agent.incarnation:
            self.hearing.hear(message.node, self._monotonic())
        if message.incarnation < agent.incarnation:
            # Both serve one address and take turns, so each gets one of two.
            await self.have_report((message.node, message.node))
        elif None not in (message.epoch, self.epoch) and message.epoch != self.epoch:
            await self.have_report((message.node,))

    async def report(self, message: ReportHost, _context: RequestContext | None) -> HostReported:
        """Carry one report of an agent that is proven."""
        return await self._take(message)

    async def signed_report(self, message: SignedReport, _context: RequestContext | None) -> HostReported:
        """Carry one report of an agent that signs. Raises Forbidden when it is not signed by the key of its node."""
        return await self._take(await self.keys.opened(message))

    async def _take(self, message: ReportHost) -> HostReported:
        """Carry one report to the scheduler, together with those that others send meanwhile."""
        agent = await self._current(message.node, message.incarnation)
        if message.incarnation < agent.incarnation:
            await self._note_stale(agent, message.incarnation)
            return HostReported(epoch="", fenced=True)
        if message.usage.host != agent.host:
            why = f"it reports as host {message.usage.host[:80]!r}"
            raise self._refusals.refuse(agent.node, why, host=agent.host)
        self.hearing.hear(message.node, self._monotonic())
        answer: asyncio.Future[HostReported] = asyncio.get_running_loop().create_future()
        self._reports.append((HostReport.of(message, self._parts.cell.uuid), answer))
        self.reporting.nudge()
        return await answer

    async def check_current(self, speaker: Speaker) -> None:
        """See that a speaker is the youngest run of its host's agent. Raises StaleAgent."""
        number = speaker.incarnation
        agent = self._agents.get(speaker.node)
        if agent is not None and number is not None and number < agent.incarnation:
            agent = await self._look_up(agent.node)
        if agent is not None and number is not None and number < agent.incarnation:
            await self._note_stale(agent, number)
            raise StaleAgent(f"agent {number} of host {agent.host} is not the youngest")

    async def have_report(self, nodes: Iterable[NodeUuid]) -> None:
        """Ask the agents of these nodes to report in full at once."""
        for node in nodes:
            agent = self._agents.get(node)
            if agent is not None:
                await self._parts.transport.cast(compute(self._parts.cell.uuid, agent.host), ReportHostNow())

    async def have_all_report(self) -> None:
        """Ask all agents that are known here to report in full at once."""
        await self.have_report(tuple(self._agents))

    def name_of(self, node: NodeUuid) -> str:
        """Return the name of a node's host; the node where it is not known."""
        agent = self._agents.get(node)
        return agent.host if agent is not None else node

    async def knows_who_lives(self) -> bool:
        """Tell whether a silence means something yet: all agents were heard, or there was time enough for each.

        A conductor that has just started says for SILENT_SECONDS that it only listens, unless it has heard all its
        agents before. So it does after its messaging was away, and after it stood still: hosts are not down then, it
        did not hear them.
        """
        self._listen()
        listening = self.listening
        since = listening.since
        if since is None or since == self._known_since:
            return since is not None
        if not listening.heard_for(SILENT_SECONDS):
            known = await self._parts.database.read(agents.list_all)
            if any(not self.hearing.heard_since(agent.node, since) for agent in known):
                return False
        self._known_since = since
        return True

    async def _watch(self) -> bool:
        self._listen()
        return False

    def _listen(self) -> None:
        """Note whether hosts can be heard now, and whether they could since the last look."""
        transport, listening = self._parts.transport, self.listening
        if transport.reconnects != self._reconnects:
            self._reconnects = transport.reconnects
            listening.look(able=False)
        listening.look(able=transport.connected)

    async def hears_any_but(self, nodes: Collection[NodeUuid]) -> bool:
        """Tell whether any agent of the cell is heard beside those of `nodes`; also true when there are no others."""
        known = await self._parts.database.read(agents.list_all)
        others = [agent.node for agent in known if agent.node not in nodes]
        return not others or any(self.hearing.hears(node) for node in others)

    def _know(self, agent: RegisteredAgent) -> None:
        self._agents[agent.node] = agent

    async def _current(self, node: NodeUuid, incarnation: int) -> RegisteredAgent:
        """Return the agent as this process knows it, or as the row says when the sender has another number.

        A younger one registered with another conductor; or the host was retired, and its numbers began anew.
        """
        agent = self._agents.get(node)
        if agent is None or incarnation != agent.incarnation or not agent.mapped:
            agent = await self._look_up(node)
        return agent

    async def _look_up(self, node: NodeUuid) -> RegisteredAgent:
        agent = await self._parts.database.read(partial(agents.get, node=node))
        if agent is None:
            self._agents.pop(node, None)
            raise NotFound(f"node {node} has not registered with cell {self._parts.cell.name}")
        self._know(agent)
        return agent

    async def _note_stale(self, agent: RegisteredAgent, incarnation: int) -> None:
        """Say, and store for who asks later, that an older agent speaks with the identity of a younger one."""
        if self._stale.get(agent.node) == incarnation:
            return
        self._stale[agent.node] = incarnation
        log.error(
            "two agents had one identity, the older was told to stop",
            cell=self._parts.cell.name,
            host=agent.host,
            node=agent.node,
            older=incarnation,
            younger=agent.incarnation,
        )
        noting = partial(agents.note_stale, node=agent.node, incarnation=incarnation, now=self._parts.clock.now())
        await self._parts.database.write(noting)

    async def _forward(self) -> bool:
        batch, self._reports = self._reports[:BATCH], self._reports[BATCH:]
        if not batch:
            return False
        failure = SkepError("the reports could not be carried to the scheduler")
        try:
            reply = await self._carry(tuple(report for report, _ in batch))
            for (report, future), answer in zip(batch, reply.answers, strict=True):
                if not future.done():
                    future.set_result(await self._answer(report, answer, reply.epoch))
        except SkepError as error:
            failure = error
            return False
        finally:
            # Whatever went wrong, a bug too: an agent that is never answered says nothing more until its call lapses.
            for _, future in batch:
                if not future.done():
                    future.set_exception(failure)
        return bool(self._reports)

    async def _carry(self, reports: tuple[HostReport, ...]) -> UpdateHostStateReply:
        """Hand reports over; those that no message can hold together go in halves."""
        try:
            return await self._parts.above.call(scheduler_for(self._parts.cell.uuid), UpdateHostState(reports=reports))
        except TooLarge as error:
            if len(reports) == 1:
                answer = ReportAnswer(node=reports[0].node, error=f"usage: {error}")
                return UpdateHostStateReply(answers=(answer,), epoch=self.epoch or "")
            half = len(reports) // 2
            first, second = await self._carry(reports[:half]), await self._carry(reports[half:])
            return UpdateHostStateReply(answers=first.answers + second.answers, epoch=second.epoch)

    async def _answer(self, report: HostReport, answer: ReportAnswer, epoch: str) -> HostReported:
        if answer.younger is not None:
            return await self._resolve(report, answer.younger, epoch)
        trouble = "an older report than the one that is known" if answer.stale else answer.error
        return HostReported(
            epoch=epoch,
            claims=answer.claims,
            error=trouble,
            takes_guests=True,
            takes_networks=True,
            moment=self._moment,
            now=self._parts.clock.now(),
            understood=await self._understands(report.node),
        )

    async def _understands(self, node: NodeUuid) -> bool:
        """Tell whether the cell knows which orders the agent of a node takes; also true where the row was just read."""
        agent, now = self._agents.get(node), self._monotonic()
        if agent is None or agent.understands is not None:
            self._looked.pop(node, None)
            return True
        run, looked_at = self._looked.get(node, (agent.incarnation, -LOOK_AGAIN_SECONDS))
        if run == agent.incarnation and now - looked_at < LOOK_AGAIN_SECONDS:
            return True
        self._looked[node] = (agent.incarnation, now)
        agent = await self._parts.database.read(partial(agents.get, node=node))
        if agent is not None:
            self._know(agent)
        return agent is None or agent.understands is not None

    async def _resolve(self, report: HostReport, known: int, epoch: str) -> HostReported:
        """Answer an agent that schedulers hold for older than one they heard of.

        Another conductor registered a younger one; or this cell's database was set back, and its numbers with it.
        """
        agent = await self._look_up(report.node)
        if report.incarnation < agent.incarnation:
            await self._note_stale(agent, report.incarnation)
            return HostReported(epoch="", fenced=True)

        def unit(connection: Connection) -> int | None:
            return agents.raise_incarnation(connection, report.node, agent.process, known)

        raised = await self._parts.database.write(unit)
        self._know(await self._look_up(report.node))
        if raised is None:
            return HostReported(epoch="", fenced=True)
        log.warning("incarnation of an agent raised", host=agent.host, before=known, now=raised)
        return HostReported(epoch=epoch, incarnation=raised, error=f"schedulers know of agent {known}")


def _registered(
    connection: Connection, message: RegisterAgent, said: tuple[tuple[str, ...], tuple[str, ...] | None], now: int
) -> RegisteredAgent | None:
    """Write an agent with the orders and capabilities that it said; None when a younger run of it has registered.

    One that the cell has forgotten has to undo what was given up of its host meanwhile.
    """
    identity = message.identity
    if message.number and sessions.is_stale(connection, identity, message.number):
        return None
    is_new = agents.get(connection, identity.node) is None
    agent = agents.register(connection, identity, now, *said)
    host_keys.note_believed(connection, identity.node)
    if is_new:
        fences.came_back(connection, identity.node)
        missing_hosts.came_back(connection, identity.node)
    if message.number:
        sessions.begin(connection, identity, message.number, message.exchange_key)
    return agent


def _ignore() -> None:
    return None


async def _ignore_seen(_seen: Moment | None, _who: str) -> None:
    return None
