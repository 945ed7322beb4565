"""Services: the agents of all hosts as `nova-compute`, and what else of Skep runs under the names that tools know."""

from __future__ import annotations

from functools import partial
from typing import Any

import structlog

from skep.api.cells import ANSWER_SECONDS, STORE_SECONDS, cell_database
from skep.api.operator_state import MappedHost, hosts, number_of, publish
from skep.api.requests import Answer, ApiRequest
from skep.api.residents import servers_by_host
from skep.api.services import ApiServices, RunningService
from skep.database.api import host_mappings
from skep.database.api.operator_state import Concerned
from skep.database.engine import Database
from skep.domain.cells import HostMapping
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, Conflict, NotFound, StorageUnavailable
from skep.domain.ids import NodeUuid, is_uuid
from skep.reconciler import deletions
from skep.reconciler.deletions import Left

AGENT = "nova-compute"
BEING_DELETED = "being deleted"

log = structlog.get_logger("skep.api.hosts")


async def index(request: ApiRequest) -> Answer:
    """`GET /os-services`, by `host` and `binary`."""
    everything = await hosts(request.services)
    running = await request.services.running()
    zone = request.services.settings.internal_service_availability_zone
    shown = [view(host) for host in everything]
    shown += [_own(service, zone) for service in running]
    host, binary = request.first("host"), request.first("binary")
    shown = [one for one in shown if (not host or one["host"] == host) and (not binary or one["binary"] == binary)]
    return Answer({"services": shown})


async def enable(request: ApiRequest) -> Answer:
    """`PUT /os-services/enable` (until 2.52)."""
    await _want(request, disabled=False)
    return _changed(request, status="enabled")


async def disable(request: ApiRequest) -> Answer:
    """`PUT /os-services/disable` (until 2.52)."""
    await _want(request, disabled=True)
    return _changed(request, status="disabled")


async def disable_log_reason(request: ApiRequest) -> Answer:
    """`PUT /os-services/disable-log-reason` (until 2.52)."""
    reason = request.body["disabled_reason"]
    await _want(request, disabled=True, disabled_reason=reason)
    return _changed(request, status="disabled", disabled_reason=reason)


async def force_down(request: ApiRequest) -> Answer:
    """`PUT /os-services/force-down` (2.11 to 2.52)."""
    forced = request.body["forced_down"]
    await _want(request, forced_down=forced)
    return _changed(request, forced_down=forced)


