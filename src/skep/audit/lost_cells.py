"""Servers of cells that are not there: mapped into a cell while it was deleted, by a release that did not look.

Nothing of them is left but what is known above. So that their owners can delete them, and quota goes with that, they
become rows of cell0 in ERROR. Whatever the database of their cell has of them is not touched.
"""

from __future__ import annotations

from functools import partial

import msgspec
import sqlalchemy as sa
import structlog

from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database.api import build_requests
from skep.database.api.tables import cells, instance_mappings, quota_charges
from skep.database.cell import builds
from skep.database.cell.builds import Staged
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import StorageUnavailable
from skep.domain.flavors import Flavor
from skep.domain.ids import CELL0, InstanceUuid, ProjectId, RequestId, UserId
from skep.domain.instances import Fault, Instance, State
from skep.domain.request_specs import RequestSpec

mapping = instance_mappings.c

NO_CELL = ~sa.exists().where(cells.c.uuid == mapping.cell)
"""Says of a mapping that the cell that it names is not there."""

log = structlog.get_logger("skep.audit")


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """What is known above of a server whose cell is not there, under the attempt that was raised for it."""

    attempt: int
    request_id: RequestId
    created_at: int
    spec: RequestSpec


async def keep_in_cell0(sources: Sources, difference: Difference) -> bool:
    """Make a server of a missing cell a row of cell0 in ERROR; False when its cell is there again, or it is deleted.

    Raises StorageUnavailable where cell0 cannot be written. It may be repeated: each time raises the attempt.
    """
    uuid, now = InstanceUuid(difference.subject), Clock().now()
    cell0 = sources.cells.get(CELL0)
    if cell0 is None:
        raise StorageUnavailable("this process was not told of cell0")
    lost = await sources.api.write(partial(_take, uuid=uuid))
    if lost is None:
        return False
    staged = _staged(uuid, lost, difference.evidence["cell"], now)
    await cell0.write(partial(builds.stage, staged=[staged], now=now))
    if not await sources.api.write(partial(_point_to_cell0, uuid=uuid, attempt=lost.attempt)):
        await cell0.write(partial(builds.unstage, uuid=uuid, attempt=lost.attempt))
        return False
    await cell0.write(partial(builds.settle, mapped=[(uuid, lost.attempt)], now=now))
    return True


def _take(connection: sa.Connection, uuid: InstanceUuid) -> Lost | None:
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


def _spec(connection: sa.Connection, uuid: InstanceUuid, project: ProjectId) -> RequestSpec:
    """Return what was asked for; where that is lost too, what the quota charge still says of it."""
    try:
        spec = build_requests.spec_of(connection, uuid)
    except msgspec.DecodeError as error:
        log.warning("what was asked for cannot be read", instance=uuid, error=str(error))
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


def _staged(uuid: InstanceUuid, lost: Lost, cell: str, now: int) -> Staged:
    spec = lost.spec
    fault = Fault(
        code=500,
        message="The cell of the server was deleted; what it ran as is not known any more",
        created_at=now,
        details=f"cell {cell} is not there; the name of the server and its metadata were in its database",
    )
    instance = Instance(
        uuid=uuid,
        project_id=spec.project_id,
        user_id=spec.user_id,
        name=f"Server {uuid}",
        hostname=uuid,
        flavor=spec.flavor,
        image=spec.image,
        created_at=lost.created_at,
        request_id=lost.request_id,
        attempt=lost.attempt,
        fault=fault,
        state=State.ERROR,
    )
    context = RequestContext(request_id=lost.request_id, project_id=spec.project_id, user_id=spec.user_id)
    return Staged(instance=instance, spec=spec, context=context, epoch="")


def _point_to_cell0(connection: sa.Connection, uuid: InstanceUuid, attempt: int) -> bool:
    mine = sa.and_(mapping.instance == uuid, mapping.attempt == attempt, mapping.deleted_at.is_(None), NO_CELL)
    # A delete that waited for the cell is acted on at once.
    return connection.execute(instance_mappings.update().where(mine).values(cell=CELL0, not_before=0)).rowcount == 1
