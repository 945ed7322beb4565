"""Hypervisors: views of the schedulers' host states. There is no table of them."""

from __future__ import annotations

from typing import Any

from skep.api.operator_state import MappedHost, hosts
from skep.api.requests import Answer, ApiRequest
from skep.api.residents import Residents, servers_of
from skep.api.schemas.fields import FALSE_WORDS, TRUE_WORDS
from skep.database.cell.residents import Resident
from skep.domain.errors import BadRequest, NotFound, Unavailable
from skep.domain.ids import CellUuid, is_uuid
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU

ALWAYS_WITH_SERVERS_SINCE = 75
"""From 2.75 on a hypervisor without servers shows an empty list; before, no `servers` at all."""


async def index(request: ApiRequest) -> Answer:
    """`GET /os-hypervisors`."""
    return await _list(request, basic, "os-hypervisors")


async def detail(request: ApiRequest) -> Answer:
    """`GET /os-hypervisors/detail`."""
    return await _list(request, whole, "os-hypervisors/detail")


async def show(request: ApiRequest) -> Answer:
    """`GET /os-hypervisors/{id}`."""
    host = await _one(request)
    servers = await _servers(request, [host])
    if servers is not None and servers.unread:
        raise _unread(host)
    return Answer({"hypervisor": _with_servers(request, whole(host), host, servers)})


async def uptime(request: ApiRequest) -> Answer:
    """`GET /os-hypervisors/{id}/uptime` (until 2.87)."""
    host = await _one(request)
    text = host.state.usage.uptime if host.state is not None else None
    if text is None:
        raise BadRequest("The host does not report an uptime.")
    return Answer({"hypervisor": {**basic(host), "uptime": text}})


async def statistics(request: ApiRequest) -> Answer:
    """`GET /os-hypervisors/statistics` (until 2.87): sums over the enabled hosts."""
    everything = [host for host in await _reported(request) if not host.mapping.disabled]
    sums: dict[str, int] = {"count": len(everything), **dict.fromkeys(_FIGURES, 0)}
    for host in everything:
        for name, amount in figures(host).items():
            sums[name] += amount
    return Answer({"hypervisor_statistics": sums})


async def search(request: ApiRequest) -> Answer:
    """`GET /os-hypervisors/{pattern}/search` (until 2.52)."""
    return Answer({"hypervisors": [basic(host) for host in await _matching(request)]})


async def servers(request: ApiRequest) -> Answer:
    """`GET /os-hypervisors/{pattern}/servers` (until 2.52)."""
    found = await _matching(request)
    living = await servers_of(request.services, _cells(found))
    shown = []
    for host in found:
        one = basic(host)
        if host.mapping.cell in living.unread:
            raise _unread(host)
        if living.by_host[host.mapping.host]:
            one["servers"] = [_server(server) for server in living.by_host[host.mapping.host]]
        shown.append(one)
    return Answer({"hypervisors": shown})


def basic(host: MappedHost) -> dict[str, Any]:
    """Return what the plain list says."""
    assert host.state is not None
    return {
        "id": (host.number, host.mapping.node),
        "hypervisor_hostname": host.state.usage.hypervisor_hostname or host.mapping.host,
        "state": "up" if host.is_up else "down",
        "status": "disabled" if host.mapping.disabled else "enabled",
    }


def whole(host: MappedHost) -> dict[str, Any]:
    """Return all that the API says of a hypervisor."""
    assert host.state is not None
    usage = host.state.usage
    return {
        **basic(host),
        **figures(host),
        "cpu_info": usage.cpu_info,
        "hypervisor_type": usage.hypervisor_type,
        "hypervisor_version": usage.hypervisor_version,
        "host_ip": usage.host_ip,
        "uptime": usage.uptime,
        "service": {
            "id": (host.number, host.mapping.node),
            "host": host.mapping.host,
            "disabled_reason": host.mapping.disabled_reason,
        },
    }


_FIGURES = (
    "vcpus",
    "memory_mb",
    "local_gb",
    "vcpus_used",
    "memory_mb_used",
    "local_gb_used",
    "free_ram_mb",
    "free_disk_gb",
    "current_workload",
    "running_vms",
    "disk_available_least",
)


def figures(host: MappedHost) -> dict[str, int]:
    """Return what a host has and uses. What it keeps for itself counts as used, as in Nova."""
    assert host.state is not None
    usage = host.state.usage

    def total(resource: str) -> int:
        inventory = usage.inventory.get(resource)
        return 0 if inventory is None else inventory.total

    def used(resource: str) -> int:
        inventory = usage.inventory.get(resource)
        return usage.used.get(resource, 0) + (0 if inventory is None else inventory.reserved)

    free_disk = total(DISK_GB) - used(DISK_GB)
    return {
        "vcpus": total(VCPU),
        "memory_mb": total(MEMORY_MB),
        "local_gb": total(DISK_GB),
        "vcpus_used": usage.used.get(VCPU, 0),
        "memory_mb_used": used(MEMORY_MB),
        "local_gb_used": used(DISK_GB),
        "free_ram_mb": total(MEMORY_MB) - used(MEMORY_MB),
        "free_disk_gb": free_disk,
        "current_workload": len(host.state.claims),
        "running_vms": usage.servers,
        "disk_available_least": free_disk,
    }


