"""What the stories of one host share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from skep.compute.calls import DriverCalls
from skep.compute.disk_fetching import DiskFetching
from skep.compute.drivers.base import Driver, NamedResource
from skep.compute.drivers.contents import Opener, keeps_closed
from skep.compute.entries import BuildAccepted, GuestBuilt
from skep.compute.exchange import Exchange
from skep.compute.image_cache import ImageCache
from skep.compute.journal import Journal
from skep.compute.ledger import Ledger
from skep.compute.settings import ComputeSettings
from skep.compute.snapshots import Snapshots
from skep.compute.steps import Steps
from skep.compute.upcalls import Upcalls
from skep.compute.work import AgentWork, InstanceLocks
from skep.domain.assignments import Assignment
from skep.domain.builds import BuildFailure, FailureKind, failure
from skep.domain.capabilities import Capability
from skep.domain.claims import ClaimKey
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.instances import Instance
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.neighbours.vendor_data import VendorDataTargets


class Reporting(Protocol):
    """Whoever reports the host."""

    def changed(self) -> None:
        """Report soon."""

    def settle(self, key: ClaimKey) -> None:
        """Report soon, and name this claim as settled: the ledger counts it, refused it or let it go."""


class Bringing(Protocol):
    """Whatever has the driver bring networks."""

    async def bring(self, instance: Instance) -> None:
        """Have the ports of a server brought before its guest is made."""


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
    calls: DriverCalls
    steps: Steps
    journal: Journal
    ledger: Ledger
    upcalls: Upcalls
    work: AgentWork
    reports: Reporting
    open_contents: Opener = keeps_closed
    images: ImageCache | None = None
    """Where the bytes of images come from; None: the host gets none."""
    image_formats: frozenset[str] = frozenset()
    """The disk formats that the driver boots from, as it last said by traits; empty: any."""
    exchange: Exchange | None = None
    """Where the disks of moves go from host to host, and both sides of live migrations meet; None: nowhere."""
    fetching: DiskFetching | None = None
    """How disks of cold moves come from the agents of other hosts; None: not at all."""
    snapshots: Snapshots | None = None
    """Where the disks of guests become images; None: the host may store none."""
    boot: str = ""
    """Names the boot of the machine that the agent runs after; empty: the system does not tell."""
    networks: Bringing | None = None
    """What brings the networks of its guests; None: the driver brings none."""
    vendors: VendorDataTargets | None = None
    """The operator's services that say what config drives hold besides; None: there are none."""
    capabilities: frozenset[Capability] = frozenset()
    """What can be done to its guests."""
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

    async def bring(self, instance: Instance) -> None:
        """Have the ports of a server brought before its guest is made, if this host brings any."""
        if self.networks is not None and instance.vifs:
            await self.networks.bring(instance)

    def assigned(self, entry: BuildAccepted | GuestBuilt) -> Assignment:
        """Return what an attempt in the journal holds of this host."""
        return self.assignment(entry.resources, entry.allocation, entry.expected_end)

    def assignment(self, resources: Resources, allocation: Allocation | None, end: int | None) -> Assignment:
        """Return what a build holds of this host."""
        return Assignment(
            node=self.node,
            host=self.name,
            cell=self.cell,
            resources=resources,
            allocation=allocation,
            end=end,
            role="build",
        )

    async def remove(
        self, instance: InstanceUuid, attempt: int | None, on_hang: Callable[[], None] | None = None
    ) -> BuildFailure | None:
        """Remove the guest of an attempt (None: of any), then undo what was prepared for it, the newest first.

        What is offered of its disks is withdrawn.

        Returns why that failed; then something may be left, and all of it may be tried again.
        """
        result = await self.calls.change("destroy", self.driver.destroy(instance, attempt), instance, on_hang)
        if isinstance(result, BuildFailure):
            return result
        for number, resource in self._prepared(instance, attempt):
            undoing = self.driver.undo(instance, number, resource)
            result = await self.calls.change("destroy", undoing, instance, on_hang)
            if isinstance(result, BuildFailure):
                return failure(result.error, f"{resource.kind} {resource.name}: {result.message}")
        for move in self._offered(instance, attempt):
            if self.exchange is not None:
                await self.exchange.withdraw(move)
        for number, move in self._awaited(instance, attempt):
            if self.exchange is not None:
                await self.exchange.leave(move, number)
            if self.fetching is not None:
                await self.fetching.leave(move, number)
        return None

    def _awaited(self, instance: InstanceUuid, attempt: int | None) -> list[tuple[int, str]]:
        """Return the attempts that are targets of moves and have no guest yet, with their moves."""
        record = self.journal.attempts.get(instance)
        opened = {} if record is None else record.open
        return [(number, one.move) for number, one in opened.items() if one.move and attempt in (None, number)]

    def _offered(self, instance: InstanceUuid, attempt: int | None) -> list[str]:
        record = self.journal.attempts.get(instance)
        opened = {} if record is None else record.open
        return [one.aside for number, one in opened.items() if one.aside and attempt in (None, number)]

    def _prepared(self, instance: InstanceUuid, attempt: int | None) -> list[tuple[int, NamedResource]]:
        record = self.journal.attempts.get(instance)
        if record is None:
            return []
        return [
            (number, resource)
            for number, resources in sorted(record.prepared.items(), reverse=True)
            if attempt in (None, number)
            for resource in reversed(resources)
        ]

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
