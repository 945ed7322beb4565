"""Aggregates. A host may be in many, but in one availability zone only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from skep.api import telling
from skep.api.aggregate_metadata import check_metadata
from skep.api.handlers.server_images import usable_image
from skep.api.image_caching import Caching
from skep.api.operator_state import publish
from skep.api.requests import Answer, ApiRequest
from skep.api.residents import servers_by_host
from skep.database import Connection
from skep.database.api import aggregates, host_mappings
from skep.database.api.aggregates import ZONE, Aggregate
from skep.database.api.operator_state import Concerned
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, Conflict, NotFound, SkepError
from skep.domain.ids import new_uuid
from skep.domain.images import Image
from skep.domain.invalid_input import invalid_field

MAX_ID = 2**63 - 1
UPDATE_PROP, UPDATE_METADATA = "update_prop", "update_metadata"
SAID = {UPDATE_PROP: "update aggregate", UPDATE_METADATA: "update aggregate metadata"}
"""Change -> how errors call it."""


async def index(request: ApiRequest) -> Answer:
    """`GET /os-aggregates`."""
    found = await request.services.database.read(aggregates.every)
    return Answer({"aggregates": [view(one) for one in found]})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-aggregates/{id}`."""
    identifier = _identifier(request)
    found = await request.services.database.read(lambda c: aggregates.get(c, identifier))
    return _answer(request, found)


async def create(request: ApiRequest) -> Answer:
    """`POST /os-aggregates`."""
    body = request.body["aggregate"]
    zone = body.get("availability_zone")
    metadata = {} if zone is None else {ZONE: zone}
    now = request.services.clock.now()
    new = await request.services.database.write(
        lambda c: aggregates.add(c, uuid=new_uuid(), name=body["name"], metadata=metadata, now=now)
    )
    if new is None:
        raise _name_taken(body["name"])
    await publish(request.services, Concerned(aggregates=(new.id,)))
    telling.aggregate(request, "create", new)
    return Answer({"aggregate": view(new)})


async def update(request: ApiRequest) -> Answer:
    """`PUT /os-aggregates/{id}`: name, zone."""
    body = request.body["aggregate"]
    if not body:
        raise invalid_field("aggregate", body, "name or availability_zone")
    changes = {ZONE: body["availability_zone"]} if "availability_zone" in body else None
    return await _change(request, body.get("name"), changes, UPDATE_PROP)


