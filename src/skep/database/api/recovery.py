"""The writes of an API database that went back in time: which servers wait, and which cell their mappings follow."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from skep.database import timelines
from skep.database.api import ends, host_mappings, lost_ports, network_changes, quotas
from skep.database.api.instance_mappings import Mapping
from skep.database.api.tables import (
    build_requests,
    instance_mappings,
    request_specs,
    requests,
    server_group_members,
    server_groups,
)
from skep.database.api.time_tables import recovering_servers, time
from skep.database.stored import dump, load
from skep.database.timelines import RecoveryRow
from skep.database.upsert import insert
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.instances import Instance
from skep.domain.request_specs import RequestSpec
from skep.domain.timelines import Moment
from skep.domain.vifs import LostPort

mappings = instance_mappings.c
held = recovering_servers.c


class MappedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server as its cell knows it."""

    instance: Instance
    spec: RequestSpec
    context: RequestContext


def begin(connection: sa.Connection, seen: Moment | None, reason: str, now: int) -> None:
    """Begin a recovery: no server that has no cell is placed before all cells were asked for it."""
    timeline = timelines.begin_anew(connection, time, seen, reason, now)
    network_changes.leave_out_lost(connection, timeline, now)
    connection.execute(recovering_servers.delete())
    waiting = sa.select(mappings.instance).where(mappings.cell.is_(None), mappings.deleted_at.is_(None))
    connection.execute(recovering_servers.insert().from_select(["instance"], waiting))


def begin_if_lost(connection: sa.Connection, seen: Moment, who: str, now: int) -> bool:
    """Begin a recovery if the database has lost what `who` saw; tell whether it did."""
    if not timelines.has_lost(connection, time, seen):
        return False
    begin(connection, seen, f"{who} saw timeline {seen.timeline}, tick {seen.tick}", now)
    return True


def under_way(connection: sa.Connection) -> RecoveryRow | None:
    """Return how the recovery stands; None when there is none."""
    return timelines.recovery(connection, time)


def any_unplaced(connection: sa.Connection) -> bool:
    """Tell whether any server has no cell, whoever works on it."""
    unplaced = sa.and_(mappings.cell.is_(None), mappings.deleted_at.is_(None))
    return connection.execute(sa.select(mappings.instance).where(unplaced).limit(1)).first() is not None


def undecided(connection: sa.Connection, after: str, limit: int) -> list[InstanceUuid]:
    """Return servers that wait and are not doubtful, by their UUIDs, some at a time."""
    query = sa.select(held.instance).where(held.doubt.is_(None), held.instance > after)
    return [InstanceUuid(one) for one in connection.scalars(query.order_by(held.instance).limit(limit))]


def follow(connection: sa.Connection, instance: InstanceUuid, before: CellUuid | None, cell: CellUuid) -> bool:
    """Point a mapping at the cell that has the server; False when it changed meanwhile."""
    same = mappings.cell.is_(None) if before is None else mappings.cell == before
    followed = connection.execute(
        instance_mappings.update()
        .where(mappings.instance == instance, same, mappings.deleted_at.is_(None))
        .values(cell=cell, owner=None)
    ).rowcount
    if followed:
        connection.execute(build_requests.delete().where(build_requests.c.instance == instance))
        let_go(connection, [instance])
    return followed == 1


def go_on(connection: sa.Connection, instance: InstanceUuid, highest: int, now: int) -> bool:
    """Let a server be placed that no cell has, its next attempt above all that cells have heard of.

    One that a user deleted meanwhile ends instead. False when it was not held.
    """
    raised = sa.case((mappings.attempt < highest, highest), else_=mappings.attempt)
    waits = sa.and_(mappings.instance == instance, mappings.cell.is_(None))
    connection.execute(instance_mappings.update().where(waits).values(attempt=raised, owner=None))
    was_held = let_go(connection, [instance])
    wanted_gone = sa.select(mappings.instance).where(waits, mappings.delete_intent_at.is_not(None))
    if connection.execute(wanted_gone).first() is not None:
        ends.end_unplaced(connection, instance, now)
    return was_held


