"""Assignments as columns of an instance's row: the one place that writes and reads them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.database.cell.tables import instances
from skep.database.stored import dump, load
from skep.domain.assignments import Assignment
from skep.domain.builds import Placed
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.providers import Allocation
from skep.domain.request_specs import RequestSpec


def columns_of(chosen: Assignment | Placed | None) -> dict[str, Any]:
    """Return the columns of a row whose attempt is on this host, or on none.

    Resources and end follow from the spec of the row, the cell is that of the database, and a build's role needs no
    column of the row: its attempt names it.
    """
    if chosen is None:
        return {"host": None, "node": None, "allocation": None}
    allocation = None if chosen.allocation is None else dump(chosen.allocation)
    return {"host": chosen.host, "node": chosen.node, "allocation": allocation}


def of_row(found: Any, spec: RequestSpec, home: CellUuid) -> Assignment:
    """Return the assignment of the build of a row in the cell `home`. Raises ValueError where the row has no host."""
    if found.host is None or found.node is None:
        raise ValueError("the row has no host")
    return Assignment(
        node=found.node,
        host=found.host,
        cell=home,
        resources=spec.resources(),
        allocation=load(found.allocation, Allocation) if found.allocation is not None else None,
        end=spec.expected_end,
        role="build",
    )


def allocation_of(connection: sa.Connection, uuid: InstanceUuid) -> Allocation | None:
    """Return what an instance holds of the inside of its host; None: nothing, or it has none."""
    found = connection.execute(sa.select(instances.c.allocation).where(instances.c.uuid == uuid)).scalar_one_or_none()
    return None if found is None else load(found, Allocation)
