"""Rows of the route table for hosts: aggregates, availability zones, hypervisors, services."""

from __future__ import annotations

from functools import partial

from skep.api.handlers import aggregates, availability_zones, hosts, hypervisors, services
from skep.api.routing import Route
from skep.api.schemas import aggregates as aggregate_schemas
from skep.api.schemas import availability_zones as zone_schemas
from skep.api.schemas import hosts as host_schemas
from skep.api.schemas import hypervisors as hypervisor_schemas
from skep.api.schemas import services as service_schemas

_AGGREGATE = "/os-aggregates/{aggregate_id}"
_HYPERVISOR = "/os-hypervisors/{hypervisor_id}"

_AGGREGATE_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/os-aggregates",
        aggregates.index,
        "os_compute_api:os-aggregates:index",
        response=aggregate_schemas.LISTED,
    ),
    Route(
        "POST",
        "/os-aggregates",
        aggregates.create,
        "os_compute_api:os-aggregates:create",
        body=aggregate_schemas.CREATE,
        response=aggregate_schemas.CREATED,
    ),
    Route("GET", _AGGREGATE, aggregates.show, "os_compute_api:os-aggregates:show", response=aggregate_schemas.SHOWN),
    Route(
        "PUT",
        _AGGREGATE,
        aggregates.update,
        "os_compute_api:os-aggregates:update",
        body=aggregate_schemas.UPDATE,
        response=aggregate_schemas.SHOWN,
    ),
    Route("DELETE", _AGGREGATE, aggregates.delete, "os_compute_api:os-aggregates:delete"),
    Route(
        "POST",
        f"{_AGGREGATE}/action",
        aggregates.add_host,
        "os_compute_api:os-aggregates:add_host",
        action="add_host",
        body=aggregate_schemas.ADD_HOST,
        response=aggregate_schemas.SHOWN,
    ),
    Route(
        "POST",
        f"{_AGGREGATE}/action",
        aggregates.remove_host,
        "os_compute_api:os-aggregates:remove_host",
        action="remove_host",
        body=aggregate_schemas.REMOVE_HOST,
        response=aggregate_schemas.SHOWN,
    ),
    Route(
        "POST",
        f"{_AGGREGATE}/action",
        aggregates.set_metadata,
        "os_compute_api:os-aggregates:set_metadata",
        action="set_metadata",
        body=aggregate_schemas.SET_METADATA,
        response=aggregate_schemas.SHOWN,
    ),
    Route(
        "POST",
        f"{_AGGREGATE}/images",
        aggregates.cache_images,
        "compute:aggregates:images",
        status=202,
        since=81,
        body=aggregate_schemas.CACHE,
    ),
    Route(
        "GET",
        "/os-availability-zone",
        availability_zones.index,
        "os_compute_api:os-availability-zone:list",
        response=zone_schemas.ZONES,
    ),
    Route(
        "GET",
        "/os-availability-zone/detail",
        availability_zones.detail,
        "os_compute_api:os-availability-zone:detail",
        response=zone_schemas.ZONES,
    ),
)

_HOST_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/os-hypervisors",
        hypervisors.index,
        "os_compute_api:os-hypervisors:list",
        query=hypervisor_schemas.LIST,
        response=hypervisor_schemas.LISTED,
    ),
    Route(
        "GET",
        "/os-hypervisors/detail",
        hypervisors.detail,
        "os_compute_api:os-hypervisors:list-detail",
        query=hypervisor_schemas.LIST,
        response=hypervisor_schemas.DETAILED,
    ),
    Route(
        "GET",
        "/os-hypervisors/statistics",
        hypervisors.statistics,
        "os_compute_api:os-hypervisors:statistics",
        until=87,
        response=hypervisor_schemas.STATISTICS,
    ),
    Route(
        "GET",
        _HYPERVISOR,
        hypervisors.show,
        "os_compute_api:os-hypervisors:show",
        query=hypervisor_schemas.SHOW,
        response=hypervisor_schemas.SHOWN,
    ),
    Route(
        "GET",
        f"{_HYPERVISOR}/uptime",
        hypervisors.uptime,
        "os_compute_api:os-hypervisors:uptime",
        until=87,
        response=hypervisor_schemas.UPTIME,
    ),
    Route(
        "GET",
        f"{_HYPERVISOR}/search",
        hypervisors.search,
        "os_compute_api:os-hypervisors:search",
        until=52,
        response=hypervisor_schemas.LISTED,
    ),
    Route(
        "GET",
        f"{_HYPERVISOR}/servers",
        hypervisors.servers,
        "os_compute_api:os-hypervisors:servers",
        until=52,
        response=hypervisor_schemas.LISTED,
    ),
    Route(
        "GET",
        "/os-services",
        services.index,
        "os_compute_api:os-services:list",
        query=service_schemas.LIST,
        response=service_schemas.LISTED,
    ),
    Route(
        "PUT",
        "/os-services/enable",
        services.enable,
        "os_compute_api:os-services:update",
        until=52,
        body=service_schemas.ENABLE,
        response=service_schemas.CHANGED,
    ),
    Route(
        "PUT",
        "/os-services/disable",
        services.disable,
        "os_compute_api:os-services:update",
        until=52,
        body=service_schemas.DISABLE,
        response=service_schemas.CHANGED,
    ),
    Route(
        "PUT",
        "/os-services/disable-log-reason",
        services.disable_log_reason,
        "os_compute_api:os-services:update",
        until=52,
        body=service_schemas.DISABLE_LOG_REASON,
        response=service_schemas.CHANGED,
    ),
    Route(
        "PUT",
        "/os-services/force-down",
        services.force_down,
        "os_compute_api:os-services:update",
        since=11,
        until=52,
        body=service_schemas.FORCE_DOWN,
        response=service_schemas.CHANGED,
    ),
    Route(
        "PUT",
        "/os-services/{service_id}",
        services.update,
        "os_compute_api:os-services:update",
        since=53,
        body=service_schemas.UPDATE,
        response=service_schemas.SHOWN,
    ),
    Route("DELETE", "/os-services/{service_id}", services.delete, "os_compute_api:os-services:delete", status=204),
)

_OLD = "os_compute_api:os-hosts"
_of_old = partial(Route, until=host_schemas.LAST)

_OLD_ROUTES: tuple[Route, ...] = (
    _of_old("GET", "/os-hosts", hosts.index, f"{_OLD}:list", query=host_schemas.LIST, response=host_schemas.LISTED),
    _of_old("GET", "/os-hosts/{host}", hosts.show, f"{_OLD}:show", response=host_schemas.SHOWN),
    _of_old(
        "PUT",
        "/os-hosts/{host}",
        hosts.update,
        f"{_OLD}:update",
        body=host_schemas.UPDATE,
        response=host_schemas.UPDATED,
    ),
    _of_old("GET", "/os-hosts/{host}/startup", hosts.switch, f"{_OLD}:start"),
    _of_old("GET", "/os-hosts/{host}/shutdown", hosts.switch, f"{_OLD}:shutdown"),
    _of_old("GET", "/os-hosts/{host}/reboot", hosts.switch, f"{_OLD}:reboot"),
)

HOST_ROUTES: tuple[Route, ...] = (*_AGGREGATE_ROUTES, *_HOST_ROUTES, *_OLD_ROUTES)
