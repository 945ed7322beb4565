"""Takeover: one process is held at a point past its lease, another finishes its work, the first goes on.

Both run in one loop over the same databases, one scheduler and one transport, each under an incarnation of its own.
A held process is one that was suspended: its clock stands still, so that the leases it writes lapse for all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

import msgspec

from skep.contracts.cloud import Cloud
from skep.contracts.eventually import PATIENCE
from skep.domain.clock import Clock, Timestamp
from skep.domain.errors import Unreachable
from skep.processes.control_plane import ControlPlane
from skep.processes.directory import StateDirectory
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import CrashPoint
from skep.transport.host_states import host_states
from skep_lab.witnesses import witness
from skep_lab.witnesses.witness import Findings, HostSeen, Promised

POLL_SECONDS = 0.05


class SuspendedClock(Clock):
    """A wall clock that can be stopped."""

    def __init__(self) -> None:
        self._stands_at: Timestamp | None = None

    def now(self) -> Timestamp:
        """Return the current time, or the moment at which it was stopped."""
        return super().now() if self._stands_at is None else self._stands_at

    def stop(self) -> None:
        """Let it stand."""
        self._stands_at = super().now()

    def go_on(self) -> None:
        """Show the current time again."""
        self._stands_at = None


class Hold:
    """Holds the first that comes to a point, until it is released or the block ends. Everybody else passes."""

    def __init__(self, step: str, when: str, on_reached: Callable[[], None] = lambda: None) -> None:
        self.reached = asyncio.Event()
        self.went_on = asyncio.Event()
        self.ended = asyncio.Event()
        """The step at which one was held is over."""
        self._released = asyncio.Event()
        self._step, self._when = step, when
        self._on_reached = on_reached

    def __enter__(self) -> Self:
        """Hold from now on."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Let go, so that a test that failed can stop its cloud."""
        self.release()

    async def at_step(self, point: CrashPoint) -> None:
        """Be the crash hook of a process."""
        if self.went_on.is_set() and (point.step, point.when) == (self._step, "after"):
            self.ended.set()
        if (point.step, point.when) != (self._step, self._when) or self.reached.is_set():
            return
        self.reached.set()
        self._on_reached()
        try:
            await self._released.wait()
        finally:
            self.went_on.set()
            if self._when == "after":
                self.ended.set()

    def release(self) -> None:
        """Let the one that is held go on."""
        self._released.set()


class _Conductors(ControlPlane):
    """The conductors of a second process, above and in each cell; scheduler and hosts are the first's."""

    async def start(self) -> None:
        """Start the conductors."""
        await self.live.start()
        await self._keep_cells()
        await self._start_super_conductor()

    async def stop(self) -> None:
        """Stop the conductors."""
        if self._super_conductor is not None:
            await self._super_conductor.stop()
        for conductor in self._cell_conductors:
            await conductor.stop()
        await self.live.close()


@asynccontextmanager
async def second_process(cloud: Cloud) -> AsyncIterator[ControlPlane]:
    """Run a second set of conductors over the same databases for the length of a block."""
    first, clock = cloud.plane, Clock()
    databases = msgspec.structs.replace(cloud.config.database, directory=str(cloud.directory.databases))
    second = _Conductors(
        msgspec.structs.replace(cloud.config, database=databases),
        # Hosts that stand in a directory are started: here are none.
        StateDirectory(cloud.directory.root / "second"),
        first.databases,
        clock=clock,
        metrics=Metrics(),
        notifier=Notifier(clock, sinks=(cloud.notifications.append,)),
        hosts=0,
        transport=first.transport,
    )
    await second.start()
    try:
        yield second
    finally:
        await second.stop()


async def findings(cloud: Cloud, asked: Promised, *, seconds: float = PATIENCE) -> Findings:
    """Look at a cloud in this loop until nothing is wrong, at most so long; return what was found last."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            found = await _look(cloud, asked)
        except Unreachable:
            # The transport of such a cloud gives up early: a busy machine is slower than that.
            if loop.time() > end:
                raise
        else:
            if found.clean or not found.may_pass or loop.time() > end:
                return found
        await asyncio.sleep(POLL_SECONDS)


async def _look(cloud: Cloud, asked: Promised) -> Findings:
    states = await host_states(cloud.plane.transport)
    hosts = {
        state.usage.host: HostSeen(
            claims=tuple((claim.instance, claim.attempt) for claim in state.claims),
            used={name: amount for name, amount in state.usage.used.items() if amount},
        )
        for state in states
    }
    seen = await asyncio.to_thread(witness.look, cloud.directory.root, {}, hosts)
    return witness.judge(msgspec.structs.replace(seen, statuses=witness.statuses_of(seen.rows)), asked)
