"""Rows of the route table for volumes, which old clients ask the compute API for instead of the volume service."""

from __future__ import annotations

from functools import partial

from skep.api.handlers import proxied_volumes
from skep.api.microversions import PROXIES_LAST
from skep.api.routing import Route
from skep.api.schemas import volume_proxies as schemas

_RULE = "os_compute_api:os-volumes"
_VOLUME, _SNAPSHOT = "/os-volumes/{volume_id}", "/os-snapshots/{snapshot_id}"

_proxy = partial(Route, until=PROXIES_LAST)
_volumes = partial(_proxy, query=schemas.LIST, response=schemas.VOLUMES_LISTED)
_snapshots = partial(_proxy, query=schemas.LIST, response=schemas.SNAPSHOTS_LISTED)

VOLUME_PROXY_ROUTES: tuple[Route, ...] = (
    _volumes("GET", "/os-volumes", proxied_volumes.index, f"{_RULE}:list"),
    _volumes("GET", "/os-volumes/detail", proxied_volumes.index, f"{_RULE}:detail"),
    _proxy(
        "POST",
        "/os-volumes",
        proxied_volumes.create,
        f"{_RULE}:create",
        body=schemas.VOLUME,
        response=schemas.VOLUME_SHOWN,
    ),
    _proxy("GET", _VOLUME, proxied_volumes.show, f"{_RULE}:show", response=schemas.VOLUME_SHOWN),
    _proxy("DELETE", _VOLUME, proxied_volumes.delete, f"{_RULE}:delete", status=202),
    _snapshots("GET", "/os-snapshots", proxied_volumes.index_of_snapshots, f"{_RULE}:snapshots:list"),
    _snapshots("GET", "/os-snapshots/detail", proxied_volumes.index_of_snapshots, f"{_RULE}:snapshots:detail"),
    _proxy(
        "POST",
        "/os-snapshots",
        proxied_volumes.create_snapshot,
        f"{_RULE}:snapshots:create",
        body=schemas.SNAPSHOT,
        response=schemas.SNAPSHOT_SHOWN,
    ),
    _proxy("GET", _SNAPSHOT, proxied_volumes.show_snapshot, f"{_RULE}:snapshots:show", response=schemas.SNAPSHOT_SHOWN),
    _proxy("DELETE", _SNAPSHOT, proxied_volumes.delete_snapshot, f"{_RULE}:snapshots:delete", status=202),
)
