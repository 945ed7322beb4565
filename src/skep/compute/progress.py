"""Tells the cell conductor what the host has in hand, so that its deadlines are for hosts that are silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import structlog

from skep.compute.actions import GuestActions
from skep.compute.builds import Builds
from skep.compute.host import Host
from skep.compute.moves import Moves
from skep.domain.errors import SkepError
from skep.messages.to_cell_conductor import BuildInHand, ReportProgress, TaskInHand

log = structlog.get_logger("skep.compute")

IN_ONE_MESSAGE = 500


class Progress:
    """One message for each interval in which something is in hand, and for each new phase of a task (more only where it
    is very much)."""

    def __init__(self, host: Host, builds: Builds, actions: GuestActions, moves: Moves) -> None:
        self._host = host
        self._builds = builds
        self._actions = actions
        self._moves = moves
        self._nudge = asyncio.Event()
        actions.on_phase = self._nudge.set

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            self._host.work.check()
            self._host.journal.catch_up()
            for report in self._reports():
                try:
                    await self._host.upcalls.cast(report)
                except SkepError as error:
                    log.info("progress not sent", host=self._host.name, error=str(error))
                    break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._host.settings.progress_seconds):
                    await self._nudge.wait()
            self._nudge.clear()

    def _reports(self) -> Iterator[ReportProgress]:
        builds: list[BuildInHand] = self._builds.in_hand()
        tasks: list[TaskInHand] = [*self._actions.in_hand(), *self._moves.in_hand()]
        for start in range(0, max(len(builds), len(tasks)), IN_ONE_MESSAGE):
            part = slice(start, start + IN_ONE_MESSAGE)
            yield ReportProgress(host=self._host.name, builds=tuple(builds[part]), tasks=tuple(tasks[part]))
