"""The port to whoever times, logs and counts the steps of builds and actions."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol

from skep.domain.context import RequestContext


class StepRun(Protocol):
    """One run of a step."""

    outcome: str
    """How it ended, in a short word, where that is not `ok`."""


class Steps(Protocol):
    """Runs named steps (`skep.domain.builds.STEPS`, `skep.domain.actions.ACTION_STEPS`,
    `skep.domain.moves.MOVE_STEPS`)."""

    def step(
        self,
        name: str,
        *,
        request: str = "",
        instance: str = "",
        attempt: int = 0,
        host: str = "",
        cell: str = "",
        contexts: Iterable[RequestContext] = (),
    ) -> AbstractAsyncContextManager[Any, None]:
        """Return one run of the step `name`; entering it gives a `StepRun`."""


class UnwatchedSteps:
    """Runs steps without telling anybody."""

    def step(
        self,
        name: str,  # noqa: ARG002 - the port's names
        *,
        request: str = "",  # noqa: ARG002
        instance: str = "",  # noqa: ARG002
        attempt: int = 0,  # noqa: ARG002
        host: str = "",  # noqa: ARG002
        cell: str = "",  # noqa: ARG002
        contexts: Iterable[RequestContext] = (),  # noqa: ARG002
    ) -> AbstractAsyncContextManager[StepRun, None]:
        """Return a run that does nothing."""
        return _UnwatchedRun()


class _UnwatchedRun:
    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome = "ok"

    async def __aenter__(self) -> StepRun:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None
