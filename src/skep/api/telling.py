"""What the compute API tells itself, in Nova's event types, of what it has changed: once it is done.

Nova tells of a beginning before and of an end after; here both are told after, so that nothing is told that was
refused. A process that dies in between tells nothing (docs/notifications.md). What is to be told and cannot be read
fails no request: it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.api import flavors, server_groups
from skep.database.api.aggregates import Aggregate
from skep.database.api.key_pairs import StoredKeyPair
from skep.database.api.server_groups import ServerGroup
from skep.domain import event_types, notifications
from skep.domain.errors import SkepError
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance

log = structlog.get_logger("skep.api.telling")


def key_pair(request: ApiRequest, what: str, pair: StoredKeyPair) -> None:
    """Tell that a key pair was made, imported or deleted."""
    _both(request, f"keypair.{what}", notifications.key_pair(pair, pair.user_id))


def aggregate(request: ApiRequest, what: str, one: Aggregate) -> None:
    """Tell what became of an aggregate."""
    _both(request, f"aggregate.{what}", notifications.aggregate(aggregate_facts(one)))


def aggregate_facts(one: Aggregate) -> notifications.AggregateFacts:
    """Return what is told of an aggregate."""
    return notifications.AggregateFacts(id=one.id, uuid=one.uuid, name=one.name, hosts=one.hosts, metadata=one.metadata)


async def flavor(request: ApiRequest, what: str, one: Flavor) -> None:
    """Tell what became of a flavor, and which projects may use one that is not public, where that can be read."""
    projects: tuple[str, ...] | None = ()
    if not one.is_public:
        try:
            projects = await request.services.database.read(partial(flavors.projects, flavorid=one.flavorid))
        except SkepError as error:
            log.warning("told without the projects of a flavor", flavor=one.flavorid, error=str(error))
            projects = None
    request.services.tell(f"flavor.{what}", notifications.flavor(one, projects), request.context)


def server_group(request: ApiRequest, what: str, one: ServerGroup, members: Sequence[InstanceUuid]) -> None:
    """Tell what became of a server group."""
    facts = notifications.ServerGroupFacts(
        uuid=one.uuid,
        name=one.name,
        project_id=one.project_id,
        user_id=one.user_id,
        policy=one.policy,
        max_server_per_host=one.max_server_per_host,
        members=tuple(members),
    )
    request.services.tell(f"server_group.{what}", notifications.server_group(facts), request.context)


async def joined(request: ApiRequest, group_id: str) -> None:
    """Tell that servers were asked for in a group. One that is deleted by now has told so itself."""

    def unit(connection: Connection) -> tuple[ServerGroup | None, Sequence[InstanceUuid]]:
        group = server_groups.get(connection, group_id)
        return group, () if group is None else server_groups.members(connection, [group.uuid])[group.uuid]

    try:
        group, members = await request.services.database.read(unit)
    except SkepError as error:
        log.warning("new members of a group are not told", group=group_id, error=str(error))
        return
    if group is not None:
        server_group(request, "add_member", group, members)


def server(request: ApiRequest, before: Instance, after: Instance) -> None:
    """Tell of another name, other metadata or other tags of a server."""
    if (before.name, before.metadata, before.tags) == (after.name, after.metadata, after.tags):
        return
    old_name = before.name if before.name != after.name else None
    payload = notifications.update(after, after.state, after.task, old_name=old_name)
    request.services.tell(event_types.UPDATE, payload, request.context)


def _both(request: ApiRequest, stem: str, payload: Mapping[str, Any]) -> None:
    for moment in ("start", "end"):
        request.services.tell(f"{stem}.{moment}", payload, request.context)
