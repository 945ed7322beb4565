"""Rows of the embedded network service: what each kind of resource is stored as, and how lists of them are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
import sqlalchemy as sa

from skep.database import stored
from skep.database.api.network_tables import (
    floating_ips,
    network_quotas,
    network_tags,
    networks,
    ports,
    routers,
    security_group_rules,
    security_groups,
    subnets,
)
from skep.database.compiled import KEPT, UNKEPT
from skep.database.markers import SortKey, behind
from skep.domain.networking import (
    FloatingIp,
    Network,
    NetworkResource,
    Port,
    SecurityGroup,
    SecurityGroupRule,
    Subnet,
    VirtualRouter,
)

ResourceT = TypeVar("ResourceT", bound=NetworkResource)

Condition: TypeAlias = sa.ColumnElement[bool]

COMMON_FILTERS = 2
"""Lists with more of them are rare, and of more shapes than compiled statements are kept."""
IN_ONE_STATEMENT = 500
"""Values that one statement names."""


@dataclass(frozen=True, eq=False)
class ResourceKind(Generic[ResourceT]):
    """A kind of resource: its table, and the struct that has a field for each column."""

    table: sa.Table
    made: type[ResourceT]
    encoded: dict[str, Any]
    """Columns of JSON, with the types of what is in them."""
    seen_by: Callable[[str], Condition]
    """Project -> the condition that it sees a resource."""


def _owned(table: sa.Table) -> Callable[[str], Condition]:
    """Return the rule of what only its project sees."""
    return lambda project_id: table.c.project_id == project_id


def _networks_seen(project_id: str) -> Condition:
    return sa.or_(networks.c.project_id == project_id, networks.c.shared, networks.c.external)


def _subnets_seen(project_id: str) -> Condition:
    """What is shared with all, or the project's own, or on its own network."""
    of_networks = sa.select(networks.c.id).where(sa.or_(networks.c.project_id == project_id, networks.c.shared))
    return sa.or_(subnets.c.project_id == project_id, subnets.c.network_id.in_(of_networks))


def _ports_seen(project_id: str) -> Condition:
    """The project's own, and those on its networks."""
    own = sa.select(networks.c.id).where(networks.c.project_id == project_id)
    return sa.or_(ports.c.project_id == project_id, ports.c.network_id.in_(own))


def _kind(
    table: sa.Table, made: type[ResourceT], seen_by: Callable[[str], Condition] | None = None
) -> ResourceKind[ResourceT]:
    types = {field.name: field.type for field in msgspec.structs.fields(made)}
    encoded = {column.name: types[column.name] for column in table.c if isinstance(column.type, sa.LargeBinary)}
    return ResourceKind(table, made, encoded, seen_by or _owned(table))


NETWORKS = _kind(networks, Network, _networks_seen)
SUBNETS = _kind(subnets, Subnet, _subnets_seen)
PORTS = _kind(ports, Port, _ports_seen)
SECURITY_GROUPS = _kind(security_groups, SecurityGroup)
SECURITY_GROUP_RULES = _kind(security_group_rules, SecurityGroupRule)
ROUTERS = _kind(routers, VirtualRouter)
FLOATING_IPS = _kind(floating_ips, FloatingIp)


class ResourceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which resources of a kind are wanted."""

    seen_by: str | None = None
    """The project for which they are looked up; None: all are seen."""
    one_of: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """Columns, each with the values of which a row must have one."""
    tags: tuple[str, ...] = ()
    tags_any: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    """None has all of these."""
    not_tags_any: tuple[str, ...] = ()
    sort: tuple[tuple[str, bool], ...] = ()
    """Columns, and whether they descend; rows that are equal then stand in the order of their ids."""
    limit: int | None = None
    marker: str | None = None
    """The id behind which the page begins; with `reverse` the one before which it ends."""
    reverse: bool = False


def insert(connection: sa.Connection, kind: ResourceKind[ResourceT], resource: ResourceT) -> None:
    """Store a new resource."""
    connection.execute(kind.table.insert().values(_columns(kind, resource)))


def insert_many(connection: sa.Connection, kind: ResourceKind[ResourceT], resources: Sequence[ResourceT]) -> None:
    """Store new resources."""
    connection.execute(kind.table.insert(), [_columns(kind, one) for one in resources])


def update(connection: sa.Connection, kind: ResourceKind[ResourceT], resource: ResourceT) -> None:
    """Store a resource as it has become."""
    connection.execute(kind.table.update().where(kind.table.c.id == resource.id).values(_columns(kind, resource)))


def delete(connection: sa.Connection, kind: ResourceKind[Any], ids: list[str]) -> None:
    """Remove resources with their tags."""
    for some in portions(ids):
        connection.execute(network_tags.delete().where(network_tags.c.resource_id.in_(some)))
        connection.execute(kind.table.delete().where(kind.table.c.id.in_(some)))


def get(
    connection: sa.Connection, kind: ResourceKind[ResourceT], resource_id: str, seen_by: str | None = None
) -> ResourceT | None:
    """Return one resource; with a project only if that sees it."""
    seen = [] if seen_by is None else [kind.seen_by(seen_by)]
    row = connection.execute(kind.table.select().where(kind.table.c.id == resource_id, *seen)).first()
    return None if row is None else _resource(kind, row)


def by_id(connection: sa.Connection, kind: ResourceKind[ResourceT], ids: list[str]) -> dict[str, ResourceT]:
    """Return resources by their ids; what is not there has no entry."""
    return {one.id: one for some in portions(ids) for one in where(connection, kind, id=some)}


def where(connection: sa.Connection, kind: ResourceKind[ResourceT], **values: Any) -> list[ResourceT]:
    """Return the resources whose columns have these values (of a list: one of them), in the order of their creation."""
    query = kind.table.select().where(*_equal(kind.table, values)).order_by(kind.table.c.created_at, kind.table.c.id)
    return of_query(connection, kind, query)


def of_query(connection: sa.Connection, kind: ResourceKind[ResourceT], query: sa.Select[Any]) -> list[ResourceT]:
    """Return the resources that a query of all columns of their table finds."""
    return [_resource(kind, row) for row in connection.execute(query)]


def select(
    connection: sa.Connection, kind: ResourceKind[ResourceT], query: ResourceQuery, narrowed: tuple[Condition, ...] = ()
) -> list[ResourceT] | None:
    """Return a page of the resources for which the conditions hold; None: there is no such marker among them."""
    table = kind.table
    conditions = narrowed if query.seen_by is None else (*narrowed, kind.seen_by(query.seen_by))
    sort = [one for name, descends in (*query.sort, ("id", False)) for one in _keys(table, name, descends)]
    statement = table.select().where(*conditions, *_wanted(table, query))
    if query.marker is not None:
        named = sa.select(*(key for key, _ in sort))
        marker = connection.execute(named.where(table.c.id == query.marker, *conditions)).first()
        if marker is None:
            return None
        keys = [
            SortKey(key, value, descends is not query.reverse)
            for (key, descends), value in zip(sort, marker, strict=True)
        ]
        statement = statement.where(behind(keys))
    order = [key.desc() if descends is not query.reverse else key.asc() for key, descends in sort]
    options = KEPT if _is_common(query) else UNKEPT
    rows = list(connection.execute(statement.order_by(*order).limit(query.limit), execution_options=options))
    return [_resource(kind, row) for row in (reversed(rows) if query.reverse else rows)]


def count(connection: sa.Connection, kind: ResourceKind[Any], **values: Any) -> int:
    """Return how many resources have these values in their columns (of a list: one of them)."""
    query = sa.select(sa.func.count()).select_from(kind.table).where(*_equal(kind.table, values))
    return connection.execute(query).scalar_one()


def _equal(table: sa.Table, values: dict[str, Any]) -> list[Condition]:
    return [
        table.c[name].in_(value) if isinstance(value, list | tuple | frozenset) else table.c[name] == value
        for name, value in values.items()
    ]


def others_on(connection: sa.Connection, kind: ResourceKind[Any], network_id: str, projects: set[str]) -> bool:
    """Tell whether other projects than these have resources on a network."""
    table = kind.table
    query = sa.select(table.c.id).where(table.c.network_id == network_id, table.c.project_id.not_in(projects))
    return connection.execute(query.limit(1)).first() is not None


def ids_by(connection: sa.Connection, kind: ResourceKind[Any], column: str, values: list[str]) -> dict[str, list[str]]:
    """Return the ids of resources by the value of a column, the first made first; every value has an entry."""
    found: dict[str, list[str]] = {value: [] for value in values}
    table = kind.table
    for some in portions(values):
        query = sa.select(table.c.id, table.c[column]).where(table.c[column].in_(some))
        for resource_id, value in connection.execute(query.order_by(table.c.created_at, table.c.id)):
            found[value].append(resource_id)
    return found


def tags_of(connection: sa.Connection, ids: list[str]) -> dict[str, list[str]]:
    """Return the tags of resources, in order; every id has an entry."""
    found: dict[str, list[str]] = {one: [] for one in ids}
    for some in portions(ids):
        query = network_tags.select().where(network_tags.c.resource_id.in_(some)).order_by(network_tags.c.tag)
        for row in connection.execute(query):
            found[row.resource_id].append(row.tag)
    return found


def set_tags(connection: sa.Connection, resource_id: str, tags: set[str]) -> None:
    """Give a resource these tags and no others."""
    connection.execute(network_tags.delete().where(network_tags.c.resource_id == resource_id))
    if tags:
        connection.execute(network_tags.insert(), [{"resource_id": resource_id, "tag": tag} for tag in sorted(tags)])


def quotas_of(connection: sa.Connection, project_id: str) -> dict[str, int]:
    """Return the limits that were set for a project."""
    rows = connection.execute(network_quotas.select().where(network_quotas.c.project_id == project_id))
    return {row.resource: row.limit for row in rows}


def set_quotas(connection: sa.Connection, project_id: str, limits: dict[str, int] | None) -> None:
    """Store limits of a project beside those that it has; None removes all."""
    mine = network_quotas.c.project_id == project_id
    if limits is None:
        connection.execute(network_quotas.delete().where(mine))
    elif limits:
        connection.execute(network_quotas.delete().where(mine, network_quotas.c.resource.in_(limits)))
        rows = [{"project_id": project_id, "resource": name, "limit": limit} for name, limit in limits.items()]
        connection.execute(network_quotas.insert(), rows)


def projects_with_quotas(connection: sa.Connection) -> dict[str, dict[str, int]]:
    """Return the limits that were set, by project."""
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(network_quotas.select().order_by(network_quotas.c.project_id)):
        found.setdefault(row.project_id, {})[row.resource] = row.limit
    return found


def _is_common(query: ResourceQuery) -> bool:
    """Tell whether the shape of a statement is one of few."""
    tags = query.tags or query.tags_any or query.not_tags or query.not_tags_any
    return len(query.one_of) <= COMMON_FILTERS and not query.sort and not tags


def _wanted(table: sa.Table, query: ResourceQuery) -> list[Condition]:
    found: list[Condition] = [table.c[name].in_(values) for name, values in query.one_of]
    if query.tags:
        found.append(_with_all(table, query.tags))
    if query.tags_any:
        found.append(_tagged(table, query.tags_any))
    if query.not_tags:
        found.append(sa.not_(_with_all(table, query.not_tags)))
    if query.not_tags_any:
        found.append(sa.not_(_tagged(table, query.not_tags_any)))
    return found


def _tagged(table: sa.Table, tags: Any) -> Condition:
    """Return the condition that a resource has one of these tags."""
    return sa.exists().where(network_tags.c.resource_id == table.c.id, network_tags.c.tag.in_(tags))


def _with_all(table: sa.Table, tags: tuple[str, ...]) -> Condition:
    """Return the condition that a resource has all of these tags, of which none is there twice.

    It is one, however many tags there are.
    """
    having = sa.select(network_tags.c.resource_id).where(network_tags.c.tag.in_(tags))
    whole = having.group_by(network_tags.c.resource_id).having(sa.func.count() == len(tags))
    return table.c.id.in_(whole)


def _keys(table: sa.Table, name: str, descends: bool) -> list[tuple[sa.ColumnElement[Any], bool]]:
    """Return what rows are sorted by for a column, and whether it descends. Nothing is less than any value.

    Databases differ in where nothing stands, and it is neither equal to nothing nor beyond it.
    """
    column = table.c[name]
    if isinstance(column.type, sa.Boolean):
        return [(sa.case((column, 1), else_=0), descends)]
    if not column.nullable:
        return [(column, descends)]
    empty: Any = 0 if isinstance(column.type, sa.Integer) else ""
    return [(sa.case((column.is_(None), 0), else_=1), descends), (sa.func.coalesce(column, empty), descends)]


def portions(ids: list[str]) -> list[list[str]]:
    """Divide ids, so that a statement names a limited number of them."""
    return [ids[at : at + IN_ONE_STATEMENT] for at in range(0, len(ids), IN_ONE_STATEMENT)]


def _columns(kind: ResourceKind[ResourceT], resource: ResourceT) -> dict[str, Any]:
    values = msgspec.structs.asdict(resource)
    return {**values, **{name: stored.dump(values[name]) for name in kind.encoded}}


def _resource(kind: ResourceKind[ResourceT], row: Any) -> ResourceT:
    values = dict(row._mapping)
    for name, of in kind.encoded.items():
        if values[name] is None:
            # A release wrote it that does not know the column.
            del values[name]
        else:
            values[name] = stored.load(values[name], of)
    return kind.made(**values)
