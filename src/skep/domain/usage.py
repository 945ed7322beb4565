"""What servers used in a period: hours from their launch to their end, and what they had meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import msgspec

from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, ProjectId

HOUR = 3_600_000_000
"""Microseconds."""


class Period(msgspec.Struct, frozen=True):
    """From a time to another, microseconds since the epoch; the end is no part of it."""

    since: int
    until: int


class UsedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that ran in a period: living, or deleted and not purged yet."""

    uuid: InstanceUuid
    project_id: ProjectId
    name: str
    flavor: Flavor
    """As it is now: a resize changes what the hours before it count for, as in Nova."""
    state: str
    """In the word of the API's `vm_state`."""
    launched_at: int
    terminated_at: int | None = None

    @property
    def disk_gb(self) -> int:
        """GiB of its local disks."""
        return self.flavor.root_gb + self.flavor.ephemeral_gb

    def microseconds(self, period: Period) -> int:
        """Return for how long it ran in the period."""
        until = period.until if self.terminated_at is None else min(period.until, self.terminated_at)
        return max(0, until - max(period.since, self.launched_at))

    def hours(self, period: Period) -> float:
        """Return for how many hours it ran in the period."""
        return self.microseconds(period) / HOUR

    def uptime(self, now: int) -> int:
        """Return for how many seconds it ran in all."""
        return max(0, (self.terminated_at or now) - self.launched_at) // 1_000_000


class ProjectUsage(msgspec.Struct, frozen=True):
    """What a project used in a period: each amount times the hours for which a server had it."""

    hours: float = 0.0
    vcpus: float = 0.0
    memory_mb: float = 0.0
    disk_gb: float = 0.0


def used(servers: Iterable[UsedServer], period: Period) -> dict[ProjectId, ProjectUsage]:
    """Return what each project used. Sums are exact before they are rounded, so that their order decides nothing."""
    sums: dict[ProjectId, list[int]] = {}
    for one in servers:
        ran = one.microseconds(period)
        amounts = (1, one.flavor.vcpus, one.flavor.memory_mb, one.disk_gb)
        of = sums.setdefault(one.project_id, [0] * len(amounts))
        for position, amount in enumerate(amounts):
            of[position] += ran * amount
    return {project: ProjectUsage(*(float(Fraction(total, HOUR)) for total in of)) for project, of in sums.items()}
