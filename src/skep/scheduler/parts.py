"""Which CPUs, pages and devices a claim takes, judged on the very record that will hold it.

Two schedulers may promise the same parts of a host to two servers. The record takes the first; the second finds them
held when its change runs on the fresh record, and gets others there, or is refused.
"""

from __future__ import annotations

from msgspec.structs import replace

from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage
from skep.domain.nested.fitting import allocate
from skep.domain.nested.room import Room, room_of
from skep.domain.nested.wanted import Wanted
from skep.scheduler.records import ComputeValue


def with_parts(value: ComputeValue, claim: Claim, asked: Wanted | None) -> Claim | None:
    """Return the claim with parts that are free, its own if they still are; None where the request does not fit."""
    if asked is None:
        return claim
    usage = _usage(value)
    if usage is None or usage.topology is None:
        return None if asked.numa is not None or asked.devices or asked.ports.groups else claim
    room = _room(usage, value)
    if claim.allocation is not None and room.has(claim.allocation):
        return claim
    allocation = allocate(room, asked)
    return None if allocation is None else replace(claim, allocation=allocation)


def has_parts(value: ComputeValue, claim: Claim) -> bool:
    """Tell whether what a claim names is free beside what the host counts and others claim."""
    if claim.allocation is None:
        return True
    usage = _usage(value)
    return usage is not None and _room(usage, value).has(claim.allocation)


def _usage(value: ComputeValue) -> HostUsage | None:
    return value.report.usage if value.report is not None else None


def _room(usage: HostUsage, value: ComputeValue) -> Room:
    return room_of(usage, (held.allocation for held in value.claims if held.allocation is not None))
