"""Rows of the route table for networks, which old clients ask the compute API for instead of the network service."""

from __future__ import annotations

from functools import partial

from skep.api.handlers import proxied_addresses, proxied_groups, proxied_networks
from skep.api.microversions import PROXIES_LAST
from skep.api.routing import Route
from skep.api.schemas import network_proxies as schemas

_GROUPS = "os_compute_api:os-security-groups"
_GROUP = "/os-security-groups/{group_id}"
_FLOATING = "os_compute_api:os-floating-ips"
_ONE = "/os-floating-ips/{floating_id}"

_proxy = partial(Route, until=PROXIES_LAST)

NETWORK_PROXY_ROUTES: tuple[Route, ...] = (
    _proxy(
        "GET",
        "/os-security-groups",
        proxied_groups.index,
        f"{_GROUPS}:get",
        query=schemas.LIST,
        response=schemas.GROUPS_LISTED,
    ),
    _proxy(
        "POST",
        "/os-security-groups",
        proxied_groups.create,
        f"{_GROUPS}:create",
        body=schemas.GROUP,
        response=schemas.GROUP_SHOWN,
    ),
    _proxy("GET", _GROUP, proxied_groups.show, f"{_GROUPS}:show", response=schemas.GROUP_SHOWN),
    _proxy(
        "PUT",
        _GROUP,
        proxied_groups.update,
        f"{_GROUPS}:update",
        body=schemas.GROUP,
        response=schemas.GROUP_SHOWN,
    ),
    _proxy("DELETE", _GROUP, proxied_groups.delete, f"{_GROUPS}:delete", status=202),
    _proxy(
        "POST",
        "/os-security-group-rules",
        proxied_groups.create_rule,
        f"{_GROUPS}:rule:create",
        body=schemas.RULE,
        response=schemas.RULE_SHOWN,
    ),
    _proxy(
        "DELETE", "/os-security-group-rules/{rule_id}", proxied_groups.delete_rule, f"{_GROUPS}:rule:delete", status=202
    ),
    _proxy(
        "GET",
        "/os-floating-ip-pools",
        proxied_addresses.pools,
        "os_compute_api:os-floating-ip-pools",
        response=schemas.POOLS,
    ),
    _proxy("GET", "/os-floating-ips", proxied_addresses.index, f"{_FLOATING}:list", response=schemas.FLOATING_LISTED),
    _proxy(
        "POST",
        "/os-floating-ips",
        proxied_addresses.take,
        f"{_FLOATING}:create",
        body=schemas.TAKE,
        response=schemas.FLOATING_SHOWN,
    ),
    _proxy("GET", _ONE, proxied_addresses.show, f"{_FLOATING}:show", response=schemas.FLOATING_SHOWN),
    _proxy("DELETE", _ONE, proxied_addresses.give_back, f"{_FLOATING}:delete", status=202),
    _proxy(
        "GET",
        "/os-networks",
        proxied_networks.index,
        "os_compute_api:os-networks:list",
        response=schemas.NETWORKS_LISTED,
    ),
    _proxy(
        "GET",
        "/os-networks/{network_id}",
        proxied_networks.show,
        "os_compute_api:os-networks:show",
        response=schemas.NETWORK_SHOWN,
    ),
    _proxy(
        "GET",
        "/os-tenant-networks",
        proxied_networks.index_of_project,
        "os_compute_api:os-tenant-networks:list",
        response=schemas.OF_PROJECT_LISTED,
    ),
    _proxy(
        "GET",
        "/os-tenant-networks/{network_id}",
        proxied_networks.show_of_project,
        "os_compute_api:os-tenant-networks:show",
        response=schemas.OF_PROJECT_SHOWN,
    ),
)
