"""What hosts do with volumes for the volume service, as the rows of their servers say it from its beginning to its end.

The row names the other volume of a swap, or the snapshot, before the host is told, in the unit that begins the action.
Whatever ends the action says there that the host is done with it, and what came of it. A super conductor finds that, as
it finds volumes that are to follow their servers, and tells the volume service.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions
from skep.database.cell.actions import ActionEvent
from skep.database.cell.instances import ELSEWHERE
from skep.database.cell.tables import instances
from skep.database.cell.volumes import columns
from skep.database.stored import load
from skep.domain.actions import ACTIONS, SWAP
from skep.domain.ids import InstanceUuid
from skep.domain.volumes import AssistedSnapshot, ServerVolume, VolumePlug, VolumeSwap

row = instances.c


def name(connection: sa.Connection, uuid: InstanceUuid, old: ServerVolume, swap: VolumeSwap) -> bool:
    """Write which volume is to stand in the place of `old`; False where that is not in the row as it was."""
    return _write_beside(connection, uuid, old, swap=swap)


def assist(connection: sa.Connection, uuid: InstanceUuid, of: ServerVolume, snapshot: AssistedSnapshot) -> bool:
    """Write which snapshot of a volume is made or deleted; False where the volume is not in the row as it was."""
    return _write_beside(connection, uuid, of, snapshot=snapshot)


def plug(connection: sa.Connection, uuid: InstanceUuid, volume: ServerVolume) -> bool:
    """Write one more volume that the host of a server gives to its guest; False where there is no row to write."""
    found = connection.execute(sa.select(row.volumes).where(row.uuid == uuid, ~ELSEWHERE)).first()
    if found is None:
        return False
    _write(connection, uuid, [*_read(found.volumes), volume])
    return True


def unplug(connection: sa.Connection, uuid: InstanceUuid, of: ServerVolume, task_id: str) -> bool:
    """Write that a volume is taken from its guest; False where the volume is not in the row as it was."""
    return _write_beside(connection, uuid, of, plug=VolumePlug(task_id=task_id, leaves=True))


def _write_beside(connection: sa.Connection, uuid: InstanceUuid, volume: ServerVolume, **said: Any) -> bool:
    """Write something of a volume.

    False, and nothing written, where the server has it no more, or by another attachment or host, or something is done
    with it already.
    """
    volumes = _read(connection.execute(sa.select(row.volumes).where(row.uuid == uuid, ~ELSEWHERE)).scalar())
    mine = msgspec.structs.replace(volume, swap=None, snapshot=None, plug=None, delete_on_termination=False)
    if not any(msgspec.structs.replace(one, delete_on_termination=False) == mine for one in volumes):
        return False
    _write(connection, uuid, [msgspec.structs.replace(one, **said) if one.id == volume.id else one for one in volumes])
    return True


def over(connection: sa.Connection, uuid: InstanceUuid, task_id: str, *, well: bool) -> None:
    """Write that the host of a server has no more to do with a volume, and whether what it did went well."""
    volumes = _read(connection.execute(sa.select(row.volumes).where(row.uuid == uuid)).scalar())
    told = [_told(one, task_id, well=well) for one in volumes]
    if told != volumes:
        _write(connection, uuid, told)


def kept_anew(connection: sa.Connection, uuid: InstanceUuid, swap: VolumeSwap, attachment_id: str) -> None:
    """Write by which attachment the other volume of a swap is kept now, unless the row says something else of it."""
    volumes = _read(connection.execute(sa.select(row.volumes).where(row.uuid == uuid, ~ELSEWHERE)).scalar())
    anew = msgspec.structs.replace(swap, attachment_id=attachment_id)
    if any(one.swap == swap for one in volumes):
        _write(
            connection, uuid, [msgspec.structs.replace(one, swap=anew) if one.swap == swap else one for one in volumes]
        )


def not_ended(connection: sa.Connection, uuid: InstanceUuid, swap: VolumeSwap, why: str, now: int) -> None:
    """Write into the action of a swap, once, that the volume service does not end its move.

    `why`: as the server's owner may read it.
    """
    event = ACTIONS[SWAP].event
    assert event is not None
    if any(one.details == why for one in actions.events_of(connection, uuid, swap.task_id)):
        return
    began_at = actions.began_at(connection, uuid, swap.task_id)
    actions.finish(
        connection,
        ActionEvent(
            instance=uuid,
            request_id=swap.task_id,
            event=event,
            host=swap.host,
            started_at=now if began_at is None else began_at,
            finished_at=now,
            result="Error",
            details=why,
        ),
    )


def _told(volume: ServerVolume, task_id: str, *, well: bool) -> ServerVolume:
    swap, snapshot = volume.swap, volume.snapshot
    if swap is not None and swap.task_id == task_id:
        swap = msgspec.structs.replace(swap, over=True, copied=well)
    if snapshot is not None and snapshot.task_id == task_id:
        snapshot = msgspec.structs.replace(snapshot, over=True, done=well)
    told = msgspec.structs.replace(volume, swap=swap, snapshot=snapshot)
    plug = volume.plug
    if plug is None or plug.task_id != task_id:
        return told
    if plug.leaves == well:
        # The guest has it no more, or never got it: nothing keeps it.
        return msgspec.structs.replace(told, plug=None, leaving=True)
    return msgspec.structs.replace(told, plug=msgspec.structs.replace(plug, over=True))


def _read(stored: bytes | None) -> list[ServerVolume]:
    return load(stored, list[ServerVolume]) if stored else []


def _write(connection: sa.Connection, uuid: InstanceUuid, volumes: list[ServerVolume]) -> None:
    connection.execute(instances.update().where(row.uuid == uuid).values(columns(volumes)))
