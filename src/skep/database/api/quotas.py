"""Quota: one row per server, a project's sum kept with them, and the limits that somebody set.

A charge is one conditional statement on the project's sum, so that two creates at the last unit cannot both pass.
The limits of one user are compared before it, in a statement of their own: that holds because units are serial, by the
one writer of a SQLite file and by the writers' lock of a PostgreSQL database (`dialects.Postgresql`). Credit is
deleting a server's row, once. A limit of -1 is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api.living import lives
from skep.database.api.tables import instance_mappings, quota_charges, quota_class_limits, quota_limits, quota_sums
from skep.database.upsert import insert
from skep.domain.ids import CellUuid, InstanceUuid, ProjectId, UserId
from skep.domain.instances import Instance
from skep.domain.quotas import COUNTED, UNLIMITED, FixedLimits, QuotaCharge, charge_of

DEFAULT_CLASS = "default"
"""Its limits stand in for the configured defaults of all projects."""
MAX_NAMED = 500
"""Servers named in one statement."""

_NO_LIMIT = 2**62
_WHOLE_PROJECT = ""
"""Stands for the user where a limit is the project's own."""


_NO_LIMITS = dict.fromkeys(COUNTED, UNLIMITED)


class Exceeded(msgspec.Struct, frozen=True, kw_only=True):
    """The "no" of a charge: which resources, and their figures."""

    resources: tuple[str, ...]
    requested: dict[str, int]
    used: dict[str, int]
    limits: dict[str, int]

    def message(self) -> str:
        """Say it in the words that Nova's clients know."""

        def figures(source: Mapping[str, int]) -> str:
            return ", ".join(str(source[name]) for name in self.resources)

        names = ", ".join(self.resources)
        return (
            f"Quota exceeded for {names}: Requested {figures(self.requested)}, but already used "
            f"{figures(self.used)} of {figures(self.limits)} {names}"
        )


def limits(
    connection: sa.Connection, project: ProjectId, user: UserId | None = None, *, defaults: Mapping[str, int]
) -> dict[str, int]:
    """Return the limits of a project, or of one user of it, by resource: what was set, else the defaults."""
    if isinstance(defaults, FixedLimits):
        return dict(defaults)
    found = default_limits(connection, defaults=defaults)
    rows = connection.execute(_LIMITS, {"of": project, "user": user or _WHOLE_PROJECT})
    found.update((row.resource, row.hard_limit) for row in rows if row.resource in found)
    return found


_LIMITS = (
    sa.select(quota_limits)
    .where(
        quota_limits.c.project_id == sa.bindparam("of"),
        quota_limits.c.user_id.in_((sa.literal(_WHOLE_PROJECT), sa.bindparam("user"))),
    )
    .order_by(quota_limits.c.user_id)
)
_CLASS_LIMITS = sa.select(quota_class_limits).where(quota_class_limits.c.class_name == sa.bindparam("of"))
_ANY_OF_USER = (
    sa.select(quota_limits.c.resource)
    .where(quota_limits.c.project_id == sa.bindparam("of"), quota_limits.c.user_id == sa.bindparam("user"))
    .limit(1)
)
"""Statements of a create are made once: making one costs more than running it."""


def has_user_limits(connection: sa.Connection, project: ProjectId, user: UserId) -> bool:
    """Tell whether anything was set for this user of the project."""
    return connection.execute(_ANY_OF_USER, {"of": project, "user": user}).first() is not None


