"""This scheduler's own life among the others: it says once a second that it lives, and takes its share of the hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from skep.domain.clock import SECOND, Clock
from skep.domain.errors import SkepError
from skep.domain.ids import new_uuid
from skep.messages.to_scheduler_liveness import LivingScheduler
from skep.scheduler import changes
from skep.scheduler.commits import Commits
from skep.scheduler.members import BEAT_SECONDS
from skep.scheduler.records import SCHEDULERS, SchedulerValue
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key

LEAVE_SECONDS = 2.0
"""How long a scheduler that stops tries to say so."""

log = structlog.get_logger("skep.scheduler")


class Membership:
    """This scheduler's own life among the others, and its share of the hosts."""

    def __init__(
        self,
        states: HostStates,
        commits: Commits,
        clock: Clock,
        monotonic: Callable[[], float],
        *,
        partition: bool,
        host: str = "",
    ) -> None:
        self.run = new_uuid()
        """Names this life of the scheduler."""
        self._states = states
        self._commits = commits
        self._clock = clock
        self._monotonic = monotonic
        self._partition = partition
        self._host = host

    async def live(self) -> None:
        """Tell the others once a second that this scheduler lives, and share the hosts with those that do."""
        while True:
            try:
                await self.beat()
            except SkepError as error:
                log.warning("record of this scheduler not published", error=str(error))
            except Exception:
                log.exception("record of this scheduler not published")
            await asyncio.sleep(BEAT_SECONDS)

    async def beat(self) -> None:
        """Say once that this scheduler lives; share the hosts with whom is known to live now."""
        self.share()
        value = SchedulerValue(at=self._clock.now(), host=self._host)
        await self._commits.change(self._key(self.run), changes.set_value(value))
        for run in self._states.members.gone(self._monotonic()):
            if run != self.run:
                key = self._key(run)
                await self._commits.change(key, changes.remove_unchanged(self._states.held(key).value))

    def share(self) -> None:
        """Share the hosts with the schedulers that are known to live now."""
        living = self._states.members.living(self._monotonic()) if self._partition else ()
        others = [run for run in living if run != self.run]
        if self._states.share_hosts(self.run, others):
            log.info("schedulers share the hosts", others=len(others))

    def living(self) -> tuple[LivingScheduler, ...]:
        """Return the schedulers that are known to live now, this one too."""
        found, now = [LivingScheduler(run=self.run, host=self._host, now=self._clock.now())], self._monotonic()
        for run in self._states.members.living(now):
            value = self._states.held(self._key(run)).value
            if run != self.run and isinstance(value, SchedulerValue):
                age = self._states.members.age(run, now)
                its = None if age is None else value.at + round(age * SECOND)
                found.append(LivingScheduler(run=run, host=value.host, now=its))
        return tuple(sorted(found, key=lambda one: (one.host, one.run)))

    async def leave(self) -> None:
        """Tell the others to take over this one's share at once; without an answer they find out in seconds."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._commits.change(self._key(self.run), changes.set_value(None))
        except (SkepError, TimeoutError) as error:
            log.warning("end of this scheduler not published", error=str(error))

    @staticmethod
    def _key(run: str) -> Key:
        return Key(SCHEDULERS, run)
