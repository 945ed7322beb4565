"""Finding one server, wherever it is: a build request, a row of a cell, a row of cell0.

The mapping says which. It is read first, together with the build request; when the cell's row is not there then, the
server moved on or was deleted meanwhile, and the mapping is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from skep.api import telling
from skep.api.cells import read_cell, write_cell
from skep.api.requests import ApiRequest
from skep.api.services import ApiServices
from skep.database import Connection
from skep.database.api import build_requests
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.database.cell import instances
from skep.domain.errors import Conflict, NotFound, Unavailable
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Instance, PowerState, State, Task

TRIES = 50
PAUSE_SECONDS = 0.02
"""Between looks at a server that is just being mapped to a cell."""


class LocatedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server and where it is."""

    instance: Instance
    mapping: Mapping
    groups: tuple[str, ...] = ()

    @property
    def cell(self) -> CellUuid | None:
        """None: it is still a build request."""
        return self.mapping.cell


class CellUnreadable(Unavailable):
    """The cell that has the server cannot be read now; what is known above it."""

    def __init__(self, mapping: Mapping, groups: tuple[str, ...]) -> None:
        self.mapping = mapping
        self.groups = groups
        super().__init__(
            f"The part of the cloud that has instance {mapping.instance} does not answer now. Nothing was changed; "
            "try again later."
        )


async def find(
    request: ApiRequest, *, deleted: bool = False, going: bool = False, rule: str | None = None
) -> LocatedServer:
    """Find the server that the path names and check that the caller may do to it what a rule, the route's unless told,
    is about.

    With `going` also one whose guest is gone, and whose ports are not yet: it is still being deleted. Raises NotFound
    (the server is not there, or it is another project's), Forbidden, CellUnreadable.
    """
    uuid = InstanceUuid(request.params["id"])
    try:
        found = await look_up(request.services, uuid, deleted=deleted, going=going)
    except CellUnreadable as error:
        request.authorize_seen(not_found(uuid), project_id=error.mapping.project_id, rule=rule)
        raise
    if found is None:
        raise not_found(uuid)
    owner = found.instance
    request.authorize_seen(not_found(uuid), project_id=owner.project_id, user_id=owner.user_id, rule=rule)
    return found


def not_found(uuid: str) -> NotFound:
    """Return the error for a server that is not there."""
    return NotFound(f"Instance {uuid[:80]} could not be found.")


async def look_up(
    services: ApiServices, uuid: InstanceUuid, *, deleted: bool = False, going: bool = False
) -> LocatedServer | None:
    """Find a server, a deleted one, or one whose ports are still being released, only when asked.

    Raises CellUnreadable.
    """
    for _ in range(TRIES):
        above = await services.database.read(partial(_above, uuid=uuid))
        if above is None:
            return None
        mapping, waiting, groups = above
        if mapping.deleted_at is not None and not deleted:
            return None
        if waiting is not None:
            return LocatedServer(instance=waiting, mapping=mapping, groups=groups)
        if mapping.cell is None:
            return None
        try:
            unit = partial(instances.get, uuid=uuid, deleted=deleted or going)
            row = await read_cell(services, mapping.cell, unit)
        except Unavailable as error:
            raise CellUnreadable(mapping, groups) from error
        if row is not None and row.deleted_at is not None and not deleted:
            row = _still_going(row)
        if row is not None and not (row.state is State.AWAY and await _moved(services, mapping)):
            return LocatedServer(instance=_overlaid(row, mapping), mapping=mapping, groups=groups)
        if row is None and not await _moved(services, mapping):
            return None
    return None