async def _list(request: ApiRequest, view: Any, path: str) -> Answer:
    found = await _reported(request)
    pattern = request.first("hypervisor_hostname_pattern")
    if pattern is not None:
        if "limit" in request.query or "marker" in request.query:
            raise BadRequest("hypervisor_hostname_pattern cannot be combined with limit or marker.")
        found = _named_like(found, pattern)
    page = _page(request, found)
    living = await _servers(request, page)
    known = [host for host in page if not _seems_empty(request, host, living)]
    body: dict[str, Any] = {"hypervisors": [_with_servers(request, view(host), host, living) for host in known]}
    if "limit" in request.query and page:
        last = page[-1].number if request.version < 53 else page[-1].mapping.node
        more = request.next_link(path, len(page), last)
        if more is not None:
            body["hypervisors_links"] = more
    return Answer(body)


def _page(request: ApiRequest, found: list[MappedHost]) -> list[MappedHost]:
    limit, marker = request.page()
    if marker is not None:
        place = _place(request, found, marker)
        if place is None:
            raise BadRequest(f"marker [{marker[:255]}] not found")
        found = found[place + 1 :]
    return found[:limit]


def _place(request: ApiRequest, found: list[MappedHost], identifier: str) -> int | None:
    for place, host in enumerate(found):
        if identifier == (str(host.number) if request.version < 53 else host.mapping.node):
            return place
    return None


async def _reported(request: ApiRequest) -> list[MappedHost]:
    """Return the hosts that a scheduler knows; of one that never reported there is nothing to show."""
    return [host for host in await hosts(request.services) if host.state is not None]


async def _one(request: ApiRequest) -> MappedHost:
    identifier = request.params["hypervisor_id"]
    if request.version >= 53 and not is_uuid(identifier):
        raise BadRequest(f"Invalid uuid {identifier[:80]}")
    found = await _reported(request)
    place = _place(request, found, identifier)
    if place is None:
        raise NotFound(f"Compute host {identifier[:80]} could not be found.")
    return found[place]


async def _matching(request: ApiRequest) -> list[MappedHost]:
    return _named_like(await _reported(request), request.params["hypervisor_id"])


def _named_like(found: list[MappedHost], pattern: str) -> list[MappedHost]:
    """Return the hosts whose name has the pattern in it.

    Raises NotFound when there is none.
    """
    matching = [host for host in found if pattern in basic(host)["hypervisor_hostname"]]
    if not matching:
        raise NotFound(f"No hypervisor matching '{pattern[:80]}' could be found.")
    return matching


async def _servers(request: ApiRequest, found: list[MappedHost]) -> Residents | None:
    """Return the servers on these hosts where the caller asked for them with `with_servers` (2.53)."""
    wanted = request.first("with_servers")
    if wanted is None or wanted in FALSE_WORDS:
        return None
    if wanted not in TRUE_WORDS:
        raise BadRequest(f"Invalid input for query parameters with_servers. Value: {wanted[:80]}. Expected: a boolean")
    return await servers_of(request.services, _cells(found))


def _cells(found: list[MappedHost]) -> dict[str, CellUuid]:
    return {host.mapping.host: host.mapping.cell for host in found}


def _seems_empty(request: ApiRequest, host: MappedHost, living: Residents | None) -> bool:
    """Tell whether the host would look as if it had no servers only because its cell cannot be read.

    Such a one is left out, as Nova does; from 2.75 on it is seen that `servers` is missing.
    """
    unread = living is not None and host.mapping.cell in living.unread
    return unread and request.version < ALWAYS_WITH_SERVERS_SINCE


def _with_servers(
    request: ApiRequest, shown: dict[str, Any], host: MappedHost, living: Residents | None
) -> dict[str, Any]:
    if living is not None and host.mapping.cell not in living.unread:
        there = [_server(server) for server in living.by_host[host.mapping.host]]
        if there or request.version >= ALWAYS_WITH_SERVERS_SINCE:
            shown["servers"] = there
    return shown


def _unread(host: MappedHost) -> Unavailable:
    return Unavailable(f"The servers on host {host.mapping.host} cannot be read now. Try again later.")


def _server(server: Resident) -> dict[str, Any]:
    return {"uuid": server.uuid, "name": server.name}
