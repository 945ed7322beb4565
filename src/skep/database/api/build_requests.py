"""Build requests: servers that have no cell yet, with what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice

import msgspec
import sqlalchemy as sa

from skep.database.api.living import lives
from skep.database.api.tables import build_requests, instance_mappings, request_specs, requests
from skep.database.stored import dump, load
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Instance, State
from skep.domain.request_specs import RequestSpec


class NewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One create request, ready to be stored."""

    context: RequestContext
    instances: tuple[Instance, ...]
    spec: RequestSpec
    min_count: int
    now: int
    secrets: bytes | None = None
    """adminPass and injected files of all members, encrypted."""


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A server without a cell, as stored."""

    instance: Instance
    revision: int


class Needless(msgspec.Struct, frozen=True, kw_only=True):
    """A build request of a server that has a cell, is deleted or is not mapped at all."""

    instance: InstanceUuid
    revision: int
    cell: CellUuid | None
    deleted_at: int | None


def store(connection: sa.Connection, new: NewRequest) -> None:
    """Store a request and its members: request, build requests, specs and mappings."""
    connection.execute(
        _REQUEST,
        {
            "request_id": new.context.request_id,
            "project_id": new.context.project_id,
            "min_count": new.min_count,
            "max_count": len(new.instances),
            "met": False,
            "context": dump(new.context),
            "created_at": new.now,
        },
    )
    spec = dump(new.spec)
    connection.execute(
        _BUILD_REQUESTS,
        [
            {
                "instance": instance.uuid,
                "project_id": instance.project_id,
                "user_id": instance.user_id,
                "revision": 0,
                "created_at": new.now,
                "changed_at": new.now,
                "body": dump(instance),
                "secrets": new.secrets,
            }
            for instance in new.instances
        ],
    )
    connection.execute(_SPECS, [{"instance": instance.uuid, "body": spec} for instance in new.instances])
    connection.execute(
        _MAPPINGS,
        [
            {
                "instance": instance.uuid,
                "request_id": new.context.request_id,
                "project_id": instance.project_id,
                "attempt": 0,
                "not_before": 0,
                "created_at": new.now,
            }
            for instance in new.instances
        ],
    )


_REQUEST = requests.insert()
_BUILD_REQUESTS = build_requests.insert()
_SPECS = request_specs.insert()
_MAPPINGS = instance_mappings.insert()
"""Made once: making a statement costs half of running it."""


def get(connection: sa.Connection, instance: InstanceUuid) -> BuildRequest | None:
    """Return the build request of a server that has no cell yet."""
    row = connection.execute(_ONE, {"of": instance}).first()
    return None if row is None else BuildRequest(instance=_unplaced(row.body), revision=row.revision)


_ONE = sa.select(build_requests.c.body, build_requests.c.revision).where(
    build_requests.c.instance == sa.bindparam("of")
)


def list_all(
    connection: sa.Connection,
    *,
    project_id: str | None = None,
    changed_since: int | None = None,
    changed_before: int | None = None,
    after: tuple[int, str] | None = None,
    accepts: Callable[[Instance], bool] = lambda _: True,
    limit: int | None = None,
) -> list[Instance]:
    """List servers without a cell, newest first, from behind `after` (created_at, uuid) on."""
    asked = {"project": project_id, "since": changed_since, "before": changed_before}
    if after is not None:
        asked["after_time"], asked["after_instance"] = after
    given = {name: value for name, value in asked.items() if value is not None}
    rows = connection.execute(_listing(frozenset(given)), given)
    found = list(islice(filter(accepts, (_unplaced(row.body) for row in rows)), limit))
    rows.close()
    return found


@cache
def _listing(given: frozenset[str]) -> sa.Select[tuple[bytes]]:
    """Return the statement of a list for which these parameters are given."""
    of = build_requests.c
    marker = sa.tuple_(sa.bindparam("after_time", type_=sa.BigInteger), sa.bindparam("after_instance", type_=sa.String))
    conditions = {
        "project": of.project_id == sa.bindparam("project"),
        "since": of.changed_at >= sa.bindparam("since"),
        "before": of.changed_at <= sa.bindparam("before"),
        "after_time": sa.tuple_(of.created_at, of.instance) < marker,
    }
    wanted = [condition for name, condition in conditions.items() if name in given]
    return sa.select(of.body).where(*wanted).order_by(of.created_at.desc(), of.instance.desc())


def count(connection: sa.Connection) -> int:
    """Return how many servers wait for a cell."""
    return connection.execute(sa.select(sa.func.count()).select_from(build_requests)).scalar_one()


def change(
    connection: sa.Connection, instance: InstanceUuid, alter: Callable[[Instance], Instance], now: int
) -> Instance | None:
    """Write what a user changes of a server and raise the revision, so that who places it copies again.

    None when it has no build request (any more).
    """
    found = get(connection, instance)
    if found is None:
        return None
    after = alter(found.instance)
    if after is found.instance:
        return after
    after = msgspec.structs.replace(after, updated_at=now)
    connection.execute(
        build_requests.update()
        .where(build_requests.c.instance == instance)
        .values(body=dump(after), revision=build_requests.c.revision + 1, changed_at=now)
    )
    return after


def remove(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> None:
    """Remove build requests: the mapping says from now on where the servers are."""
    connection.execute(build_requests.delete().where(build_requests.c.instance.in_(instances)))


def sealed(connection: sa.Connection) -> list[bytes]:
    """Return the passwords and files of servers without a cell."""
    secrets = build_requests.c.secrets
    return list(connection.scalars(sa.select(secrets).where(secrets.is_not(None))))


def needless(connection: sa.Connection) -> list[Needless]:
    """Return the build requests of servers that do not wait for a cell."""
    mapping = instance_mappings.c
    query = (
        sa.select(build_requests.c.instance, build_requests.c.revision, mapping.cell, mapping.deleted_at)
        .join_from(build_requests, instance_mappings, mapping.instance == build_requests.c.instance, isouter=True)
        .where(sa.or_(mapping.instance.is_(None), mapping.cell.is_not(None), mapping.deleted_at.is_not(None)))
    )
    return [
        Needless(instance=row.instance, revision=row.revision, cell=row.cell, deleted_at=row.deleted_at)
        for row in connection.execute(query)
    ]


def remove_needless(connection: sa.Connection, instance: str) -> bool:
    """Remove the build request of a server unless it waits for a cell; tell whether there was one."""
    waits = lives(instance).where(instance_mappings.c.cell.is_(None))
    statement = build_requests.delete().where(build_requests.c.instance == instance, ~waits)
    return connection.execute(statement).rowcount > 0


def specs_without_server(connection: sa.Connection) -> list[InstanceUuid]:
    """Return the servers that do not live and of which is kept what was asked for."""
    query = sa.select(request_specs.c.instance).where(~lives(request_specs.c.instance))
    return [InstanceUuid(one) for one in connection.scalars(query)]


def remove_spec_without_server(connection: sa.Connection, instance: str) -> bool:
    """Remove what was asked for of a server unless it lives; tell whether it was there."""
    statement = request_specs.delete().where(request_specs.c.instance == instance, ~lives(instance))
    return connection.execute(statement).rowcount > 0


def spec_of(connection: sa.Connection, instance: InstanceUuid) -> RequestSpec | None:
    """Return what was asked for when the server was made."""
    body = connection.execute(
        sa.select(request_specs.c.body).where(request_specs.c.instance == instance)
    ).scalar_one_or_none()
    return None if body is None else load(body, RequestSpec)


def pin(connection: sa.Connection, instance: InstanceUuid, zone: str | None) -> None:
    """Write the zone that a server shall stay in when it is moved; None: any."""
    spec = spec_of(connection, instance)
    if spec is not None and spec.availability_zone != zone:
        body = dump(msgspec.structs.replace(spec, availability_zone=zone))
        connection.execute(request_specs.update().where(request_specs.c.instance == instance).values(body=body))


def follow_resize(connection: sa.Connection, instance: InstanceUuid, spec: RequestSpec) -> None:
    """Write what a server was resized to; the zone that it stays in is decided here."""
    kept = spec_of(connection, instance)
    if kept is not None and (kept.flavor, kept.devices) != (spec.flavor, spec.devices):
        body = dump(kept.resized(spec.flavor, spec.devices))
        connection.execute(request_specs.update().where(request_specs.c.instance == instance).values(body=body))


MOST_IMAGES = 4
"""So many images are kept beside the one that a server was requested with: one that it has, others that it is to have
by requests at one time."""


def allow_image(connection: sa.Connection, instance: InstanceUuid, present: str | None, wanted: str) -> None:
    """Let a server have the bytes of an image that its user may use, beside those of the image that it has."""
    spec = spec_of(connection, instance)
    if spec is None:
        return
    own = spec.image.id if spec.image is not None else None
    others = [one for one in spec.rebuilt_from if one not in (present, wanted)][-(MOST_IMAGES - 2) :]
    named = tuple(one for one in (*others, present, wanted) if one is not None and one != own)
    if named != spec.rebuilt_from:
        body = dump(msgspec.structs.replace(spec, rebuilt_from=named))
        connection.execute(request_specs.update().where(request_specs.c.instance == instance).values(body=body))


def _unplaced(body: bytes) -> Instance:
    return msgspec.structs.replace(load(body, Instance), state=State.SCHEDULED)
