"""The story of hosts that an operator declared dead: what was on them is given up, so that nothing waits for them.

A fence only marks its host at first (`database/cell/fences.py`). It takes effect when it is due, and then only where a
conductor has listened for long enough in vain: a host that is heard is not dead, and its fence is taken back.
"""

from __future__ import annotations

from functools import partial

from skep.cell_conductor import endings
from skep.cell_conductor.builds import Builds
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.deletes import Deletes
from skep.cell_conductor.hosts import Hosts
from skep.cell_conductor.listening import Listening
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.reschedule import Reschedules
from skep.database import Connection
from skep.database.cell import fences
from skep.database.cell.endings import with_instances
from skep.database.cell.fences import Closed, FencedHost
from skep.domain.actions import Over
from skep.domain.ids import NodeUuid
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 200

LISTENING_SECONDS = 30.0
"""A conductor that has heard the cell for less time lets no fence take effect, unless the grace is shorter."""


class Fences:
    """Gives up what was on fenced hosts; takes a fence back should its host be heard."""

    def __init__(
        self,
        parts: Parts,
        hosts: Hosts,
        builds_story: Builds,
        releases: Releases,
        reschedules: Reschedules,
        deletes: Deletes,
    ) -> None:
        self._parts = parts
        self._hosts = hosts
        self._builds = builds_story
        self._releases = releases
        self._choosing = reschedules.choosing
        self._undoing = deletes.undoing
        self._fenced: dict[NodeUuid, FencedHost] = {}
        every = parts.settings.resend_seconds
        self._listening = Listening(max(parts.settings.lease_seconds, 5 * every))
        self.loop = Loop("fences", self._run, every=every, apart=GATHER_SECONDS)

    async def _run(self) -> bool:
        hosts = await self._parts.database.read(fences.fenced)
        self._fenced = {host.node: host for host in hosts}
        self._listening.look(able=self._builds.asserted and await self._hears_others())
        more = [await self._follow(host) for host in hosts]
        return any(more)

    async def _hears_others(self) -> bool:
        """Tell whether any host is heard that is not fenced, where there are such: a deaf conductor judges nobody."""
        return not self._fenced or await self._hosts.hears_any_but(self._fenced.keys())

    async def _follow(self, host: FencedHost) -> bool:
        parts, now = self._parts, self._parts.clock.now()
        if not host.in_effect and self._may_take_effect():
            taken = await parts.database.write(partial(fences.take_effect, node=host.node, now=now))
            if taken:
                log.warning("fence took effect", host=host.host, cell=parts.cell.name)
                return True
        write = fences.close if host.in_effect else fences.settle

        def unit(connection: Connection) -> tuple[Closed, list[Over]]:
            closed = write(connection, host=host, now=now, limit=BATCH)
            return closed, with_instances(connection, closed.ended)

        closed, over = await parts.database.write(unit)
        endings.ended(parts, over)
        return await self._closed(host, closed)

    def _may_take_effect(self) -> bool:
        return self._listening.heard_for(min(LISTENING_SECONDS, self._parts.settings.fence_grace_seconds))

    async def _closed(self, host: FencedHost, closed: Closed) -> bool:
        parts = self._parts
        if not closed.released:
            return False
        log.warning(
            "attempts of a fenced host closed",
            host=host.host,
            cell=parts.cell.name,
            attempts=len(closed.released),
            rescheduled=closed.rescheduled,
            lost=closed.lost,
            deleted=closed.deleted,
        )
        self._releases.add(closed.released)
        if closed.rescheduled:
            self._choosing.nudge()
        if closed.deleted:
            await parts.tell_above()
        return len(closed.released) >= BATCH

    async def heard(self, node: NodeUuid) -> None:
        """An agent was heard: if its host is fenced it is not dead, and has to undo all that was given up."""
        fenced = self._fenced.get(node)
        if fenced is None:
            return
        reopened = await self._parts.database.write(partial(fences.came_back, node=node))
        self._fenced.pop(node, None)
        told = (
            "a fenced host was heard: it is not dead, its attempts are undone"
            if fenced.in_effect
            else "a fenced host was heard: it is not dead, its fence was withdrawn"
        )
        log.error(told, host=fenced.host, node=node, attempts=reopened)
        self._undoing.nudge()
