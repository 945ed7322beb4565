"""What the steps of all moves on a host share: what they come to, and what the journal says of their attempts."""

from __future__ import annotations

from skep.compute.attempts import OpenAttempt
from skep.compute.drivers.base import NamedResource
from skep.compute.entries import GuestBuilt
from skep.compute.exchange import Exchange
from skep.compute.host import Host
from skep.domain.builds import BuildFailure, FailureKind, failure
from skep.domain.instances import PowerState
from skep.messages.to_compute import MoveStep

GIVEN_UP = BuildFailure(kind=FailureKind.GONE, error="MoveGivenUp", message="the step was given up before it began")

NO_MOVES = BuildFailure(
    kind=FailureKind.ABORT, error="NotSupportedByDriver", message="this host lacks the capability `move`"
)

Result = PowerState | BuildFailure
"""How the guest of the attempt is after a step (NOSTATE: there is none), or why the step failed."""


def opened_of(host: Host, order: MoveStep) -> OpenAttempt | None:
    """Return the attempt that a step is about, if it is open here."""
    record = host.journal.attempts.get(order.instance.uuid)
    return record.open.get(order.attempt) if record is not None else None


def built_of(host: Host, order: MoveStep) -> GuestBuilt | None:
    """Return what was built for the attempt that a step is about."""
    opened = opened_of(host, order)
    return None if opened is None else opened.built


def no_guest(host: Host, order: MoveStep) -> BuildFailure:
    """Say that the attempt has no guest here."""
    there = f"there is no guest of attempt {order.attempt} of {order.instance.uuid} on host {host.name}"
    return failure("InstanceNotFound", there)


async def note_guest(host: Host, entry: GuestBuilt) -> None:
    """Write down what is so from here on, durably. Raises StorageUnavailable."""
    host.journal.record(entry)
    await host.journal.synced()
    host.reports.changed()


def exchange_of(host: Host) -> Exchange:
    """Return where both sides of a move meet: no step is taken on a host that has none."""
    assert host.exchange is not None
    return host.exchange


def made_of(host: Host, order: MoveStep, built: GuestBuilt) -> tuple[NamedResource, ...]:
    """Return what was made for an attempt; agents of before 0.7.0 did not write it down."""
    planned = built.prepares or host.calls.plan(order.instance, order.attempt)
    return () if isinstance(planned, BuildFailure) else planned
