"""Services: the agents of all hosts as `nova-compute`, and what else of Skep runs under the names that tools know."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa

from skep.api.cells import read_cell
from skep.api.operator_state import Host, hosts, publish
from skep.api.requests import Answer, ApiRequest
from skep.api.residents import servers_by_host
from skep.api.services import RunningService
from skep.database.api import host_mappings, retired_hosts
from skep.database.api.operator_state import Concerned
from skep.database.api.retired_hosts import RetiredHost
from skep.database.cell import agents, attempts
from skep.database.cell.agents import Agent
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.ids import NodeUuid, is_uuid

AGENT = "nova-compute"


async def index(request: ApiRequest) -> Answer:
    """`GET /os-services`, by `host` and `binary`."""
    everything = await hosts(request.services)
    running = await request.services.running()
    zone = request.services.settings.internal_service_availability_zone
    shown = [view(host) for host in everything]
    shown += [_own(service, len(everything) + place, zone) for place, service in enumerate(running, 1)]
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

    Its cell forgets it too, as soon as it can be written. Whatever agent starts there afterwards is a new host.
    """
    identifier = request.params["service_id"]
    if request.version >= 53:
        node = _node(request)
        mapping = await request.services.database.read(lambda c: host_mappings.get(c, node))
    else:
        everything = await request.services.database.read(host_mappings.every)
        place = int(identifier) if identifier.isascii() and identifier.isdigit() and len(identifier) < 10 else 0
        mapping = everything[place - 1] if 0 < place <= len(everything) else None
    if mapping is None:
        raise _not_found(identifier)
    gone = mapping
    if (await servers_by_host(request.services, [gone.host]))[gone.host]:
        raise Conflict(
            "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
        )
    agent, is_held = await read_cell(request.services, gone.cell, partial(_left, node=gone.node))
    if is_held:
        raise Conflict(
            f"Host {gone.host} has not said yet that it is rid of what deleted servers had there. Start its agent, or "
            "fence the host if it is dead for good."
        )
    retired = RetiredHost(
        node=gone.node,
        host=gone.host,
        cell=gone.cell,
        process=agent.process if agent is not None else "",
        retired_at=request.services.clock.now(),
    )
    await request.services.database.write(partial(retired_hosts.add, new=retired))
    await publish(request.services)
    return Answer()


def view(host: Host) -> dict[str, Any]:
    """Return all that the API says of an agent."""
    mapping = host.mapping
    heard = host.state.last_heard if host.state is not None else 0
    return {
        "id": (host.number, mapping.node),
        "binary": AGENT,
        "host": mapping.host,
        "zone": host.zone,
        "status": "disabled" if mapping.disabled else "enabled",
        "state": "up" if host.is_up else "down",
        "updated_at": isoformat_micro(heard) if heard else None,
        "disabled_reason": mapping.disabled_reason,
        "forced_down": mapping.forced_down,
    }


def _own(service: RunningService, number: int, zone: str) -> dict[str, Any]:
    """Return all that the API says of a process of this deployment that is no agent."""
    return {
        "id": (number, service.uuid),
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


async def _check_agent(request: ApiRequest, node: NodeUuid) -> None:
    for service in await request.services.running():
        if service.uuid == node:
            raise BadRequest(
                f"Updating a {service.binary} service is not supported. Only nova-compute services can be updated."
            )
    if await request.services.database.read(lambda c: host_mappings.get(c, node)) is None:
        raise _not_found(node)


def _left(connection: sa.Connection, node: NodeUuid) -> tuple[Agent | None, bool]:
    """Return what a cell knows of a node: its agent, and whether anything may be left there."""
    return agents.get(connection, node), attempts.any_open_on(connection, node)


def _node(request: ApiRequest) -> NodeUuid:
    identifier = request.params["service_id"]
    if not is_uuid(identifier):
        raise BadRequest(f"Invalid uuid {identifier[:80]}")
    return NodeUuid(identifier)


def _not_found(identifier: str) -> NotFound:
    return NotFound(f"Compute service {identifier[:80]} could not be found.")


def _changed(request: ApiRequest, **what: object) -> Answer:
    return Answer({"service": {"host": request.body["host"], "binary": request.body["binary"], **what}})
