"""Assignments for tests: what an attempt holds of a host."""

from __future__ import annotations

from skep.domain.assignments import Assignment
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.providers import Allocation
from skep.domain.resources import Resources


def assigned(
    resources: Resources, host: str = "host-1", *, allocation: Allocation | None = None, end: int | None = None
) -> Assignment:
    """Return the assignment of a build on a host whose node is named after it."""
    return Assignment(
        node=NodeUuid(f"node-{host}"),
        host=host,
        cell=CellUuid("c"),
        resources=resources,
        allocation=allocation,
        end=end,
        role="build",
    )