def default_limits(connection: sa.Connection, *, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return the limits of projects for which nobody set any: the class `default`, else the configured ones."""
    return class_limits(connection, DEFAULT_CLASS, defaults=defaults)


def class_limits(connection: sa.Connection, name: str, *, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return the limits of a quota class."""
    if isinstance(defaults, FixedLimits):
        return dict(defaults)
    rows = connection.execute(_CLASS_LIMITS, {"of": name})
    return {**defaults, **{row.resource: row.hard_limit for row in rows if row.resource in defaults}}


def used(connection: sa.Connection, project: ProjectId, user: UserId | None = None) -> dict[str, int]:
    """Return what a project, or one user of it, uses of the counted resources."""
    if user is None:
        row = connection.execute(sa.select(quota_sums).where(quota_sums.c.project_id == project)).first()
        return {name: 0 if row is None else row._mapping[name] for name in COUNTED}
    sums = [sa.func.coalesce(sa.func.sum(quota_charges.c[name]), 0).label(name) for name in COUNTED]
    mine = (quota_charges.c.project_id == project) & (quota_charges.c.user_id == user)
    one = connection.execute(sa.select(*sums).where(mine)).one()
    return {name: int(one._mapping[name]) for name in COUNTED}


def charge(
    connection: sa.Connection,
    project: ProjectId,
    user: UserId,
    charges: Mapping[InstanceUuid, QuotaCharge],
    limits: Mapping[str, int],
    *,
    user_limits: Mapping[str, int] | None = None,
) -> Exceeded | None:
    """Charge servers to their project; all of them or, when one limit does not allow it, none.

    `limits` are the project's; `user_limits` are given where the user has limits of its own.
    """
    wanted = {name: sum(getattr(one, name) for one in charges.values()) for name in COUNTED}
    if user_limits is not None:
        refused = _exceeded(wanted, used(connection, project, user), user_limits)
        if refused is not None:
            return refused
    if not _add_to_sums(connection, project, wanted, limits):
        refused = _exceeded(wanted, used(connection, project), limits)
        assert refused is not None, "the statement and the figures disagree"
        return refused
    connection.execute(
        _CHARGE,
        [
            {
                "instance": instance,
                "project_id": project,
                "user_id": user,
                "instances": one.instances,
                "cores": one.cores,
                "ram": one.ram,
            }
            for instance, one in charges.items()
        ],
    )
    return None


_CHARGE = sa.insert(quota_charges)


def raise_charge(
    connection: sa.Connection,
    instance: InstanceUuid,
    wanted: QuotaCharge,
    limits: Mapping[str, int],
    *,
    user_limits: Mapping[str, int] | None = None,
) -> Exceeded | None:
    """Raise what a server is charged to `wanted`, where that is more; all of it or, beyond a limit, nothing.

    Limits hold for what is raised, as in Nova. A server without a charge gets none.
    """
    found = connection.execute(sa.select(quota_charges).where(quota_charges.c.instance == instance)).first()
    if found is None:
        return None
    rise = {name: max(0, getattr(wanted, name) - getattr(found, name)) for name in COUNTED}
    if user_limits is not None:
        refused = _exceeded(rise, used(connection, found.project_id, found.user_id), user_limits)
        if refused is not None:
            return refused
    if not _add_to_sums(connection, found.project_id, rise, limits):
        refused = _exceeded(rise, used(connection, found.project_id), limits)
        assert refused is not None, "the statement and the figures disagree"
        return refused
    raised = {name: getattr(found, name) + amount for name, amount in rise.items()}
    connection.execute(sa.update(quota_charges).where(quota_charges.c.instance == instance).values(raised))
    return None


def recharge(connection: sa.Connection, instance: InstanceUuid, owed: QuotaCharge) -> None:
    """Charge a server exactly what is owed, whatever the limits are; one without a charge gets none."""
    found = connection.execute(sa.select(quota_charges).where(quota_charges.c.instance == instance)).first()
    if found is None:
        return
    exact = {name: getattr(owed, name) for name in COUNTED}
    change = {name: amount - getattr(found, name) for name, amount in exact.items() if amount != getattr(found, name)}
    if not change:
        return
    connection.execute(sa.update(quota_charges).where(quota_charges.c.instance == instance).values(exact))
    connection.execute(
        sa.update(quota_sums)
        .where(quota_sums.c.project_id == found.project_id)
        .values({name: quota_sums.c[name] + amount for name, amount in change.items()})
    )


def recharge_at_rest(connection: sa.Connection, instance: InstanceUuid, owed: QuotaCharge) -> bool:
    """Do as `recharge`, unless the charge depends on a task; tell whether it changed."""
    of = quota_charges.c
    found = connection.execute(sa.select(quota_charges).where(of.instance == instance, of.task_id.is_(None))).first()
    if found is None or all(getattr(found, name) == getattr(owed, name) for name in COUNTED):
        return False
    recharge(connection, instance, owed)
    return True


def charging(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> list[InstanceUuid]:
    """Return those of these servers that are charged for something, whatever is done to them."""
    of = quota_charges.c
    mine = sa.and_(of.instance.in_(instances), of.task_id.is_(None), of.instances > 0)
    return [InstanceUuid(one) for one in connection.scalars(sa.select(of.instance).where(mine).order_by(of.instance))]


def free_of_charge(connection: sa.Connection, cell: CellUuid) -> list[InstanceUuid]:
    """Return the living servers of a cell that are charged nothing, whatever is done to them."""
    of, mapping = quota_charges.c, instance_mappings.c
    mine = sa.and_(mapping.cell == cell, mapping.deleted_at.is_(None), of.task_id.is_(None), of.instances == 0)
    query = sa.select(of.instance).join(instance_mappings, mapping.instance == of.instance).where(mine)
    return [InstanceUuid(one) for one in connection.scalars(query.order_by(of.instance))]


def charge_existing(connection: sa.Connection, server: Instance) -> bool:
    """Charge a server whatever the limits are, because it is there; False when it was charged already."""
    if is_charged(connection, server.uuid):
        return False
    charges = {server.uuid: charge_of(server.flavor)}
    return charge(connection, server.project_id, server.user_id, charges, _NO_LIMITS) is None


def is_charged(connection: sa.Connection, instance: InstanceUuid) -> bool:
    """Tell whether a server is charged to its project."""
    found = sa.select(quota_charges.c.instance).where(quota_charges.c.instance == instance)
    return connection.execute(found).first() is not None


def credit(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> int:
    """Take back what these servers were charged, once; return how many had a charge."""
    back: dict[str, dict[str, int]] = {}
    credited = 0
    for start in range(0, len(instances), MAX_NAMED):
        statement = (
            sa.delete(quota_charges)
            .where(quota_charges.c.instance.in_(instances[start : start + MAX_NAMED]))
            .returning(quota_charges.c.project_id, *(quota_charges.c[name] for name in COUNTED))
        )
        for row in connection.execute(statement):
            credited += 1
            sums = back.setdefault(row.project_id, dict.fromkeys(COUNTED, 0))
            for name in COUNTED:
                sums[name] += row._mapping[name]
    for project, sums in back.items():
        connection.execute(
            sa.update(quota_sums)
            .where(quota_sums.c.project_id == project)
            .values({name: quota_sums.c[name] - amount for name, amount in sums.items()})
        )
    return credited


def set_limits(
    connection: sa.Connection, project: ProjectId, wanted: Mapping[str, int], user: UserId | None = None
) -> None:
    """Set limits of a project, or of one user of it."""
    for resource, limit in wanted.items():
        statement = insert(connection, quota_limits).values(
            project_id=project, user_id=user or _WHOLE_PROJECT, resource=resource, hard_limit=limit
        )
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["project_id", "user_id", "resource"], set_={"hard_limit": limit}
            )
        )


def remove_limits(connection: sa.Connection, project: ProjectId, user: UserId | None = None) -> None:
    """Go back to the defaults: for one user, or for the project and all its users."""
    mine = quota_limits.c.project_id == project
    if user is not None:
        mine &= quota_limits.c.user_id == user
    connection.execute(sa.delete(quota_limits).where(mine))


def set_class_limits(connection: sa.Connection, name: str, wanted: Mapping[str, int]) -> None:
    """Set limits of a quota class; those of `default` hold for every project without its own."""
    for resource, limit in wanted.items():
        statement = insert(connection, quota_class_limits).values(class_name=name, resource=resource, hard_limit=limit)
        connection.execute(
            statement.on_conflict_do_update(index_elements=["class_name", "resource"], set_={"hard_limit": limit})
        )


def sums(connection: sa.Connection) -> dict[str, dict[str, int]]:
    """Return the sums that are kept, by project."""
    rows = connection.execute(sa.select(quota_sums))
    return {row.project_id: {name: getattr(row, name) for name in COUNTED} for row in rows}


def charged(connection: sa.Connection) -> dict[str, dict[str, int]]:
    """Return what the charges add up to, by project."""
    added = (sa.func.sum(quota_charges.c[name]).label(name) for name in COUNTED)
    rows = connection.execute(sa.select(quota_charges.c.project_id, *added).group_by(quota_charges.c.project_id))
    return {row.project_id: {name: int(getattr(row, name)) for name in COUNTED} for row in rows}


def add_up(connection: sa.Connection, project: str) -> bool:
    """Set a project's sums to what its charges add up to; False when they are that already."""
    added = [sa.func.coalesce(sa.func.sum(quota_charges.c[name]), 0).label(name) for name in COUNTED]
    found = connection.execute(sa.select(*added).where(quota_charges.c.project_id == project)).one()
    values = {name: int(found._mapping[name]) for name in COUNTED}
    statement = insert(connection, quota_sums).values(project_id=project, **values)
    differs = sa.or_(*(quota_sums.c[name] != amount for name, amount in values.items()))
    changed = statement.on_conflict_do_update(index_elements=["project_id"], set_=values, where=differs)
    return connection.execute(changed).rowcount > 0


def charges_without_server(connection: sa.Connection) -> list[tuple[InstanceUuid, ProjectId, QuotaCharge]]:
    """Return the charges of servers that do not live, each with its project."""
    rows = connection.execute(sa.select(quota_charges).where(~lives(quota_charges.c.instance)))
    return [
        (
            InstanceUuid(row.instance),
            ProjectId(row.project_id),
            QuotaCharge(instances=row.instances, cores=row.cores, ram=row.ram),
        )
        for row in rows
    ]


def _add_to_sums(
    connection: sa.Connection, project: ProjectId, wanted: Mapping[str, int], limits: Mapping[str, int]
) -> bool:
    """Raise the project's sums where they stay within the limits; tell whether they did."""
    most = {name: _NO_LIMIT if limits[name] == UNLIMITED else limits[name] for name in COUNTED}
    if any(wanted[name] > most[name] for name in COUNTED):
        return False
    statement = _charging(connection)
    values = {"project_id": project, **wanted, **{f"{name}_most": most[name] for name in COUNTED}}
    return connection.execute(statement, values).rowcount > 0


def _charging(connection: sa.Connection) -> sa.Executable:
    """Return the statement that raises the sums of a project within its limits; made once for each dialect."""
    dialect = connection.dialect.name
    known = _CHARGING.get(dialect)
    if known is None:
        statement = insert(connection, quota_sums).values(
            {"project_id": sa.bindparam("project_id"), **{name: sa.bindparam(name) for name in COUNTED}}
        )
        sums = {name: quota_sums.c[name] + statement.excluded[name] for name in COUNTED}
        fits = (
            sa.or_(statement.excluded[name] == 0, sums[name] <= sa.bindparam(f"{name}_most", type_=sa.BigInteger()))
            for name in COUNTED
        )
        known = _CHARGING[dialect] = statement.on_conflict_do_update(
            index_elements=["project_id"], set_=sums, where=sa.and_(*fits)
        )
    return known


_CHARGING: dict[str, sa.Executable] = {}


def _exceeded(wanted: Mapping[str, int], already: Mapping[str, int], limits: Mapping[str, int]) -> Exceeded | None:
    over = tuple(
        name
        for name in COUNTED
        if wanted[name] > 0 and limits[name] != UNLIMITED and already[name] + wanted[name] > limits[name]
    )
    if not over:
        return None
    return Exceeded(resources=over, requested=dict(wanted), used=dict(already), limits=dict(limits))
