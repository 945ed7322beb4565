"""Rows of the route table for networks, which old clients ask the compute API for instead of the network service."""

from __future__ import annotations

from functools import partial

from skep.api.handlers import proxied_groups
from skep.api.routing import Route
from skep.api.schemas import network_proxies as schemas

_GROUPS = "os_compute_api:os-security-groups"
_GROUP = "/os-security-groups/{group_id}"

_proxy = partial(Route, until=schemas.LAST)

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
)
