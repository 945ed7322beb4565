"""Which networks, routers, groups and hosts changed, in the order of changes; and the numbers of networks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from skep.database.api.host_network_tables import network_changes, network_segments
from skep.database.api.network_rows import portions
from skep.database.api.network_tables import networks
from skep.database.upsert import written
from skep.domain.errors import Conflict
from skep.domain.host_networks import LEAST_SEGMENT, MOST_SEGMENT, HostNetworkChanges

MOST_SUBJECTS = 5000
"""Of one answer."""

KEPT_SECONDS = 172_800
"""Changes, and tunnels of silent hosts, are forgotten after two days. What was looked at before counts for an hour, and
a host that is silent for a day is no peer."""

OF_TIMELINE = "timeline"
"""The subject that changes when the database goes back in time: it concerns all."""
LOST_CHANGES, LOST_NUMBERS = 1 << 32, 1 << 16
"""So many changes, and numbers of networks, a database that went back may have lost: they are left out."""

change = network_changes.c.change


def last(connection: sa.Connection) -> int:
    """Return the number of the last change."""
    return connection.scalar(sa.select(sa.func.max(change))) or 0


def since(connection: sa.Connection, before: int) -> HostNetworkChanges:
    """Return what changed after the change `before`."""
    query = sa.select(network_changes.c.subject, change).where(change > before).order_by(change.desc())
    found = connection.execute(query.limit(MOST_SUBJECTS + 1)).all()
    if not found:
        return HostNetworkChanges(change=last(connection))
    many = len(found) > MOST_SUBJECTS or any(one.subject == OF_TIMELINE for one in found)
    return HostNetworkChanges(
        change=found[0].change, subjects=() if many else tuple(sorted(one.subject for one in found)), many=many
    )


def note(connection: sa.Connection, subjects: Collection[str], now: int) -> None:
    """Note that something of these changed, which no trigger sees."""
    if subjects:
        _note(connection, subjects, last(connection) + 1, now)


def leave_out_lost(connection: sa.Connection, timeline: int, now: int) -> None:
    """Begin a timeline of a database that went back in time: nothing that it may have given before is given again.

    Conductors may have followed changes that are lost, so all of theirs may have changed. Hosts may bring networks
    whose numbers are lost: once no number is left above, these count as numbers of networks that are gone.
    """
    _note(connection, [OF_TIMELINE], last(connection) + LOST_CHANGES, now)
    highest = connection.scalar(sa.select(sa.func.max(network_segments.c.number))) or 0
    if highest < MOST_SEGMENT:
        number = min(highest + LOST_NUMBERS, MOST_SEGMENT)
        lost = network_segments.insert().values(network_id=f"{OF_TIMELINE} {timeline}", number=number)
        connection.execute(lost)


def _note(connection: sa.Connection, subjects: Collection[str], number: int, now: int) -> None:
    rows = [{"subject": one, "change": number, "changed_at": now} for one in sorted(subjects)]
    connection.execute(written(connection, network_changes, "subject", "change", "changed_at"), rows)


def purge(connection: sa.Connection, before: int, limit: int) -> int:
    """Forget changes of long ago, but for the last, and return how many; no look is as old."""
    old = sa.select(network_changes.c.subject).where(
        network_changes.c.changed_at < before, change < sa.select(sa.func.max(change)).scalar_subquery()
    )
    gone = network_changes.delete().where(network_changes.c.subject.in_(old.order_by(change).limit(limit)))
    return connection.execute(gone).rowcount


def numbers(connection: sa.Connection, network_ids: list[str]) -> dict[str, int]:
    """Return the numbers of networks on the wire; one that has none yet has no entry."""
    row = network_segments.c
    found: dict[str, int] = {}
    for some in portions(network_ids):
        query = sa.select(row.network_id, row.number).where(row.network_id.in_(some))
        found |= {one.network_id: one.number for one in connection.execute(query)}
    return found


def number(connection: sa.Connection, network_ids: Sequence[str]) -> None:
    """Give networks that have none their numbers. Raises Conflict when all are in use."""
    known = numbers(connection, list(network_ids))
    for one in network_ids:
        if one not in known:
            connection.execute(network_segments.insert().values(network_id=one, number=_free(connection)))


def _free(connection: sa.Connection) -> int:
    """Return a number above all that were given; once there is none, the least of a network that is gone."""
    row = network_segments.c
    highest = connection.scalar(sa.select(sa.func.max(row.number)))
    if highest is None:
        return LEAST_SEGMENT
    if highest < MOST_SEGMENT:
        return int(highest) + 1
    gone = sa.select(sa.func.min(row.number)).where(~sa.exists().where(networks.c.id == row.network_id))
    free = connection.scalar(gone)
    if free is None:
        raise Conflict(f"each of the {MOST_SEGMENT} numbers of networks is in use")
    connection.execute(network_segments.delete().where(row.number == free))
    return int(free)
