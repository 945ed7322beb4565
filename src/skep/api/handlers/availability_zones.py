"""Availability zones: aggregates with a zone, and the default one for all other hosts."""

from __future__ import annotations

from typing import Any

from skep.api.operator_state import MappedHost, hosts, zones_by_host
from skep.api.requests import Answer, ApiRequest
from skep.api.services import RunningService
from skep.database.api import aggregates, host_mappings
from skep.domain.clock import isoformat_micro

Zones = dict[str, dict[str, Any]]


async def index(request: ApiRequest) -> Answer:
    """`GET /os-availability-zone`: names, and whether a host in them is enabled."""
    services = request.services
    mapped, known = await services.database.read(lambda c: (host_mappings.every(c), aggregates.every(c)))
    zones = zones_by_host(mapped, known, services.settings.default_availability_zone)
    enabled = {zones[mapping.host] for mapping in mapped if not mapping.disabled}
    return _answer([_zone(name, name in enabled, None) for name in _order(set(zones.values()), enabled)])


async def detail(request: ApiRequest) -> Answer:
    """`GET /os-availability-zone/detail`: hosts too, and the zone of Skep's own services."""
    services = request.services
    everything = await hosts(services)
    enabled = {host.zone for host in everything if not host.mapping.disabled}
    by_zone: Zones = {}
    for host in everything:
        by_zone.setdefault(host.zone, {})[host.mapping.host] = {"nova-compute": _agent(host)}
    shown = [_zone(name, name in enabled, by_zone[name]) for name in _order(set(by_zone), enabled)]
    own: dict[str, Any] = {}
    for service in await services.running():
        own.setdefault(service.host, {})[service.binary] = _own(service)
    if own:
        shown.insert(0, _zone(services.settings.internal_service_availability_zone, True, own))
    return _answer(shown)


def _order(zones: set[str], enabled: set[str]) -> list[str]:
    """Return the zones that can take servers first, then the others."""
    return sorted(zones, key=lambda name: (name not in enabled, name))


def _agent(host: MappedHost) -> dict[str, Any]:
    heard = host.state.last_heard if host.state is not None else 0
    return {
        "active": not host.mapping.disabled,
        "available": host.is_up,
        "updated_at": isoformat_micro(heard) if heard else None,
    }


def _own(service: RunningService) -> dict[str, Any]:
    return {"active": True, "available": service.alive, "updated_at": isoformat_micro(service.seen_at)}


def _zone(name: str, available: bool, members: dict[str, Any] | None) -> dict[str, Any]:
    return {"zoneName": name, "zoneState": {"available": available}, "hosts": members}


def _answer(zones: list[dict[str, Any]]) -> Answer:
    return Answer({"availabilityZoneInfo": zones})