async def update(request: ApiRequest) -> Answer:
    """`PUT /os-services/{id}` (2.53)."""
    node = _node(request)
    body = request.body
    status, reason = body.get("status"), body.get("disabled_reason")
    if reason is not None and status != "disabled":
        raise BadRequest("Specifying disabled_reason requires that status is set to 'disabled'.")
    if status is None and "forced_down" not in body:
        raise BadRequest("No updates were requested. Fields 'status' or 'forced_down' should be specified.")
    await _check_agent(request, node)
    await _store(
        request,
        node,
        disabled=None if status is None else status == "disabled",
        disabled_reason=reason,
        forced_down=body.get("forced_down"),
    )
    for host in await hosts(request.services):
        if host.mapping.node == node:
            return Answer({"service": view(host)})
    raise _not_found(node)


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-services/{id}`: give up a host without servers.

    Its cell forgets it too, as soon as it can be written. Whatever agent starts there afterwards is a new host. Builds
    that are on their way there are placed elsewhere first; until then it is shown as disabled, "being deleted".
    """
    identifier = request.params["service_id"]
    if request.version >= 53:
        node = _node(request)
        await _check_agent(request, node, "Deleting")
        mapping = await request.services.database.read(lambda c: host_mappings.get(c, node))
    else:
        mapping = await _numbered(request, identifier)
    if mapping is None:
        raise _not_found(identifier)
    services = request.services
    if (await servers_by_host(services, [mapping.host]))[mapping.host]:
        raise _hosting()
    cell = cell_database(services, mapping.cell)
    left = await deletions.look_at_host(services.database, cell, mapping, within=ANSWER_SECONDS)
    if left.stays:
        raise _kept(mapping, left)
    began = partial(host_mappings.begin_deletion, node=mapping.node, now=services.clock.now())
    marked = await services.database.write(began, intake=True)
    if marked is None:
        raise _not_found(identifier)
    await publish(services, Concerned(nodes=(mapping.node,)))
    await _end(services, cell, marked)
    await publish(services)
    return Answer()


async def _end(services: ApiServices, cell: Database, host: HostMapping) -> None:
    """Delete a host that is marked. What is on its way there is left to the super conductor, which ends it then."""
    now = services.clock.now()
    try:
        left = await deletions.close_host(services.database, cell, host, now, within=STORE_SECONDS)
    except StorageUnavailable:
        log.warning("host left marked as deleting", host=host.host, node=host.node)
        raise
    if left.stays:
        # It came between the two looks: the build was there before the mark.
        await deletions.take_back(services.database, cell, host, left, within=STORE_SECONDS)
        await publish(services, Concerned(nodes=(host.node,)))
        raise _kept(host, left)
    if left.is_empty:
        await deletions.retire_host(services.database, host, left.agent, now)


def view(host: MappedHost) -> dict[str, Any]:
    """Return all that the API says of an agent."""
    mapping = host.mapping
    heard = host.state.last_heard if host.state is not None else 0
    return {
        "id": (host.number, mapping.node),
        "binary": AGENT,
        "host": mapping.host,
        "zone": host.zone,
        "status": "disabled" if mapping.disabled or mapping.deleting_at is not None else "enabled",
        "state": "up" if host.is_up else "down",
        "updated_at": isoformat_micro(heard) if heard else None,
        "disabled_reason": mapping.disabled_reason if mapping.deleting_at is None else BEING_DELETED,
        "forced_down": mapping.forced_down,
    }


def _own(service: RunningService, zone: str) -> dict[str, Any]:
    """Return all that the API says of a process of this deployment that is no agent."""
    return {
        "id": (number_of(service.uuid), service.uuid),
        "binary": service.binary,
        "host": service.host,
        "zone": zone,
        "status": "enabled",
        "state": "up" if service.alive else "down",
        "updated_at": isoformat_micro(service.seen_at),
        "disabled_reason": None,
        "forced_down": False,
    }


async def _want(
    request: ApiRequest,
    *,
    disabled: bool | None = None,
    disabled_reason: str | None = None,
    forced_down: bool | None = None,
) -> None:
    host, binary = request.body["host"], request.body["binary"]
    mapping = await request.services.database.read(lambda c: host_mappings.of_host(c, host))
    if mapping is None or binary != AGENT:
        raise NotFound(f"Could not find binary {binary} on host {host}.")
    await _store(request, mapping.node, disabled=disabled, disabled_reason=disabled_reason, forced_down=forced_down)


async def _store(
    request: ApiRequest,
    node: NodeUuid,
    *,
    disabled: bool | None,
    disabled_reason: str | None,
    forced_down: bool | None,
) -> None:
    now = request.services.clock.now()
    stored = await request.services.database.write(
        lambda c: host_mappings.want(
            c, node, now, disabled=disabled, disabled_reason=disabled_reason, forced_down=forced_down
        )
    )
    if stored is None:
        raise _not_found(node)
    await publish(request.services, Concerned(nodes=(node,)))


async def _numbered(request: ApiRequest, number: str) -> HostMapping | None:
    """Return the host with an integer id. Raises Conflict where two have it, BadRequest for another kind of service."""
    found = [
        one for one in await request.services.database.read(host_mappings.every) if str(number_of(one.node)) == number
    ]
    if len(found) > 1:
        raise Conflict(f"Two compute services have the number {number}; name one by its UUID (microversion 2.53).")
    for service in await request.services.running():
        if not found and str(number_of(service.uuid)) == number:
            raise _not_an_agent(service, "Deleting")
    return found[0] if found else None


def _not_an_agent(service: RunningService, doing: str) -> BadRequest:
    done = {"Deleting": "deleted", "Updating": "updated"}[doing]
    return BadRequest(f"{doing} a {service.binary} service is not supported. Only nova-compute services can be {done}.")


async def _check_agent(request: ApiRequest, node: NodeUuid, doing: str = "Updating") -> None:
    for service in await request.services.running():
        if service.uuid == node:
            raise _not_an_agent(service, doing)
    if await request.services.database.read(lambda c: host_mappings.get(c, node)) is None:
        raise _not_found(node)


def _hosting() -> Conflict:
    return Conflict(
        "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
    )


def _kept(host: HostMapping, left: Left) -> Conflict:
    if left.servers:
        return _hosting()
    return Conflict(
        f"Host {host.host} has not reported yet that nothing of its deleted servers is left. Start its agent, or "
        "fence the host if it is dead for good."
    )


def _node(request: ApiRequest) -> NodeUuid:
    identifier = request.params["service_id"]
    if not is_uuid(identifier):
        raise BadRequest(f"Invalid uuid {identifier[:80]}")
    return NodeUuid(identifier)


def _not_found(identifier: str) -> NotFound:
    return NotFound(f"Compute service {identifier[:80]} could not be found.")


def _changed(request: ApiRequest, **what: object) -> Answer:
    return Answer({"service": {"host": request.body["host"], "binary": request.body["binary"], **what}})
