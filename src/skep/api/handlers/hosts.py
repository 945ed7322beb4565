"""Hosts as old clients ask for them: the services by host, what a host has and uses, whether it takes servers.

Nova's API reference, "Hosts". What only a driver can do to its machine, no driver here can: it is 501, as in Nova.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from skep.api.cells import read_cell
from skep.api.handlers.hypervisors import figures
from skep.api.operator_state import MappedHost, hosts, publish
from skep.api.requests import Answer, ApiRequest
from skep.database.api import host_mappings
from skep.database.api.operator_state import Concerned
from skep.database.cell import residents
from skep.domain.errors import BadRequest, NotFound, Unsupported
from skep.domain.flavors import Flavor

Json = dict[str, Any]


async def index(request: ApiRequest) -> Answer:
    """`GET /os-hosts`, by `zone`."""
    internal = request.services.settings.internal_service_availability_zone
    found = [(host.mapping.host, "compute", host.zone) for host in await hosts(request.services)]
    found += [
        (one.host, one.binary.removeprefix("nova-"), internal)
        for one in sorted(await request.services.running(), key=lambda one: (one.binary, one.host))
    ]
    wanted = request.first("zone")
    shown = [
        {"host_name": name, "service": service, "zone": zone}
        for name, service, zone in found
        if wanted in (None, "", zone)
    ]
    return Answer({"hosts": shown})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-hosts/{host}`: what the host has, what is used, what its servers may use, and those of each project."""
    host = await _host(request)
    name, cell = host.mapping.host, host.mapping.cell
    servers = await read_cell(request.services, cell, partial(residents.sizes_on, host=name))
    by_project: dict[str, list[Flavor]] = {}
    for one in servers:
        by_project.setdefault(one.project_id, []).append(one.flavor)
    shown = [] if host.state is None else [_resource(name, *row) for row in _own(host)]
    shown.append(_resource(name, "(used_max)", *_sum(one.flavor for one in servers)))
    shown += [_resource(name, project, *_sum(some)) for project, some in sorted(by_project.items())]
    return Answer({"host": shown})


async def update(request: ApiRequest) -> Answer:
    """`PUT /os-hosts/{host}`: take new servers or take none."""
    wanted = request.body.get("status")
    if not request.body:
        raise BadRequest("Invalid input for the request body. Expected: status or maintenance_mode")
    host = await _host(request)
    if "maintenance_mode" in request.body or wanted is None:
        raise Unsupported("Virt driver does not implement host maintenance mode.")
    disabled = wanted.lower() == "disable"
    node, services = host.mapping.node, request.services
    unit = partial(
        host_mappings.want,
        node=node,
        now=services.clock.now(),
        disabled=disabled,
        disabled_reason=None,
        forced_down=None,
    )
    if await services.database.write(unit) is None:
        raise _not_found(host.mapping.host)
    await publish(services, Concerned(nodes=(node,)))
    return Answer({"host": host.mapping.host, "status": "disabled" if disabled else "enabled"})


async def switch(request: ApiRequest) -> Answer:
    """`GET /os-hosts/{host}/startup`, `shutdown` and `reboot`."""
    await _host(request)
    raise Unsupported("Virt driver does not implement host power management.")


async def _host(request: ApiRequest) -> MappedHost:
    name = request.params["host"]
    for host in await hosts(request.services):
        if host.mapping.host == name:
            return host
    raise _not_found(name)


def _not_found(name: str) -> NotFound:
    return NotFound(f"Compute host {name[:80]} could not be found.")


def _own(host: MappedHost) -> Iterable[tuple[str, int, int, int]]:
    found = figures(host)
    yield "(total)", found["vcpus"], found["memory_mb"], found["local_gb"]
    yield "(used_now)", found["vcpus_used"], found["memory_mb_used"], found["local_gb_used"]


def _sum(flavors: Iterable[Flavor]) -> tuple[int, int, int]:
    sizes = [(one.vcpus, one.memory_mb, one.root_gb + one.ephemeral_gb) for one in flavors]
    return (sum(one[0] for one in sizes), sum(one[1] for one in sizes), sum(one[2] for one in sizes))


def _resource(host: str, project: str, cpu: int, memory_mb: int, disk_gb: int) -> Json:
    return {
        "resource": {"host": host, "project": project, "cpu": cpu, "memory_mb": memory_mb, "disk_gb": disk_gb},
    }
