"""The story of shelved servers that leave their hosts: when that begins, and when it is over."""

from __future__ import annotations

from functools import partial

from skep.cell_conductor import endings, notifications
from skep.cell_conductor.deletes import Deletes
from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import offloads
from skep.database.cell.endings import with_instances
from skep.domain.actions import Over
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 100


class Offloads:
    """Takes servers off their hosts that are shelved for longer than the operator leaves them there."""

    def __init__(self, parts: Parts, deletes: Deletes) -> None:
        self._parts = parts
        self._undoing = deletes.undoing
        self.loop = Loop("offload", self._run, every=parts.settings.resend_seconds, apart=GATHER_SECONDS)

    async def _run(self) -> bool:
        parts = self._parts
        now = parts.clock.now()
        shelved_before = None if parts.offload_seconds < 0 else parts.before(parts.offload_seconds)
        silent_before = parts.before(parts.settings.task_deadline)
        if not await parts.database.read(partial(offloads.any_due, shelved_before=shelved_before)):
            return False

        def unit(connection: Connection) -> tuple[int, list[Over], list[Over]]:
            begun = 0
            if shelved_before is not None:
                begun = offloads.begin_due(connection, shelved_before, BATCH, now)
            started = with_instances(connection, offloads.start(connection, now, BATCH))
            ended = with_instances(connection, offloads.finish(connection, silent_before, now, BATCH))
            return begun, started, ended

        begun, started, ended = await parts.database.write(unit)
        if begun:
            log.info("shelved servers offloaded", cell=parts.cell.name, servers=begun)
        if started:
            self._undoing.nudge()
        for one, instance in started:
            if instance is not None:
                notifications.offload_start(parts.notifier, instance, one.context)
        endings.ended(parts, ended)
        return max(begun, len(started), len(ended)) >= BATCH
