"""Claims: what schedulers have promised on a node before the host itself counts it."""

from __future__ import annotations

import msgspec

from skep.domain.assignments import Role
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid
from skep.domain.providers import Allocation
from skep.domain.resources import Resources


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A promise of resources on one node to one attempt of one instance. Time alone never frees it.

    There are very many; nothing in one leads back to it, so the garbage collector need not look at it.
    """

    instance: InstanceUuid
    attempt: int
    node: NodeUuid
    resources: Resources
    role: Role = "build"
    group: GroupUuid | None = None
    """The group whose slot goes with this claim, if its policy is hard."""
    allocation: Allocation | None = None
    """Which CPUs, pages and devices are promised, to a server that asks for some."""
    expected_end: int | None = None
    """The server's expected end, microseconds since 1970; None: unknown."""

    @property
    def key(self) -> tuple[str, int]:
        """What names a claim on its node: (instance, attempt)."""
        return (self.instance, self.attempt)


class ClaimKey(msgspec.Struct, frozen=True, array_like=True):
    """The name of a claim or slot: which attempt of which instance, on which node."""

    instance: InstanceUuid
    attempt: int
    node: NodeUuid
    group: GroupUuid | None = None
