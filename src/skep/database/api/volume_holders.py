"""Servers that have volumes of a volume service, or may have some, and what becomes of these at the server's end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api import holders
from skep.database.api.holders import Holders
from skep.database.api.network_rows import portions
from skep.database.api.tables import instance_mappings as mappings
from skep.database.api.tables import volume_holders
from skep.database.stored import dump, load
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.volumes import VolumeEnds

_of_volumes = Holders(volume_holders)
_row = volume_holders.c

hold, hold_those, hold_living, hold_gone, hold_ended = (
    _of_volumes.hold,
    _of_volumes.hold_those,
    _of_volumes.hold_living,
    _of_volumes.hold_gone,
    _of_volumes.hold_ended,
)
releasable, end = _of_volumes.releasable, _of_volumes.end
look_soon, take_due, looked_at = _of_volumes.look_soon, _of_volumes.take_due, _of_volumes.looked_at
put_off = _of_volumes.put_off


class VolumeHolder(msgspec.Struct, frozen=True, kw_only=True):
    """What is known above the cells of the volumes of a server."""

    instance: InstanceUuid
    project_id: ProjectId | None
    """None: the server was none of this cloud's."""
    ends: VolumeEnds
    since: int


def have_looked_at(connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
    """Have a server of this cloud looked at soon; False where it is, or the server was none of this cloud's.

    A database that went back in time may have forgotten that it has volumes.
    """
    look_at = connection.execute(sa.select(_row.look_at).where(_row.instance == instance)).scalar()
    if look_at is None:
        return hold_living(connection, instance, now) or hold_gone(connection, instance, now)
    if look_at <= now + holders.FIRST_LOOK:
        return False
    look_soon(connection, [instance], now)
    return True


def tell_ends(connection: sa.Connection, ended: Mapping[InstanceUuid, tuple[ProjectId, VolumeEnds]]) -> None:
    """Note what becomes of the volumes of servers that end: their rows are not there for ever."""
    for instance, (project_id, ends) in ended.items():
        changed = volume_holders.update().where(_row.instance == instance)
        connection.execute(changed.values(project_id=project_id, ends=dump(ends)))


def begin_ends(connection: sa.Connection, ended: Mapping[InstanceUuid, tuple[ProjectId, VolumeEnds]]) -> None:
    """Note likewise what their rows say, unless that was compared with what they had: they have it no more."""
    compared = {one.instance for one in known(connection, [*ended]).values() if one.ends.compared}
    tell_ends(connection, {one: said for one, said in ended.items() if one not in compared})


def compare_ends(connection: sa.Connection, instance: InstanceUuid, had: Collection[str]) -> VolumeEnds:
    """Note which volumes go with a server that ended, by those that it has; return that.

    Of several processes the first decides: the others may see what that one has left.
    """
    holder = known(connection, [instance]).get(instance)
    if holder is None or holder.project_id is None:
        return VolumeEnds()
    if holder.ends.compared:
        return holder.ends
    ends = holder.ends.compared_with(had)
    tell_ends(connection, {instance: (holder.project_id, ends)})
    return ends


def known(connection: sa.Connection, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, VolumeHolder]:
    """Return what is known of those of these servers that may have volumes."""
    found: dict[InstanceUuid, VolumeHolder] = {}
    query = sa.select(
        _row.instance, _row.ends, _row.since, sa.func.coalesce(_row.project_id, mappings.c.project_id).label("project")
    ).outerjoin_from(volume_holders, mappings, mappings.c.instance == _row.instance)
    for some in portions([*map(str, servers)]):
        for one in connection.execute(query.where(_row.instance.in_(some))):
            found[InstanceUuid(one.instance)] = VolumeHolder(
                instance=InstanceUuid(one.instance),
                project_id=None if one.project is None else ProjectId(one.project),
                ends=load(one.ends, VolumeEnds) if one.ends else VolumeEnds(),
                since=one.since,
            )
    return found
