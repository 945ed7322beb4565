"""Tells the cell conductor how the host's guests really are: rows follow what happened without an order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from skep.compute.actions import GuestActions
from skep.compute.attempts import InstanceRecord
from skep.compute.boots import Boots
from skep.compute.drivers.base import Guest
from skep.compute.host import Host
from skep.compute.moves import Moves
from skep.domain.builds import BuildFailure
from skep.domain.errors import SkepError
from skep.domain.guests import GuestSeen
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.messages.to_cell_conductor import ReportGuests

log = structlog.get_logger("skep.compute")

IN_ONE_MESSAGE = 500


class Guests:
    """Looks at all guests now and then, and when the driver says that one has changed by itself."""

    def __init__(self, host: Host, actions: GuestActions, moves: Moves, boots: Boots) -> None:
        self._host = host
        self._boots = boots
        self._actions = actions
        self._moves = moves
        self._nudge = asyncio.Event()
        host.driver.on_change(self.changed)

    def changed(self) -> None:
        """Look soon."""
        self._nudge.set()

    async def run(self) -> None:
        """Look and tell until cancelled. What is to run after a boot of the host is started first."""
        settings = self._host.settings
        while True:
            self._host.work.check()
            self._nudge.clear()
            if not self._boots.looked_after:
                busy = self._busy()
                await self._boots.resume({(one, attempt) for one, attempt, _ in self._built() if one not in busy})
            if self._boots.looked_after and self._host.upcalls.takes_guests:
                await self._tell(await self.look())
            try:
                async with asyncio.timeout(settings.report_interval_seconds):
                    await self._nudge.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(settings.report_delay_seconds)

    async def look(self) -> tuple[GuestSeen, ...]:
        """Return how the guests are of which nothing is being done.

        What was begun is read before the hypervisor is: who compares sees from it how old the look is at most.
        """
        host = self._host
        before = {(instance, attempt): tasks for instance, attempt, tasks in self._built()}
        busy = self._busy()
        found = await host.calls.read("guests", host.driver.guests)
        if isinstance(found, BuildFailure):
            log.warning("guests not read", host=host.name, error=found.message)
            return ()
        there = {(guest.instance, guest.attempt): guest for guest in found if guest.whole}
        busy |= self._busy()
        return tuple(
            _seen(instance, attempt, there.get((instance, attempt)), before[instance, attempt])
            for instance, attempt, _ in self._built()
            if (instance, attempt) in before and instance not in busy
        )

    def _built(self) -> list[tuple[InstanceUuid, int, tuple[str, ...]]]:
        records: Mapping[InstanceUuid, InstanceRecord] = self._host.journal.attempts.records
        return [
            (instance, attempt, record.begun_tasks())
            for instance, record in records.items()
            for attempt, opened in record.open.items()
            if opened.built is not None and not opened.aside and attempt > record.terminate_up_to
        ]

    def _busy(self) -> set[InstanceUuid]:
        return self._actions.busy() | self._moves.busy()

    async def _tell(self, seen: tuple[GuestSeen, ...]) -> None:
        for start in range(0, len(seen), IN_ONE_MESSAGE):
            part = seen[start : start + IN_ONE_MESSAGE]
            try:
                await self._host.upcalls.cast(ReportGuests(host=self._host.name, guests=part))
            except SkepError as error:
                log.info("guests not reported", host=self._host.name, error=str(error))
                return


def _seen(instance: InstanceUuid, attempt: int, guest: Guest | None, tasks: tuple[str, ...]) -> GuestSeen:
    if guest is None:
        return GuestSeen(instance, attempt, PowerState.NOSTATE, tasks)
    return GuestSeen(instance, attempt, guest.power_state, tasks, guest.rescued)
