"""Servers of cells that are not there: mapped into a cell while it was deleted, by a release that did not look.

Nothing of them is left but what is known above. So that their owners can delete them, and quota goes with that, they
become rows of cell0 in ERROR. Whatever the database of their cell has of them is not touched.
"""

from __future__ import annotations

from functools import partial

from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database.api import lost_cells
from skep.database.api.lost_cells import Lost
from skep.database.cell import builds
from skep.database.cell.builds import Staged
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import CELL0, InstanceUuid
from skep.domain.instances import Fault, Instance, State


async def keep_in_cell0(sources: Sources, difference: Difference) -> bool:
    """Make a server of a missing cell a row of cell0 in ERROR; False when its cell is there again, or it is deleted.

    Raises StorageUnavailable where cell0 cannot be written. It may be repeated: each time raises the attempt.
    """
    uuid, now = InstanceUuid(difference.subject), Clock().now()
    cell0 = sources.cells.get(CELL0)
    if cell0 is None:
        raise StorageUnavailable("this process does not know cell0")
    lost = await sources.api.write(partial(lost_cells.take, uuid=uuid))
    if lost is None:
        return False
    staged = _staged(uuid, lost, difference.evidence["cell"], now)
    await cell0.write(partial(builds.stage, staged=[staged], now=now))
    if not await sources.api.write(partial(lost_cells.point_to_cell0, uuid=uuid, attempt=lost.attempt)):
        await cell0.write(partial(builds.unstage, uuid=uuid, attempt=lost.attempt))
        return False
    await cell0.write(partial(builds.settle, mapped=[(uuid, lost.attempt)], now=now))
    return True


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
        image=None if spec.boot_from_volume else spec.image,
        created_at=lost.created_at,
        request_id=lost.request_id,
        attempt=lost.attempt,
        fault=fault,
        state=State.ERROR,
    )
    context = RequestContext(request_id=lost.request_id, project_id=spec.project_id, user_id=spec.user_id)
    return Staged(instance=instance, assignment=None, spec=spec, context=context, epoch="")