async def set_metadata(request: ApiRequest) -> Answer:
    """`set_metadata`: add and replace keys; null removes one."""
    changes = request.body["set_metadata"]["metadata"]
    if changes.get(ZONE) == "":
        raise invalid_field(f"set_metadata.metadata.{ZONE}", "", "a zone's name")
    check_metadata("set_metadata.metadata", changes)
    return await _change(request, None, changes, UPDATE_METADATA)


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-aggregates/{id}`: only an empty one."""
    identifier = _identifier(request)

    def unit(connection: Connection) -> Aggregate:
        found = _there(request, aggregates.get(connection, identifier))
        if found.hosts:
            raise _refused("delete", found, "Host aggregate is not empty", BadRequest)
        aggregates.remove(connection, identifier)
        return found

    removed = await request.services.database.write(unit)
    await publish(request.services, Concerned(aggregates=(identifier,)))
    telling.aggregate(request, "delete", removed)
    return Answer()


async def add_host(request: ApiRequest) -> Answer:
    """`add_host`."""
    identifier, host = _identifier(request), request.body["add_host"]["host"]
    inhabited = bool((await servers_by_host(request.services, [host]))[host])
    now = request.services.clock.now()

    def unit(connection: Connection) -> Aggregate:
        found = _there(request, aggregates.get(connection, identifier))
        if host_mappings.of_host(connection, host) is None:
            raise NotFound(f"Compute host {host} could not be found.")
        if host in found.hosts:
            raise Conflict(f"Aggregate {identifier} already has host {host}.")
        if found.zone is not None:
            zone = aggregates.zones_of(aggregates.every(connection), [host]).get(host)
            if zone is not None and zone != found.zone:
                raise _already_in_zone("add host to", found, [zone], Conflict)
            moved = zone is None and found.zone != request.services.settings.default_availability_zone
            if moved and inhabited:
                raise _refused("add host to", found, "One or more hosts contain instances in this zone", Conflict)
        aggregates.add_host(connection, identifier, host)
        aggregates.change(connection, identifier, now, name=None, metadata=None)
        return _there(request, aggregates.get(connection, identifier))

    return await _store(request, unit, "add_host")


async def remove_host(request: ApiRequest) -> Answer:
    """`remove_host`."""
    identifier, host = _identifier(request), request.body["remove_host"]["host"]
    inhabited = bool((await servers_by_host(request.services, [host]))[host])
    now = request.services.clock.now()

    def unit(connection: Connection) -> Aggregate:
        found = _there(request, aggregates.get(connection, identifier))
        if host not in found.hosts:
            raise NotFound(f"Cannot remove host {host} in aggregate {identifier}")
        if found.zone is not None and inhabited and _leaves_zone(connection, found, host):
            raise _refused("remove host from", found, "One or more hosts contain instances in this zone", Conflict)
        aggregates.remove_host(connection, identifier, host)
        aggregates.change(connection, identifier, now, name=None, metadata=None)
        return _there(request, aggregates.get(connection, identifier))

    return await _store(request, unit, "remove_host")


async def cache_images(request: ApiRequest) -> Answer:
    """`POST /os-aggregates/{id}/images` (2.81): have all hosts fetch images before servers need them."""
    identifier = _identifier(request)
    wanted = [one["id"] for one in request.body["cache"]]
    if len(set(wanted)) < len(wanted):
        raise BadRequest("Duplicate images in request")
    services = request.services
    services.image_cachings.check()
    found = _there(request, await services.database.read(lambda c: aggregates.get(c, identifier)))
    images = [await _image(request, one) for one in wanted]
    caching = Caching(services=services, context=request.context, aggregate=found, images=images)
    services.image_cachings.begin(caching.run(), f"cache images of aggregate {identifier}")
    return Answer()


async def _image(request: ApiRequest, image_id: str) -> Image:
    found = await usable_image(request, image_id)
    if found is None:
        raise BadRequest(f"Image {image_id} could not be found.")
    if found.status != "active":
        raise BadRequest(f"Image {image_id} is not active.")
    return found


def view(one: Aggregate) -> dict[str, Any]:
    """Return all that the API says of an aggregate."""
    return {
        "id": one.id,
        "uuid": one.uuid,
        "name": one.name,
        "availability_zone": one.zone,
        "created_at": isoformat_micro(one.created_at),
        "updated_at": None if one.updated_at is None else isoformat_micro(one.updated_at),
        "deleted": False,
        "deleted_at": None,
        "hosts": list(one.hosts),
        "metadata": one.metadata,
    }


async def _change(request: ApiRequest, name: str | None, changes: dict[str, str | None] | None, what: str) -> Answer:
    identifier = _identifier(request)
    now = request.services.clock.now()
    before = _there(request, await request.services.database.read(lambda c: aggregates.get(c, identifier)))
    inhabited = {host for host, servers in (await servers_by_host(request.services, before.hosts)).items() if servers}

    def unit(connection: Connection) -> Aggregate:
        found = _there(request, aggregates.get(connection, identifier))
        same_name = None if name is None else aggregates.named(connection, name)
        if same_name is not None and same_name.id != identifier:
            raise _name_taken(same_name.name)
        metadata = found.metadata if changes is None else _merged(found.metadata, changes)
        _check_zone(connection, found, metadata.get(ZONE), inhabited, SAID[what])
        aggregates.change(connection, identifier, now, name=name, metadata=metadata)
        return _there(request, aggregates.get(connection, identifier))

    return await _store(request, unit, what)


async def _store(request: ApiRequest, unit: Callable[[Connection], Aggregate], what: str) -> Answer:
    changed = await request.services.database.write(unit)
    await publish(request.services, Concerned(aggregates=(changed.id,)))
    telling.aggregate(request, what, changed)
    return Answer({"aggregate": view(changed)})


def _check_zone(
    connection: Connection, found: Aggregate, zone: str | None, inhabited: Iterable[str], what: str
) -> None:
    """Refuse a new zone when a host is in another one already, or its servers would change zones."""
    if zone == found.zone or not found.hosts:
        return
    others = aggregates.zones_of(aggregates.every(connection), found.hosts, other_than=found.id)
    conflicting = sorted({other for other in others.values() if zone is not None and other != zone})
    if conflicting:
        raise _already_in_zone(what, found, conflicting, BadRequest)
    if any(host in found.hosts and host not in others for host in inhabited):
        raise _refused(what, found, "One or more hosts contain instances in this zone", BadRequest)


def _leaves_zone(connection: Connection, found: Aggregate, host: str) -> bool:
    return host not in aggregates.zones_of(aggregates.every(connection), [host], other_than=found.id)


def _merged(before: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**before, **changes}.items() if value is not None}


def _identifier(request: ApiRequest) -> int:
    """Read the number in the path.

    Raises BadRequest for what is no number at all, as Nova does; a negative one or one that is too large is just not
    found.
    """
    text = request.params["aggregate_id"]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise BadRequest(f"Aggregate id must be an integer, not {text[:40]!r}")
    return -1 if text != digits else min(int(digits[:20]), MAX_ID)


def _there(request: ApiRequest, found: Aggregate | None) -> Aggregate:
    if found is None:
        raise NotFound(f"Aggregate {request.params['aggregate_id'][:40]} could not be found.")
    return found


def _answer(request: ApiRequest, found: Aggregate | None) -> Answer:
    return Answer({"aggregate": view(_there(request, found))})


def _name_taken(name: str) -> Conflict:
    return Conflict(f"Aggregate {name} already exists.")


def _already_in_zone(what: str, one: Aggregate, zones: list[str], kind: type[SkepError]) -> SkepError:
    return _refused(what, one, f"One or more hosts already in availability zone(s) {zones}", kind)


def _refused(what: str, one: Aggregate, reason: str, kind: type[SkepError]) -> SkepError:
    return kind(f"Cannot {what} aggregate {one.id}. Reason: {reason}.")
