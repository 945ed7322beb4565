"""Assignments: where one attempt of a server is, and what it holds there."""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.providers import Allocation
from skep.domain.resources import Resources

Role = Literal["build", "move_source", "move_target", "unshelve"]
"""What an attempt is for: a build, or the host that a server leaves, or the one that it moves to, or a build from the
image of a shelved server."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The host of one attempt, and what the attempt holds of it: one value from the decision to the host's ledger.

    Forms on the wire and in files keep these facts flat, as releases before 0.7.0 read them; each form has one function
    that makes it, and one that reads it.
    """

    node: NodeUuid
    host: str
    cell: CellUuid
    resources: Resources
    allocation: Allocation | None
    """Which CPUs, pages and devices of the host; None: flat amounts alone."""
    end: int | None
    """The server's expected end, microseconds since 1970; None: unknown."""
    role: Role
