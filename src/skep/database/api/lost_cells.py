"""Servers of cells that are not there: the writes that point their mappings at cell0."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
import structlog

from skep.database.api import build_requests
from skep.database.api.instance_mappings import NO_CELL
from skep.database.api.tables import instance_mappings, quota_charges
from skep.domain.flavors import Flavor
from skep.domain.ids import CELL0, InstanceUuid, ProjectId, RequestId, UserId
from skep.domain.request_specs import RequestSpec

mapping = instance_mappings.c

log = structlog.get_logger("skep.database")


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """What is known above of a server whose cell is not there, under the attempt that was raised for it."""

    attempt: int
    request_id: RequestId
    created_at: int
    spec: RequestSpec


def take(connection: sa.Connection, uuid: InstanceUuid) -> Lost | None:
    """Raise the attempt of a server whose cell is not there, and read what is known of it."""
    found = connection.execute(
        instance_mappings.update()
        .where(mapping.instance == uuid, mapping.deleted_at.is_(None), mapping.cell.is_not(None), NO_CELL)
        .values(attempt=mapping.attempt + 1, owner=None)
        .returning(mapping.attempt, mapping.request_id, mapping.created_at, mapping.project_id)
    ).first()
    if found is None:
        return None
    return Lost(
        attempt=found.attempt,
        request_id=RequestId(found.request_id),
        created_at=found.created_at,
        spec=_spec(connection, uuid, ProjectId(found.project_id)),
    )


def point_to_cell0(connection: sa.Connection, uuid: InstanceUuid, attempt: int) -> bool:
    """Point the mapping of a server at cell0; False when its attempt, its cell or its life changed meanwhile."""
    mine = sa.and_(mapping.instance == uuid, mapping.attempt == attempt, mapping.deleted_at.is_(None), NO_CELL)
    # A delete that waited for the cell is acted on at once.
    return connection.execute(instance_mappings.update().where(mine).values(cell=CELL0, not_before=0)).rowcount == 1


def _spec(connection: sa.Connection, uuid: InstanceUuid, project: ProjectId) -> RequestSpec:
    """Return what was asked for; where that is lost too, what the quota charge still says of it."""
    try:
        spec = build_requests.spec_of(connection, uuid)
    except msgspec.DecodeError as error:
        log.warning("RequestSpec not read", instance=uuid, error=str(error))
        spec = None
    if spec is not None:
        return spec
    charge = connection.execute(sa.select(quota_charges).where(quota_charges.c.instance == uuid)).first()
    flavor = Flavor(
        flavorid="",
        name="unknown",
        vcpus=charge.cores if charge is not None else 0,
        memory_mb=charge.ram if charge is not None else 0,
        root_gb=0,
    )
    return RequestSpec(project_id=project, user_id=UserId(charge.user_id if charge is not None else ""), flavor=flavor)
