"""Flavors and who may use those that are not public."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api.tables import flavor_access, flavors
from skep.database.stored import dump, load
from skep.database.upsert import insert
from skep.domain.flavors import Flavor
from skep.domain.ids import ProjectId

flavor = flavors.c


class FlavorQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which flavors are asked for."""

    project: ProjectId | None
    """Private flavors are among them if this project may use them. None: no project."""
    everything: bool = False
    """An admin: private flavors of others too, as `public` says."""
    public: bool | None = True
    """Only for an admin: True also means the project's own private ones."""
    min_memory_mb: int | None = None
    min_root_gb: int | None = None
    name: str | None = None


def get(connection: sa.Connection, flavorid: str, *, project: ProjectId | None = None) -> Flavor | None:
    """Return one flavor; with `project`, only one that the project may use."""
    statement = sa.select(flavor.body).where(flavor.flavorid == flavorid)
    if project is not None:
        statement = statement.where(flavor.is_public | _usable_by(project))
    body = connection.execute(statement).scalar()
    return None if body is None else load(body, Flavor)


def is_usable(connection: sa.Connection, flavorid: str, project: ProjectId | None) -> bool:
    """Tell whether there is a flavor that a project may use; None: that anybody may."""
    values = {"flavorid": flavorid, "project": project}
    return connection.execute(_THERE if project is None else _USABLE, values).first() is not None


def find(connection: sa.Connection, query: FlavorQuery) -> tuple[Flavor, ...]:
    """Return all flavors that match, by id."""
    statement = sa.select(flavor.body).order_by(flavor.flavorid)
    if not query.everything or query.public:
        mine = flavor.is_public
        statement = statement.where(mine if query.project is None else mine | _usable_by(query.project))
    elif query.public is False:
        statement = statement.where(sa.not_(flavor.is_public))
    if query.min_memory_mb is not None:
        statement = statement.where(flavor.memory_mb >= query.min_memory_mb)
    if query.min_root_gb is not None:
        statement = statement.where(flavor.root_gb >= query.min_root_gb)
    if query.name is not None:
        statement = statement.where(flavor.name == query.name)
    return tuple(load(body, Flavor) for body in connection.execute(statement).scalars())


def taken(connection: sa.Connection, new: Flavor) -> str | None:
    """Return which of `name` and `flavorid` another flavor has already."""
    row = connection.execute(
        sa.select(flavor.name, flavor.flavorid).where((flavor.name == new.name) | (flavor.flavorid == new.flavorid))
    ).first()
    if row is None:
        return None
    return "name" if row.name == new.name else "flavorid"


def add(connection: sa.Connection, new: Flavor, now: int) -> None:
    """Store a new flavor whose name and id are free."""
    connection.execute(sa.insert(flavors).values(flavorid=new.flavorid, created_at=now, **_columns(new)))


def save(connection: sa.Connection, changed: Flavor) -> None:
    """Store what changed of a flavor."""
    connection.execute(sa.update(flavors).where(flavor.flavorid == changed.flavorid).values(**_columns(changed)))


def remove(connection: sa.Connection, flavorid: str) -> bool:
    """Delete a flavor; servers keep theirs. Tell whether it was there."""
    return connection.execute(sa.delete(flavors).where(flavor.flavorid == flavorid)).rowcount > 0


def projects(connection: sa.Connection, flavorid: str) -> tuple[str, ...]:
    """Return the projects that may use a private flavor."""
    statement = sa.select(flavor_access.c.project_id).where(flavor_access.c.flavorid == flavorid)
    return tuple(connection.execute(statement.order_by(flavor_access.c.project_id)).scalars())


def grant(connection: sa.Connection, flavorid: str, project: str) -> bool:
    """Let a project use a private flavor; tell whether it could not before."""
    statement = insert(connection, flavor_access).values(flavorid=flavorid, project_id=project)
    return connection.execute(statement.on_conflict_do_nothing()).rowcount > 0


def revoke(connection: sa.Connection, flavorid: str, project: str) -> bool:
    """No longer let a project use a private flavor; tell whether it could."""
    there = (flavor_access.c.flavorid == flavorid) & (flavor_access.c.project_id == project)
    return connection.execute(sa.delete(flavor_access).where(there)).rowcount > 0


def _usable_by(project: ProjectId | sa.BindParameter[str]) -> sa.ColumnElement[bool]:
    mine = (flavor_access.c.flavorid == flavor.flavorid) & (flavor_access.c.project_id == project)
    return sa.exists().where(mine)


def _columns(one: Flavor) -> dict[str, object]:
    return {
        "name": one.name,
        "is_public": one.is_public,
        "memory_mb": one.memory_mb,
        "root_gb": one.root_gb,
        "body": dump(one),
    }


_THERE = sa.select(sa.literal(1)).where(flavor.flavorid == sa.bindparam("flavorid", type_=sa.Text))
_USABLE = _THERE.where(flavor.is_public | _usable_by(sa.bindparam("project", type_=sa.Text)))
