"""The story of the cell's hosts: agents register, report, are heard; under a new epoch the cell asserts its claims."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

import sqlalchemy as sa

from skep.cell_conductor.parts import Parts
from skep.database.cell import agents, assertions
from skep.database.cell.agents import Agent
from skep.database.cell.assertions import Owned
from skep.domain.context import RequestContext
from skep.domain.errors import Conflict, NotFound, SkepError
from skep.domain.ids import NodeUuid
from skep.messages.to_cell_conductor import Heartbeat, HostReported, RegisterAgent, Registration, ReportHost
from skep.messages.to_compute import ReportHostNow
from skep.messages.to_scheduler import AssertClaims, Beat, HostReport, UpdateHostState
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER, compute

log = get_logger(__name__)

BEAT_SECONDS = 1.0
SILENT_SECONDS = 5.0
"""A host that was not heard for so long is left out of the beat. A conductor that has just started says for so long
that it only listens, unless it has heard all its agents before."""


class Hosts:
    """Knows who of the cell's agents lives, and carries what they report to the scheduler, many in one call."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._agents: dict[NodeUuid, Agent] = {}
        self._heard: dict[NodeUuid, float] = {}
        self._epoch: str | None = None
        self._listening_until: float | None = time.monotonic() + SILENT_SECONDS
        self._reports: list[tuple[HostReport, asyncio.Future[HostReported]]] = []
        self.reporting = Loop("reports", self._forward, every=1.0)
        self.beating = Loop("beat", self._beat, every=BEAT_SECONDS)
        self.on_asserted: Callable[[str | None], None] = _ignore
        """Called at each beat with the epoch under which the scheduler knows this cell's claims; None: it does not."""

    async def register(self, message: RegisterAgent, _context: RequestContext | None) -> Registration:
        """Write an agent and say whether its node is mapped yet; the level above does that."""
        parts, identity = self._parts, message.identity
        clash = await parts.database.read(partial(agents.other_node_of, host=identity.host, node=identity.node))
        if clash is not None:
            raise Conflict(f"host {identity.host} of cell {parts.cell.name} is node {clash}, not {identity.node}")
        agent = await parts.database.write(partial(agents.register, identity=identity, now=parts.clock.now()))
        self._agents[agent.node] = agent
        self._heard[agent.node] = time.monotonic()
        if self._listening_until is not None:
            self.beating.nudge()
        if not agent.mapped:
            await parts.tell_above()
        return Registration(incarnation=agent.incarnation, mapped=agent.mapped)

    async def heartbeat(self, message: Heartbeat, _context: RequestContext | None) -> None:
        """Note that an agent lives; an older one with the same identity does not count."""
        agent = self._agents.get(message.node)
        if agent is None:
            agent = await self._look_up(message.node)
        if message.incarnation >= agent.incarnation:
            self._heard[message.node] = time.monotonic()

    async def report(self, message: ReportHost, _context: RequestContext | None) -> HostReported:
        """Carry one report to the scheduler, together with those that others send meanwhile."""
        agent = await self._current(message.node, message.incarnation)
        if message.incarnation < agent.incarnation:
            return HostReported(epoch="", fenced=True)
        self._heard[message.node] = time.monotonic()
        answer: asyncio.Future[HostReported] = asyncio.get_running_loop().create_future()
        report = HostReport(
            node=message.node,
            cell=self._parts.cell.uuid,
            incarnation=message.incarnation,
            seq=message.seq,
            usage=message.usage,
            settled=message.settled,
        )
        self._reports.append((report, answer))
        self.reporting.nudge()
        return await answer

    async def _current(self, node: NodeUuid, incarnation: int) -> Agent:
        """Return the agent as this process knows it, or as the row says when the sender is younger than that."""
        agent = self._agents.get(node)
        if agent is None or incarnation > agent.incarnation or not agent.mapped:
            agent = await self._look_up(node)
        return agent

    async def _look_up(self, node: NodeUuid) -> Agent:
        agent = await self._parts.database.read(partial(agents.get, node=node))
        if agent is None:
            raise NotFound(f"node {node} has not registered with cell {self._parts.cell.name}")
        self._agents[node] = agent
        return agent

    async def _forward(self) -> bool:
        batch, self._reports = self._reports, []
        if not batch:
            return False
        failure = SkepError("the reports could not be carried to the scheduler")
        try:
            reply = await self._parts.above.call(
                SCHEDULER, UpdateHostState(reports=tuple(report for report, _ in batch))
            )
            for (_, future), answer in zip(batch, reply.answers, strict=True):
                if not future.done():
                    trouble = "an older report than the one that is known" if answer.stale else answer.error
                    future.set_result(HostReported(epoch=reply.epoch, claims=answer.claims, error=trouble))
        except SkepError as error:
            failure = error
            return False
        finally:
            # Whatever went wrong, a bug too: an agent that is never answered says nothing more until its call lapses.
            for _, future in batch:
                if not future.done():
                    future.set_exception(failure)
        return bool(self._reports)

    async def _beat(self) -> bool:
        """Say which nodes live; assert the cell's claims when the scheduler does not know them."""
        parts = self._parts
        listening = not await self._knows_who_lives()
        now = time.monotonic()
        heard = tuple(sorted(node for node, at in self._heard.items() if now - at < SILENT_SECONDS))
        epoch: str | None = None
        try:
            beat = Beat(cell=parts.cell.uuid, heard=heard, conductor=parts.owner, listening=listening)
            reply = await parts.above.call(SCHEDULER, beat)
            await self._follow(reply.epoch)
            if reply.asserted or await self._assert(reply.epoch):
                epoch = reply.epoch if await self._adopt(reply.epoch) else None
        except SkepError as error:
            log.warning("no beat", cell=parts.cell.name, error=str(error))
        self.on_asserted(epoch)
        return False

    async def _follow(self, epoch: str) -> None:
        """Under a new epoch have all agents report at once: none is a candidate before its own report."""
        known, self._epoch = self._epoch, epoch
        if known != epoch:
            self.on_asserted(None)
        if known in (None, epoch):
            return
        for agent in self._agents.values():
            await self._parts.transport.cast(compute(self._parts.cell.uuid, agent.host), ReportHostNow())

    async def _knows_who_lives(self) -> bool:
        """Tell whether a silence means something yet: all agents were heard, or there was time enough for each."""
        if self._listening_until is None:
            return True
        known = await self._parts.database.read(agents.list_all)
        if time.monotonic() < self._listening_until and any(agent.node not in self._heard for agent in known):
            return False
        self._listening_until = None
        return True

    async def _assert(self, epoch: str) -> bool:
        """Tell the scheduler what this cell's rows say is claimed; refused claims are failed attempts.

        Read in a write unit, which comes after all that was written before: a build that was sent to its host a moment
        ago is seen here, and what comes later bears another epoch than this one.
        """
        owned = await self._parts.database.write(assertions.read)
        return await self._tell(owned, epoch)

    async def _adopt(self, epoch: str) -> bool:
        """Assert the builds whose host was chosen under another epoch, before their hosts hear of them."""
        while True:
            owned = await self._parts.database.read(partial(assertions.of_other_epochs, epoch=epoch))
            if not owned.builds:
                return True
            if not await self._tell(owned, epoch):
                return False

    async def _tell(self, owned: Owned, epoch: str) -> bool:
        """Have claims and slots known under this epoch; False when there is a younger one by now."""
        parts = self._parts
        reply = await parts.above.call(
            SCHEDULER,
            AssertClaims(cell=parts.cell.uuid, epoch=epoch, claims=owned.claims, slots=owned.slots),
        )
        if reply.epoch != epoch:
            return False

        def unit(connection: sa.Connection) -> int:
            replaced = assertions.refuse(connection, reply.refused, parts.clock.now())
            assertions.stamp(connection, owned.builds, epoch)
            return replaced

        replaced = await parts.database.write(unit)
        log.info(
            "claims asserted",
            cell=parts.cell.name,
            claims=len(owned.claims),
            slots=len(owned.slots),
            refused=len(reply.refused),
            replaced=replaced,
        )
        return True


def _ignore(_epoch: str | None) -> None:
    return None
