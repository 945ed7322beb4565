"""What the stories of one host share."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import structlog

from skep.compute.drivers.base import Driver, DriverError
from skep.compute.drivers.contents import Opener, keeps_closed
from skep.compute.journal import Journal
from skep.compute.ledger import Ledger
from skep.compute.settings import ComputeSettings
from skep.compute.steps import Steps
from skep.compute.upcalls import Upcalls
from skep.compute.work import InstanceLocks, Work
from skep.domain.builds import BuildFailure, FailureKind, failure
from skep.domain.claims import ClaimKey
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid

ResultT = TypeVar("ResultT")
log = structlog.get_logger("skep.compute")


class Reporting(Protocol):
    """Whoever reports the host."""

    def changed(self) -> None:
        """Report soon."""

    def settle(self, key: ClaimKey) -> None:
        """Report soon, and name this claim as settled: the ledger counts it, refused it or let it go."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Host:
    """A host as its agent sees it. Everything in it belongs to one agent and one event loop."""

    name: str
    node: NodeUuid
    cell: CellUuid
    cell_name: str
    settings: ComputeSettings
    clock: Clock
    driver: Driver
    steps: Steps
    journal: Journal
    ledger: Ledger
    upcalls: Upcalls
    work: Work
    reports: Reporting
    open_contents: Opener = keeps_closed
    locks: InstanceLocks = dataclasses.field(default_factory=InstanceLocks)
    guests: dict[InstanceUuid, int] = dataclasses.field(default_factory=dict)
    """Whole guests, with the attempt that made each."""
    strangers: dict[InstanceUuid, int] = dataclasses.field(default_factory=dict)
    """Guests that the journal does not know, with their attempt: counted, never touched unasked."""
    failed_builds: int = 0
    """Since the last that succeeded."""

    def step(
        self, name: str, instance: InstanceUuid, attempt: int, context: RequestContext | None = None
    ) -> AbstractAsyncContextManager[Any, None]:
        """Return a run of a named step on this host."""
        request = context.request_id if context is not None else ""
        return self.steps.step(
            name,
            request=request,
            instance=instance,
            attempt=attempt,
            host=self.name,
            cell=self.cell_name,
            contexts=(context,) if context is not None else (),
        )

    async def drive(
        self, operation: Awaitable[ResultT], instance: InstanceUuid | None = None
    ) -> ResultT | BuildFailure:
        """Let the driver do something; what it raises becomes a value."""
        with self.work.busy():
            try:
                return await operation
            except DriverError as error:
                return failure(error.error, error.message)
            except Exception as error:
                # A driver's bug must not lose the build: it is tried elsewhere under the name of what was raised.
                log.exception("driver failed unexpectedly", host=self.name, instance=instance)
                return failure(type(error).__name__, str(error))

    def settle(self, instance: InstanceUuid, attempt: int) -> None:
        """Report soon that the claim of this attempt is settled."""
        self.reports.settle(ClaimKey(instance, attempt, self.node))

    def forget_guest(self, instance: InstanceUuid, attempt: int) -> None:
        """Count what bore this attempt no more: it is gone from the hypervisor."""
        self.ledger.release(instance, attempt)
        for guests in (self.guests, self.strangers):
            if guests.get(instance) == attempt:
                del guests[instance]

    def count_failure(self, kind: FailureKind) -> None:
        """Remember that a build failed here, unless a rule or its deletion ended it (Nova's FAILED and RESCHEDULED)."""
        if kind in (FailureKind.ABORT, FailureKind.RESCHEDULE):
            self.failed_builds += 1