async def find_lost(request: ApiRequest) -> Mapping | None:
    """Return the mapping of the server that the path names if its cell has no row of it, as after a restore.

    All that is known of it is what was asked for; it can be deleted. Raises CellUnreadable; NotFound and Forbidden for
    another's.
    """
    services, uuid = request.services, InstanceUuid(request.params["id"])
    mapping = await services.database.read(partial(mappings.get, instance=uuid))
    if (
        mapping is None
        or mapping.cell is None
        or mapping.deleted_at is not None
        or mapping.delete_intent_at is not None
    ):
        return None
    request.authorize_seen(not_found(uuid), project_id=mapping.project_id)
    try:
        row = await read_cell(services, mapping.cell, partial(instances.get, uuid=uuid, deleted=True))
    except Unavailable as error:
        raise CellUnreadable(mapping, ()) from error
    return mapping if row is None and not await _moved(services, mapping) else None


async def change(request: ApiRequest, alter: Callable[[Instance], Instance]) -> LocatedServer:
    """Change the server that the path names, wherever it is, and return it as it is then.

    `alter` may raise to refuse. A server that is just being mapped to a cell is waited for.

    Raises NotFound, Forbidden, Conflict.
    """
    services = request.services
    found = await find(request)
    uuid, before = found.instance.uuid, found.instance

    def noted(instance: Instance) -> Instance:
        nonlocal before
        before = instance
        return alter(instance)

    for _ in range(TRIES):
        now = services.clock.now()
        if found.cell is None:
            unit = partial(build_requests.change, instance=uuid, alter=noted, now=now)
            changed = await services.database.write(unit, intake=True)
        else:
            row_unit = partial(instances.change, uuid=uuid, alter=noted, now=now)
            changed = await write_cell(services, found.cell, row_unit)
        if changed is not None:
            after = msgspec.structs.replace(found, instance=_overlaid(changed, found.mapping))
            telling.server(request, before, after.instance)
            return after
        await asyncio.sleep(PAUSE_SECONDS)
        found = await find(request)
    raise Conflict(f"Instance {uuid} is being moved; try again.")


def refuse_if_locked(request: ApiRequest, instance: Instance) -> None:
    """Raise Conflict for a locked server, unless the caller is an admin."""
    if instance.locked and not request.context.is_admin:
        raise Conflict(f"Instance {instance.uuid} is locked")


def _above(connection: Connection, uuid: InstanceUuid) -> tuple[Mapping, Instance | None, tuple[str, ...]] | None:
    found = mappings.get_with_group(connection, uuid)
    if found is None:
        return None
    mapping, group = found
    waiting = build_requests.get(connection, uuid) if mapping.cell is None else None
    return mapping, waiting.instance if waiting is not None else None, (group,) if group is not None else ()


async def _moved(services: ApiServices, seen: Mapping) -> bool:
    now = await services.database.read(partial(mappings.get, instance=seen.instance))
    return now is not None and now.cell != seen.cell


def _still_going(row: Instance) -> Instance | None:
    """Return a deleted row whose mapping is open as what its server still has: interfaces that are being released.

    None where there are none, and for the row of a server that has moved to another cell.
    """
    if not row.vifs or row.state is not State.DELETED:
        return None
    return msgspec.structs.replace(row, state=State.ACTIVE, task=Task.DELETING, deleted_at=None)


def _overlaid(instance: Instance, mapping: Mapping) -> Instance:
    """Show what is true of the server and not written into its row yet: that it is settled, that it is to go."""
    if instance.state in (State.STAGED, State.AWAY):
        instance = msgspec.structs.replace(instance, state=settled(instance))
    if mapping.delete_intent_at is not None and instance.deleted_at is None and instance.task is None:
        instance = msgspec.structs.replace(instance, task=Task.DELETING)
    return instance


def settled(instance: Instance) -> State:
    """Return the state that a frozen row gets in a moment, when its mapping names its cell."""
    if instance.state is State.AWAY:
        if instance.task is Task.RESIZE_REVERTING:
            return State.RESIZED
        return State.ACTIVE if instance.power_state is PowerState.RUNNING else State.STOPPED
    return State.SCHEDULED if instance.host is not None else State.ERROR
