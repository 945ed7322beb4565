"""The story of hosts that an operator declared dead: what was on them is given up, so that nothing waits for them."""

from __future__ import annotations

from functools import partial

from skep.cell_conductor.claims import Releases
from skep.cell_conductor.parts import Parts
from skep.database.cell import fences
from skep.database.cell.fences import FencedHost
from skep.domain.ids import NodeUuid
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 200


class Fences:
    """Closes the attempts of fenced hosts; opens them again should such a host be heard, so that it undoes them."""

    def __init__(self, parts: Parts, releases: Releases, choosing: Loop, undoing: Loop) -> None:
        self._parts = parts
        self._releases = releases
        self._choosing = choosing
        self._undoing = undoing
        self._fenced: frozenset[NodeUuid] = frozenset()
        self.loop = Loop("fences", self._run, every=parts.settings.resend_seconds, apart=GATHER_SECONDS)

    async def _run(self) -> bool:
        parts = self._parts
        hosts = await parts.database.read(fences.fenced)
        self._fenced = frozenset(host.node for host in hosts)
        more = [await self._close(host) for host in hosts]
        return any(more)

    async def _close(self, host: FencedHost) -> bool:
        parts = self._parts
        closed = await parts.database.write(partial(fences.close, host=host, now=parts.clock.now(), limit=BATCH))
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
        if node not in self._fenced:
            return
        reopened = await self._parts.database.write(partial(fences.came_back, node=node))
        self._fenced -= {node}
        log.error("a fenced host is heard: it is not dead, and undoes what it had", node=node, attempts=reopened)
        self._undoing.nudge()