def doubt(connection: sa.Connection, instance: InstanceUuid, reason: str) -> None:
    """Leave a server to an operator."""
    connection.execute(recovering_servers.update().where(held.instance == instance).values(doubt=reason))


def doubtful(connection: sa.Connection) -> list[tuple[InstanceUuid, str]]:
    """Return the servers without a cell that are left to an operator, each with the reason."""
    rows = connection.execute(sa.select(held.instance, held.doubt).where(held.doubt.is_not(None)))
    return [(InstanceUuid(row.instance), row.doubt) for row in rows]


def let_go(connection: sa.Connection, instances: Sequence[str]) -> bool:
    """Hold servers no longer; False when none was held."""
    return connection.execute(recovering_servers.delete().where(held.instance.in_(instances))).rowcount > 0


def end(connection: sa.Connection, timeline: int) -> bool:
    """End the recovery once nothing is undecided; what is doubtful stays so."""
    return not undecided(connection, "", 1) and timelines.end(connection, time, timeline)


def store_mapped(connection: sa.Connection, server: MappedServer, cell: CellUuid) -> None:
    """Store a server anew that its cell has and that nothing is known of here; a repeat changes nothing."""
    instance, context = server.instance, server.context
    rows = (
        (
            requests,
            {
                "request_id": instance.request_id,
                "project_id": instance.project_id,
                "min_count": 1,
                "max_count": 1,
                "met": True,
                "context": dump(context),
                "created_at": instance.created_at,
            },
        ),
        (request_specs, {"instance": instance.uuid, "body": dump(server.spec)}),
        (
            instance_mappings,
            {
                "instance": instance.uuid,
                "request_id": instance.request_id,
                "project_id": instance.project_id,
                "cell": cell,
                "attempt": instance.attempt,
                "not_before": 0,
                "created_at": instance.created_at,
            },
        ),
    )
    for table, values in rows:
        connection.execute(insert(connection, table).values(values).on_conflict_do_nothing())
    group = server.spec.group
    if (
        group is not None
        and connection.execute(sa.select(server_groups.c.uuid).where(server_groups.c.uuid == group.uuid)).first()
    ):
        member = insert(connection, server_group_members).values(instance=instance.uuid, group_uuid=group.uuid)
        connection.execute(member.on_conflict_do_nothing())


def follow_row(
    connection: sa.Connection,
    server: MappedServer,
    before: Mapping | None,
    cell: CellUuid,
    now: int,
    *,
    has_ports: bool,
) -> list[LostPort] | None:
    """Have the mapping of a server name the cell that has its row, and its project be charged for it.

    `before`: the mapping as it was read. `has_ports`: this database has the ports of servers, so that those of a server
    that it has forgotten are made again at once, before another server is given its addresses. Return those that cannot
    be made; None, and nothing done, when the mapping changed since.
    """
    uuid = server.instance.uuid
    if before is None:
        store_mapped(connection, server, cell)
    elif before.cell != cell and not follow(connection, uuid, before.cell, cell):
        return None
    quotas.charge_existing(connection, server.instance)
    return lost_ports.remake(connection, server.instance, now) if before is None and has_ports else []


def specs_of(connection: sa.Connection, instances: Sequence[str]) -> dict[str, RequestSpec]:
    """Return what was asked for of servers."""
    query = sa.select(request_specs).where(request_specs.c.instance.in_(instances))
    return {one.instance: load(one.body, RequestSpec) for one in connection.execute(query)}


def contexts_of(connection: sa.Connection, instances: Sequence[str]) -> dict[str, RequestContext]:
    """Return the contexts of the requests that servers came with."""
    query = sa.select(mappings.instance, requests.c.context).join_from(
        instance_mappings, requests, requests.c.request_id == mappings.request_id
    )
    found = connection.execute(query.where(mappings.instance.in_(instances)))
    return {one.instance: load(one.context, RequestContext) for one in found}


def hosts_of(connection: sa.Connection, cell: CellUuid) -> list[tuple[NodeUuid, str]]:
    """Return node and name of the hosts that are mapped to a cell."""
    return [(one.node, one.host) for one in host_mappings.every(connection) if one.cell == cell]
