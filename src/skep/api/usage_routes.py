"""Rows of the route table for what projects used, and for what other services tell of servers."""

from __future__ import annotations

from skep.api.handlers import external_events, usage, usage_audits, volume_snapshots
from skep.api.routing import Route
from skep.api.schemas import external_events as event_schemas
from skep.api.schemas import usage as usage_schemas
from skep.api.schemas import volume_snapshots as snapshot_schemas

_USAGE = "os_compute_api:os-simple-tenant-usage"
_AUDIT = "os_compute_api:os-instance-usage-audit-log"
_SNAPSHOTS = "os_compute_api:os-assisted-volume-snapshots"

USAGE_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/os-simple-tenant-usage",
        usage.index,
        f"{_USAGE}:list",
        query=usage_schemas.LIST,
        response=usage_schemas.LISTED,
    ),
    Route(
        "GET",
        "/os-simple-tenant-usage/{project}",
        usage.show,
        f"{_USAGE}:show",
        query=usage_schemas.SHOW,
        response=usage_schemas.SHOWN,
        target="object",
    ),
    Route("GET", "/os-instance_usage_audit_log", usage_audits.index, f"{_AUDIT}:list", response=usage_schemas.AUDITS),
    Route(
        "GET",
        "/os-instance_usage_audit_log/{before}",
        usage_audits.show,
        f"{_AUDIT}:show",
        response=usage_schemas.AUDIT,
    ),
    Route(
        "POST",
        "/os-server-external-events",
        external_events.create,
        "os_compute_api:os-server-external-events:create",
        partly=external_events.PARTLY,
        body=event_schemas.CREATE,
        response=event_schemas.CREATED,
    ),
    Route(
        "POST",
        "/os-assisted-volume-snapshots",
        volume_snapshots.create,
        f"{_SNAPSHOTS}:create",
        body=snapshot_schemas.CREATE,
    ),
    Route(
        "DELETE",
        "/os-assisted-volume-snapshots/{snapshot_id}",
        volume_snapshots.delete,
        f"{_SNAPSHOTS}:delete",
        status=204,
        query=snapshot_schemas.DELETE,
    ),
)
