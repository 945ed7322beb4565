"""Runs the named steps of builds and actions: each is timed, logged, traced and, in tests, a place to crash at.

    async with steps.step("stage", instance=uuid, attempt=1, cell=cell) as run:
        ...
        run.outcome = "replaced"    # how it ended, where that is not "ok"

The tables of steps are `skep.domain.builds.STEPS` and `VOLUME_STEPS`, `skep.domain.actions.ACTION_STEPS` and
`skep.domain.moves.MOVE_STEPS`; a name that stands in none is a bug of the caller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Literal, Self

import msgspec
import structlog

from skep.domain.actions import ACTION_STEPS
from skep.domain.builds import STEPS, VOLUME_STEPS
from skep.domain.context import RequestContext
from skep.domain.moves import MOVE_STEPS
from skep.telemetry import tracing
from skep.telemetry.logs import get_logger
from skep.telemetry.metrics import Metrics

log = get_logger(__name__)


class CrashPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands: just before a step's work, or just after it was done."""

    step: str
    when: Literal["before", "after"]
    request: str
    instance: str
    attempt: int
    host: str
    cell: str


CrashHook = Callable[[CrashPoint], Awaitable[None]]
"""Called at each crash point. Tests raise, block or kill there; what it raises passes through the step."""


class Steps:
    """Makes the steps of one process. `timer` counts seconds from any start."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        crash_hook: CrashHook | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.metrics = metrics
        self.crash_hook = crash_hook
        self.timer = timer

    def step(
        self,
        name: str,
        *,
        request: str = "",
        instance: str = "",
        attempt: int = 0,
        host: str = "",
        cell: str = "",
        members: int = 0,
        contexts: Iterable[RequestContext] = (),
    ) -> StepRun:
        """Return one run of the step `name`, to be entered with `async with`.

        `members` says how many servers the run is for where it is for more than one; `contexts`, whose requests it
        serves: it is a span in their traces. Raises ValueError for a name that is no step.
        """
        if not any(name in table for table in (STEPS, VOLUME_STEPS, ACTION_STEPS, MOVE_STEPS)):
            raise ValueError(f"there is no step {name!r} in the tables of steps of skep.domain")
        return StepRun(self, name, request, instance, attempt, host, cell, members, contexts)


class StepRun:
    """One run of a step. `outcome` is a short word for metrics and the log; `note` adds keys to its line, whose event
    is `event`: the step's name, unless that would say the wrong thing."""

    __slots__ = (
        "_began",
        "_contexts",
        "_keys",
        "_notes",
        "_point",
        "_steps",
        "_tokens",
        "_trace",
        "event",
        "name",
        "outcome",
    )

    def __init__(
        self,
        steps: Steps,
        name: str,
        request: str,
        instance: str,
        attempt: int,
        host: str,
        cell: str,
        members: int,
        contexts: Iterable[RequestContext],
    ) -> None:
        self.name = name
        self.event = name
        self.outcome = "ok"
        self._steps = steps
        self._point = (request, instance, attempt, host, cell)
        keys: dict[str, str | int] = {
            "request": request,
            "instance": instance,
            "attempt": attempt,
            "host": host,
            "cell": cell,
        }
        self._keys = {key: value for key, value in keys.items() if value}
        self._notes: dict[str, object] = {"members": members} if members else {}
        self._contexts = contexts
        self._trace: tracing.StepTrace | None = None

    def note(self, **keys: object) -> None:
        """Add keys to the line that is logged when the step ends."""
        self._notes.update(keys)

    def serves(self, contexts: Iterable[RequestContext]) -> None:
        """Say whose requests it serves, where only the step itself finds out."""
        if self._trace is not None:
            self._trace.serves(contexts)

    async def __aenter__(self) -> Self:
        """Pass the crash point before the work and start the time."""
        await self._crash_point("before")
        self._tokens = structlog.contextvars.bind_contextvars(**self._keys)
        self._trace = tracing.step(self.name, self._contexts, self._keys)
        self._began = self._steps.timer()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Count, log, and pass the crash point after the work if it was done."""
        seconds = self._steps.timer() - self._began
        if error is not None:
            self.outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else "error"
            self._notes["error"] = type(error).__name__
        self._steps.metrics.build_step_seconds.labels(self.name, self.outcome).observe(seconds)
        log.info(self.event, outcome=self.outcome, milliseconds=round(seconds * 1000, 3), **self._notes)
        structlog.contextvars.reset_contextvars(**self._tokens)
        if self._trace is not None:
            members = self._notes.get("members", 0)
            self._trace.end(self.outcome, failed=error is not None, members=members if isinstance(members, int) else 0)
        if error is None:
            await self._crash_point("after")

    async def _crash_point(self, when: Literal["before", "after"]) -> None:
        if self._steps.crash_hook is None:
            return
        request, instance, attempt, host, cell = self._point
        await self._steps.crash_hook(
            CrashPoint(
                step=self.name,
                when=when,
                request=request,
                instance=instance,
                attempt=attempt,
                host=host,
                cell=cell,
            )
        )
