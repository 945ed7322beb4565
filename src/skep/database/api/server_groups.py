"""Server groups and who is in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api.living import lives
from skep.database.api.tables import instance_mappings, server_group_members, server_groups
from skep.database.upsert import insert
from skep.domain.groups import GroupRule, Policy
from skep.domain.ids import CELL0, CellUuid, GroupUuid, InstanceUuid, ProjectId, UserId

MAX_NAMED = 500
"""Servers named in one statement."""

member = server_group_members.c
mapping = instance_mappings.c


class ServerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One server group."""

    uuid: GroupUuid
    name: str
    policy: Policy
    max_server_per_host: int | None = None
    """Only with anti-affinity; None: not said."""
    project_id: ProjectId
    user_id: UserId
    created_at: int

    def rule(self) -> GroupRule:
        """Return what placement must know."""
        return GroupRule(uuid=self.uuid, policy=self.policy, max_server_per_host=self.max_server_per_host or 1)


def get(connection: sa.Connection, uuid: str) -> ServerGroup | None:
    """Return one group."""
    row = connection.execute(sa.select(server_groups).where(server_groups.c.uuid == uuid)).first()
    return None if row is None else _group(row)


def cells_of(connection: sa.Connection, uuid: GroupUuid, without: Collection[str] = ()) -> tuple[CellUuid, ...]:
    """Return the cells that hold members of a group, `without` some members.

    A member without a cell is on no host, unless it was chosen a moment ago: then its claim has a slot already.
    """
    rows = connection.execute(
        sa.select(member.instance, mapping.cell)
        .join(instance_mappings, mapping.instance == member.instance)
        .where(member.group_uuid == uuid, mapping.cell.is_not(None), mapping.deleted_at.is_(None))
    )
    left_out = frozenset(without)
    return tuple(sorted({row.cell for row in rows if row.instance not in left_out} - {CELL0}))


def page(
    connection: sa.Connection, *, project: ProjectId | None, limit: int, offset: int = 0
) -> tuple[ServerGroup, ...]:
    """Return groups of a project, or of all projects, oldest first."""
    statement = sa.select(server_groups).order_by(server_groups.c.created_at, server_groups.c.uuid)
    if project is not None:
        statement = statement.where(server_groups.c.project_id == project)
    return tuple(_group(row) for row in connection.execute(statement.limit(limit).offset(offset)))


def add(connection: sa.Connection, group: ServerGroup, *, most: int) -> bool:
    """Store a new group; False when its project has `most` already (-1: no limit)."""
    if most >= 0 and count(connection, group.project_id) >= most:
        return False
    connection.execute(sa.insert(server_groups).values(**msgspec.structs.asdict(group)))
    return True


def count(connection: sa.Connection, project: ProjectId) -> int:
    """Return how many groups a project has."""
    statement = sa.select(sa.func.count()).select_from(server_groups).where(server_groups.c.project_id == project)
    return connection.execute(statement).scalar_one()


def remove(connection: sa.Connection, uuid: GroupUuid) -> bool:
    """Delete a group; its servers stay. Tell whether it was there."""
    return connection.execute(sa.delete(server_groups).where(server_groups.c.uuid == uuid)).rowcount > 0


def members(connection: sa.Connection, groups: Sequence[GroupUuid]) -> dict[GroupUuid, list[InstanceUuid]]:
    """Return the servers of each of these groups."""
    found: dict[GroupUuid, list[InstanceUuid]] = {uuid: [] for uuid in groups}
    for start in range(0, len(groups), MAX_NAMED):
        part = groups[start : start + MAX_NAMED]
        rows = connection.execute(
            sa.select(server_group_members).where(member.group_uuid.in_(part)).order_by(member.instance)
        )
        for row in rows:
            found[row.group_uuid].append(row.instance)
    return found


def groups_of(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> dict[InstanceUuid, GroupUuid]:
    """Return the group of each of these servers that is in one."""
    found: dict[InstanceUuid, GroupUuid] = {}
    for start in range(0, len(instances), MAX_NAMED):
        part = instances[start : start + MAX_NAMED]
        rows = connection.execute(sa.select(server_group_members).where(member.instance.in_(part)))
        found.update((row.instance, row.group_uuid) for row in rows)
    return found


def add_members(connection: sa.Connection, uuid: GroupUuid, instances: Sequence[InstanceUuid], *, most: int) -> bool:
    """Put servers into a group; False (and nothing done) when it would have more than `most` (-1: no limit)."""
    if most >= 0:
        there = sa.select(sa.func.count()).select_from(server_group_members).where(member.group_uuid == uuid)
        if connection.execute(there).scalar_one() + len(instances) > most:
            return False
    for instance in instances:
        statement = insert(connection, server_group_members).values(instance=instance, group_uuid=uuid)
        connection.execute(statement.on_conflict_do_nothing())
    return True


def remove_members(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> int:
    """Take servers out of their groups; return how many were in one."""
    removed = 0
    for start in range(0, len(instances), MAX_NAMED):
        part = instances[start : start + MAX_NAMED]
        removed += connection.execute(sa.delete(server_group_members).where(member.instance.in_(part))).rowcount
    return removed


def members_without_server(connection: sa.Connection) -> list[tuple[InstanceUuid, GroupUuid]]:
    """Return the members that do not live, each with its group."""
    rows = connection.execute(sa.select(member.instance, member.group_uuid).where(~lives(member.instance)))
    return [(InstanceUuid(row.instance), GroupUuid(row.group_uuid)) for row in rows]


def remove_member_without_server(connection: sa.Connection, instance: str) -> bool:
    """Take a server out of its group unless it lives; tell whether it was in one."""
    statement = server_group_members.delete().where(member.instance == instance, ~lives(instance))
    return connection.execute(statement).rowcount > 0


def _group(row: sa.Row[tuple[object, ...]]) -> ServerGroup:
    return ServerGroup(
        uuid=GroupUuid(row.uuid),
        name=row.name,
        policy=row.policy,
        max_server_per_host=row.max_server_per_host,
        project_id=ProjectId(row.project_id),
        user_id=UserId(row.user_id),
        created_at=row.created_at,
    )
