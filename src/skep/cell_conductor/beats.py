"""The cell's beat: who lives, in which epoch the schedulers are, and what they have to be told from the cell's rows."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from skep.cell_conductor.hearing import PAGES_TOLD
from skep.cell_conductor.hosts import Hosts
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.scheduler_times import SchedulerTimes
from skep.database import Connection
from skep.database.cell import assertions
from skep.database.cell.assertions import Owned
from skep.domain.errors import SkepError
from skep.domain.ids import GroupUuid, NodeUuid
from skep.domain.timelines import Moment
from skep.messages.to_scheduler import AssertClaims, AssertReply
from skep.messages.to_scheduler_liveness import Beat, BeatReply
from skep.reconciler.lease import Time
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import scheduler_for

log = get_logger(__name__)

T = TypeVar("T")

BEAT_SECONDS = 1.0
NAMED_HOSTS = 5
"""Hosts that a line of the log names; it counts the others."""
NODES_TOLD = 100
GROUPS_TOLD = 100
FAILED_BEATS = 3
"""So many beats that fail one after the other are more than a scheduler that is started anew."""
"""Nodes and groups that are told again with one message."""


class Beats:
    """Beats for the cell, and has the schedulers know its claims and slots."""

    def __init__(self, parts: Parts, hosts: Hosts, time_of_database: Time) -> None:
        self._parts = parts
        self._time = time_of_database
        self._times = SchedulerTimes(parts.clock)
        self.on_seen: Callable[[Moment | None, str], Awaitable[None]] = _unseen
        """Called with the latest moment of the cell's database that a scheduler has heard of."""
        self._hosts = hosts
        self.loop = Loop("beat", self._beat, every=BEAT_SECONDS)
        hosts.on_listening = self.loop.nudge
        self.on_asserted: Callable[[str | None], None] = _ignore
        """Called at each beat with the epoch under which the scheduler knows this cell's claims; None: it does not."""
        self._failed = 0
        """Beats in a row that failed, and why the last one did."""
        self._why = ""

    def troubles(self) -> list[str]:
        """Return why schedulers do not hear of this cell's hosts from this conductor; empty when they do."""
        if self._failed < FAILED_BEATS:
            return []
        return [f"beat: schedulers were not reached {self._failed} times in a row: {self._why}"]

    async def _beat(self) -> bool:
        """Say which nodes live; tell the cell's claims when the scheduler does not know them."""
        epoch: str | None = None
        try:
            listening = not await self._hosts.knows_who_lives()
            self._look()
            reply = await self._tell_who_lives(listening=listening)
            await self._follow(reply.epoch)
            if reply.asserted or await self._assert(reply.epoch):
                epoch = reply.epoch if await self._adopt(reply.epoch) else None
            if reply.asserted and (reply.nodes or reply.groups):
                await self._tell_again(reply)
            self._failed = 0
        except SkepError as error:
            self._failed, self._why = self._failed + 1, str(error)
            log.warning("beat not sent", cell=self._parts.cell.name, error=str(error))
        self.on_asserted(epoch)
        return False

    def _look(self) -> None:
        """Judge who lives. However many fall silent together are one line in the log."""
        hearing = self._hosts.hearing
        news = hearing.look(time.monotonic())
        if news is None:
            return
        for event, nodes in (("hosts fell silent", news.silent), ("hosts heard again", news.heard_again)):
            if nodes:
                log.warning(
                    event,
                    cell=self._parts.cell.name,
                    hosts=len(nodes),
                    names=self._names(nodes),
                    silent_in_all=hearing.silent,
                )

    def _names(self, nodes: Iterable[NodeUuid]) -> list[str]:
        return sorted(self._hosts.name_of(node) for node in nodes)[:NAMED_HOSTS]

    async def _tell_who_lives(self, *, listening: bool) -> BeatReply:
        """Beat, and tell the pages of nodes that changed or that the scheduler asks for."""
        parts, hearing = self._parts, self._hosts.hearing
        versions, wanted = hearing.versions, hearing.untold()
        rounds = 2 + 2 * len(versions)
        while True:
            told = hearing.pages(wanted[:PAGES_TOLD])
            asked_at = parts.clock.elapsed()
            reply = await parts.above.call(
                scheduler_for(parts.cell.uuid),
                Beat(
                    cell=parts.cell.uuid,
                    conductor=parts.owner,
                    listening=listening,
                    pages=versions,
                    told=told,
                    moment=self._time.moment,
                    database=parts.cell.name,
                    times=self._times.told(),
                ),
            )
            self._times.answered(reply, asked_at)
            await self.on_seen(reply.seen, "a scheduler")
            hearing.note_told(told)
            wanted = [page for page in reply.wanted if page < len(versions)]
            rounds -= 1
            if not wanted or not rounds:
                return reply

    async def _follow(self, epoch: str) -> None:
        """Under a new epoch have all agents report at once: none is a candidate before its own report."""
        known = self._hosts.epoch
        self._hosts.epoch = epoch
        if known != epoch:
            self.on_asserted(None)
        if known not in (None, epoch):
            await self._hosts.have_all_report()

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
        pages = assertions.pages(owned)
        refused = 0
        for number, page in enumerate(pages, start=1):
            message = AssertClaims(
                cell=parts.cell.uuid, epoch=epoch, claims=page.claims, slots=page.slots, more=number < len(pages)
            )
            reply = await parts.above.call(scheduler_for(parts.cell.uuid), message)
            if reply.epoch != epoch:
                return False
            refused += len(reply.refused)
            await self._store(reply, page, epoch)
        log.info(
            "claims asserted",
            cell=parts.cell.name,
            claims=len(owned.claims),
            slots=len(owned.slots),
            refused=refused,
        )
        # A host that counts what was just claimed says so with its next report.
        await self._hosts.have_report({claim.node for claim in owned.claims})
        return True

    async def _store(self, reply: AssertReply, page: Owned, epoch: str) -> None:
        now = self._parts.clock.now()

        def unit(connection: Connection) -> None:
            assertions.refuse(connection, reply.refused, now)
            assertions.stamp(connection, page.builds, epoch)

        if reply.refused or page.builds:
            await self._parts.database.write(unit)

    async def _tell_again(self, beat: BeatReply) -> None:
        """Tell again what belongs to records that were lost, and have their hosts report in full."""
        parts = self._parts
        owned = await parts.database.write(assertions.read)
        log.warning("lost records reported again", cell=parts.cell.name, nodes=len(beat.nodes), groups=len(beat.groups))
        for groups in _cut(beat.groups, GROUPS_TOLD):
            slots = assertions.in_groups(owned, groups)
            pages = assertions.pages(slots)
            for number, page in enumerate(pages, start=1):
                await self._complete(page, beat.epoch, groups=groups, more=number < len(pages))
        for nodes in _cut(beat.nodes, NODES_TOLD):
            await self._complete(assertions.on_nodes(owned, nodes), beat.epoch, nodes=nodes)
        await self._hosts.have_report(set(beat.nodes))

    async def _complete(
        self,
        owned: Owned,
        epoch: str,
        *,
        nodes: tuple[NodeUuid, ...] = (),
        groups: tuple[GroupUuid, ...] = (),
        more: bool = False,
    ) -> None:
        message = AssertClaims(
            cell=self._parts.cell.uuid,
            epoch=epoch,
            claims=owned.claims,
            slots=owned.slots,
            nodes=nodes,
            groups=groups,
            more=more,
        )
        reply = await self._parts.above.call(scheduler_for(self._parts.cell.uuid), message)
        if reply.epoch == epoch:
            await self._store(reply, Owned(claims=(), slots=()), epoch)


def _cut(names: tuple[T, ...], size: int) -> list[tuple[T, ...]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


def _ignore(_epoch: str | None) -> None:
    return None


async def _unseen(_moment: Moment | None, _who: str) -> None:
    return None
