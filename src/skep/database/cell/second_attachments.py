"""Volumes of servers that are migrated live: connected to the target, too, before its guest is made ready.

The target asks how it reaches them while it prepares (`live_prepare`). A super conductor connects them then and writes
into the row by which attachments (`ServerVolume.beside`). They are the server's after the switch, in place of those of
the source. Where the migration comes to nothing they go once the target has undone its attempt, or is fenced.

One process at a time makes them, and the row says which: a service that lets go of what one has made for a host may cut
off what another has made for the same host.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.cell import volumes
from skep.database.cell.live_moves import PREPARING
from skep.database.cell.tables import migrations
from skep.database.cell.volumes import VolumesOfRow
from skep.domain.ids import InstanceUuid
from skep.domain.volumes import ServerVolume, VolumeBeside

move = migrations.c


def are_wanted(connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str) -> bool:
    """Tell whether a host makes ready for a server that is to come to it live, by this attempt."""
    mine = (move.instance == instance, move.dest_attempt == attempt, move.dest_host == host)
    return connection.execute(sa.select(move.uuid).where(move.step == PREPARING, *mine)).first() is not None


def take(
    connection: sa.Connection,
    before: VolumesOfRow,
    missing: Collection[str],
    attempt: int,
    making: VolumeBeside,
    now: int,
) -> VolumesOfRow | None:
    """Write which process makes attachments of the `missing` volumes (by `ServerVolume.id`); return the row as it is
    then. None, and nothing written, as `note`."""
    after = [msgspec.structs.replace(one, beside=making) if one.id in missing else one for one in before.volumes]
    if not note(connection, before, after, attempt, making.host, now):
        return None
    return volumes.told(connection, [before.instance]).get(before.instance)


def leave(connection: sa.Connection, instance: InstanceUuid, maker: str, now: int) -> None:
    """Write that a process makes no attachment of a server any more, and that there is none of those that it made."""
    before = volumes.told(connection, [instance]).get(instance)
    if before is None:
        return
    after = [
        msgspec.structs.replace(one, beside=None) if one.beside is not None and one.beside.maker == maker else one
        for one in before.volumes
    ]
    if after != list(before.volumes):
        volumes.note(connection, before, after, now)


def note(
    connection: sa.Connection, before: VolumesOfRow, after: Sequence[ServerVolume], attempt: int, host: str, now: int
) -> bool:
    """Write by which attachments volumes are connected to a target; False, and nothing written, where it has no use for
    them by now, or the row says something else."""
    return are_wanted(connection, before.instance, attempt, host) and volumes.note(connection, before, after, now)
