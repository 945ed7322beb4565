"""Networks that projects have without asking for one."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api.network_tables import auto_allocated_topologies as topologies
from skep.database.upsert import written


class ProjectTopology(msgspec.Struct, frozen=True):
    """What was made for a project. None: it was deleted since, or never made."""

    network_id: str | None
    router_id: str | None


def get(connection: sa.Connection, project_id: str) -> ProjectTopology | None:
    """Return what was made for a project."""
    row = connection.execute(topologies.select().where(topologies.c.project_id == project_id)).first()
    return None if row is None else ProjectTopology(row.network_id, row.router_id)


def put(connection: sa.Connection, project_id: str, network_id: str, router_id: str | None) -> None:
    """Note what was made for a project, in place of what was before."""
    values = {"project_id": project_id, "network_id": network_id, "router_id": router_id}
    connection.execute(written(connection, topologies, "project_id", "network_id", "router_id"), values)


def remove(connection: sa.Connection, project_id: str) -> None:
    """Forget what was made for a project."""
    connection.execute(topologies.delete().where(topologies.c.project_id == project_id))
