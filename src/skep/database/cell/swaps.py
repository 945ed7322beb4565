"""Volumes that stand in the place of others: what the rows of their servers say of that, from its beginning to its end.

The row names the other volume before the host is told, in the unit that begins the action. Whatever ends the action
says there that the host is done with it, and whether the guest uses the other volume. A super conductor finds that, as
it finds volumes that are to follow their servers, and tells the volume service.
"""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.cell.instances import ELSEWHERE, volumes_at
from skep.database.cell.tables import instances
from skep.database.stored import dump, load
from skep.domain.ids import InstanceUuid
from skep.domain.volumes import ServerVolume, VolumeSwap

row = instances.c


def name(connection: sa.Connection, uuid: InstanceUuid, old: ServerVolume, swap: VolumeSwap) -> bool:
    """Write which volume is to stand in the place of `old`.

    False, and nothing written, where the server has that no more, or by another attachment or host, or a swap is there.
    """
    stored = connection.execute(sa.select(row.volumes).where(row.uuid == uuid, ~ELSEWHERE)).scalar()
    volumes = _read(stored)
    mine = msgspec.structs.replace(old, swap=None, delete_on_termination=False)
    if not any(msgspec.structs.replace(one, delete_on_termination=False) == mine for one in volumes):
        return False
    named = [msgspec.structs.replace(one, swap=swap) if one.id == old.id else one for one in volumes]
    _write(connection, uuid, named)
    return True


def over(connection: sa.Connection, uuid: InstanceUuid, task_id: str, *, copied: bool) -> None:
    """Write that the host of a server has no more to do with a swap, and whether the guest uses the other volume."""
    volumes = _read(connection.execute(sa.select(row.volumes).where(row.uuid == uuid)).scalar())
    told = [_told(one, task_id, copied=copied) for one in volumes]
    if told != volumes:
        _write(connection, uuid, told)


def _told(volume: ServerVolume, task_id: str, *, copied: bool) -> ServerVolume:
    swap = volume.swap
    if swap is None or swap.task_id != task_id:
        return volume
    return msgspec.structs.replace(volume, swap=msgspec.structs.replace(swap, over=True, copied=copied))


def _read(stored: bytes | None) -> list[ServerVolume]:
    return load(stored, list[ServerVolume]) if stored else []


def _write(connection: sa.Connection, uuid: InstanceUuid, volumes: list[ServerVolume]) -> None:
    values = {"volumes": dump(tuple(volumes)), "volumes_at": volumes_at(volumes)}
    connection.execute(instances.update().where(row.uuid == uuid).values(values))
