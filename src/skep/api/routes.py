"""The route table: all that the compute API serves, one row each."""

from __future__ import annotations

from skep.api.console_routes import CONSOLE_ROUTES
from skep.api.handlers import (
    extensions,
    flavor_access,
    flavor_extra_specs,
    flavors,
    limits,
    migrations,
    quota_classes,
    quota_sets,
    server_groups,
)
from skep.api.host_routes import HOST_ROUTES
from skep.api.image_routes import IMAGE_ROUTES
from skep.api.key_pair_routes import KEY_PAIR_ROUTES
from skep.api.network_proxy_routes import NETWORK_PROXY_ROUTES
from skep.api.roles import ANY_SCOPE
from skep.api.routing import Route
from skep.api.schemas import extensions as extension_schemas
from skep.api.schemas import flavors as flavor_schemas
from skep.api.schemas import migrations as migration_schemas
from skep.api.schemas import quotas as quota_schemas
from skep.api.schemas import server_groups as group_schemas
from skep.api.server_routes import SERVER_ROUTES
from skep.api.usage_routes import USAGE_ROUTES
from skep.api.volume_proxy_routes import VOLUME_PROXY_ROUTES

_FLAVOR = "/flavors/{flavor_id}"
_SPECS = f"{_FLAVOR}/os-extra_specs"
_SPEC = f"{_SPECS}/{{key}}"
_GROUP = "/os-server-groups/{group_id}"
_QUOTA = "/os-quota-sets/{project}"
_CLASS = "/os-quota-class-sets/{name}"

_FLAVOR_ROUTES: tuple[Route, ...] = (
    Route("GET", "/flavors", flavors.index, ANY_SCOPE, query=flavor_schemas.LIST, response=flavor_schemas.LISTED),
    Route(
        "GET", "/flavors/detail", flavors.detail, ANY_SCOPE, query=flavor_schemas.LIST, response=flavor_schemas.DETAILED
    ),
    Route(
        "POST",
        "/flavors",
        flavors.create,
        "os_compute_api:os-flavor-manage:create",
        body=flavor_schemas.CREATE,
        response=flavor_schemas.SHOWN,
    ),
    Route("GET", _FLAVOR, flavors.show, ANY_SCOPE, query=flavor_schemas.SHOW, response=flavor_schemas.SHOWN),
    Route(
        "PUT",
        _FLAVOR,
        flavors.update,
        "os_compute_api:os-flavor-manage:update",
        since=55,
        body=flavor_schemas.UPDATE,
        response=flavor_schemas.SHOWN,
    ),
    Route("DELETE", _FLAVOR, flavors.delete, "os_compute_api:os-flavor-manage:delete", status=202),
    Route(
        "GET",
        _SPECS,
        flavor_extra_specs.index,
        "os_compute_api:os-flavor-extra-specs:index",
        response=flavor_schemas.EXTRA_SPECS_SHOWN,
    ),
    Route(
        "POST",
        _SPECS,
        flavor_extra_specs.create,
        "os_compute_api:os-flavor-extra-specs:create",
        body=flavor_schemas.EXTRA_SPECS_CREATE,
        response=flavor_schemas.EXTRA_SPECS_SHOWN,
    ),
    Route(
        "GET",
        _SPEC,
        flavor_extra_specs.show,
        "os_compute_api:os-flavor-extra-specs:show",
        response=flavor_schemas.EXTRA_SPEC_SHOWN,
    ),
    Route(
        "PUT",
        _SPEC,
        flavor_extra_specs.update,
        "os_compute_api:os-flavor-extra-specs:update",
        body=flavor_schemas.EXTRA_SPEC_UPDATE,
        response=flavor_schemas.EXTRA_SPEC_SHOWN,
    ),
    Route("DELETE", _SPEC, flavor_extra_specs.delete, "os_compute_api:os-flavor-extra-specs:delete"),
    Route(
        "GET",
        f"{_FLAVOR}/os-flavor-access",
        flavor_access.index,
        "os_compute_api:os-flavor-access",
        response=flavor_schemas.ACCESS,
    ),
    Route(
        "POST",
        f"{_FLAVOR}/action",
        flavor_access.add,
        "os_compute_api:os-flavor-access:add_tenant_access",
        action="addTenantAccess",
        body=flavor_schemas.ADD_ACCESS,
        response=flavor_schemas.ACCESS,
    ),
    Route(
        "POST",
        f"{_FLAVOR}/action",
        flavor_access.remove,
        "os_compute_api:os-flavor-access:remove_tenant_access",
        action="removeTenantAccess",
        body=flavor_schemas.REMOVE_ACCESS,
        response=flavor_schemas.ACCESS,
    ),
)

_GROUP_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/os-server-groups",
        server_groups.index,
        "os_compute_api:os-server-groups:index",
        query=group_schemas.LIST,
        response=group_schemas.LISTED,
    ),
    Route(
        "POST",
        "/os-server-groups",
        server_groups.create,
        "os_compute_api:os-server-groups:create",
        body=group_schemas.CREATE,
        response=group_schemas.SHOWN,
    ),
    Route(
        "GET",
        _GROUP,
        server_groups.show,
        "os_compute_api:os-server-groups:show",
        response=group_schemas.SHOWN,
        target="object",
    ),
    Route(
        "DELETE", _GROUP, server_groups.delete, "os_compute_api:os-server-groups:delete", status=204, target="object"
    ),
)

_QUOTA_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/limits",
        limits.show,
        "os_compute_api:limits",
        query=quota_schemas.LIMITS_QUERY,
        response=quota_schemas.LIMITS,
    ),
    Route(
        "GET",
        _QUOTA,
        quota_sets.show,
        "os_compute_api:os-quota-sets:show",
        query=quota_schemas.QUERY,
        response=quota_schemas.SHOWN,
        target="object",
    ),
    Route(
        "GET",
        f"{_QUOTA}/detail",
        quota_sets.detail,
        "os_compute_api:os-quota-sets:detail",
        query=quota_schemas.QUERY,
        response=quota_schemas.DETAILED,
        target="object",
    ),
    Route(
        "GET",
        f"{_QUOTA}/defaults",
        quota_sets.defaults,
        "os_compute_api:os-quota-sets:defaults",
        query=quota_schemas.ANY_QUERY,
        response=quota_schemas.SHOWN,
    ),
    Route(
        "PUT",
        _QUOTA,
        quota_sets.update,
        "os_compute_api:os-quota-sets:update",
        query=quota_schemas.QUERY,
        body=quota_schemas.UPDATE,
        response=quota_schemas.UPDATED,
        target="object",
    ),
    Route(
        "DELETE",
        _QUOTA,
        quota_sets.delete,
        "os_compute_api:os-quota-sets:delete",
        status=202,
        query=quota_schemas.QUERY,
        target="object",
    ),
    Route(
        "GET", _CLASS, quota_classes.show, "os_compute_api:os-quota-class-sets:show", response=quota_schemas.CLASS_SHOWN
    ),
    Route(
        "PUT",
        _CLASS,
        quota_classes.update,
        "os_compute_api:os-quota-class-sets:update",
        body=quota_schemas.CLASS_UPDATE,
        response=quota_schemas.CLASS_UPDATED,
    ),
)

_OTHER_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/os-migrations",
        migrations.index,
        "os_compute_api:os-migrations:index",
        query=migration_schemas.LIST,
        response=migration_schemas.LISTED,
    ),
    Route("GET", "/extensions", extensions.index, "os_compute_api:extensions", response=extension_schemas.LISTED),
    Route("GET", "/extensions/{alias}", extensions.show, "os_compute_api:extensions", response=extension_schemas.SHOWN),
)

ROUTES: tuple[Route, ...] = (
    *SERVER_ROUTES,
    *_FLAVOR_ROUTES,
    *_GROUP_ROUTES,
    *_QUOTA_ROUTES,
    *KEY_PAIR_ROUTES,
    *HOST_ROUTES,
    *IMAGE_ROUTES,
    *NETWORK_PROXY_ROUTES,
    *VOLUME_PROXY_ROUTES,
    *USAGE_ROUTES,
    *CONSOLE_ROUTES,
    *_OTHER_ROUTES,
)
