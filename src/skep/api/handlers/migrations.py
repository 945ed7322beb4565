"""Migrations: moves of servers, over all cells; and those of one server that are live and in progress."""

from __future__ import annotations

from functools import partial
from typing import Any

import structlog

from skep.api.cells import read_cell, read_cells
from skep.api.handlers.server_lookup import LocatedServer, find
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.migrations import PROGRESS
from skep.database.cell import server_migrations
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.clock import isoformat_micro, parse_iso
from skep.domain.errors import BadRequest, NotFound
from skep.domain.server_migrations import LIVE_IN_PROGRESS, MigrationType, ServerMigration

log = structlog.get_logger("skep.api.migrations")

INDEX = "os_compute_api:os-migrations:index"
OF_SERVER = "os_compute_api:servers:migrations:index"
PAGED_SINCE = 59

Json = dict[str, Any]


async def index(request: ApiRequest) -> Answer:
    """`GET /os-migrations`: newest first. Only admins see those of other projects than their own."""
    project = request.first("project_id")
    if project is None or project != request.context.project_id:
        request.authorize(rule=f"{INDEX}:all_projects")
    paged = request.version >= PAGED_SINCE
    limit, marker = request.page() if paged else (None, None)
    marker = marker or None
    query = await _query(request, limit, marker)
    units = dict.fromkeys(request.services.cells, partial(server_migrations.listed, query=query))
    answers, unread = await read_cells(request.services, units)
    for cell, error in unread.items():
        log.warning("cell left out of a list", cell=cell, error=str(error))
    # A server that went to another cell took its migrations along: its former cell may still have them.
    once = {one.uuid: one for rows in answers.values() for one in rows}
    found = sorted(once.values(), key=_place, reverse=True)[:limit]
    hosts = request.allowed(f"{INDEX}:host")
    body: Json = {"migrations": [_shown(request, one, hosts=hosts) for one in found]}
    links = request.next_link("os-migrations", len(found), found[-1].uuid if found else None) if paged else None
    if links is not None:
        body["migrations_links"] = links
    return Answer(body)


async def of_server(request: ApiRequest) -> Answer:
    """`GET /servers/{id}/migrations`: live migrations in progress."""
    hosts = request.allowed(f"{OF_SERVER}:host")
    return Answer({"migrations": [_live(one, hosts=hosts) for one in await _in_progress(request)]})


async def one_of_server(request: ApiRequest) -> Answer:
    """`GET /servers/{id}/migrations/{migration_id}`."""
    wanted = request.params["migration_id"]
    for one in await _in_progress(request):
        if str(one.id) == wanted:
            return Answer({"migration": _live(one, hosts=True)})
    raise NotFound(f"In-progress live migration {wanted[:80]} is not found for server {request.params['id']}.")


async def progress_of(request: ApiRequest, found: LocatedServer) -> int:
    """Return how many percent of a server under a live migration are copied."""
    assert found.cell is not None
    unit = partial(server_migrations.live, instance=found.instance.uuid)
    for one in await read_cell(request.services, found.cell, unit):
        if one.memory_total is not None and one.disk_total is not None:
            remaining = (one.memory_remaining or 0) + (one.disk_remaining or 0)
            return 100 - round(100 * remaining / max(1, one.memory_total + one.disk_total))
    return 0


async def _in_progress(request: ApiRequest) -> list[ServerMigration]:
    found = await find(request)
    if found.cell is None:
        return []
    unit = partial(server_migrations.live, instance=found.instance.uuid)
    return await read_cell(request.services, found.cell, unit)


async def _query(request: ApiRequest, limit: int | None, marker: str | None) -> MigrationQuery:
    since, before = _time(request, "changes-since"), _time(request, "changes-before")
    if since is not None and before is not None and since > before:
        raise BadRequest("The value of changes-since must be less than or equal to changes-before.")
    host = request.first("host")
    return MigrationQuery(
        host=host,
        source_host=request.first("source_compute") if host is None else None,
        instance=request.first("instance_uuid"),
        status=request.first("status"),
        type=request.first("migration_type"),
        project_id=request.first("project_id"),
        user_id=request.first("user_id"),
        changed_since=since,
        changed_before=before,
        after=None if marker is None else await _place_of(request, marker),
        limit=limit,
    )


async def _place_of(request: ApiRequest, marker: str) -> tuple[int, str]:
    """Return where the list goes on after a marker. Raises BadRequest when no cell has it."""
    units = dict.fromkeys(request.services.cells, partial(server_migrations.get, uuid=marker))
    answers, _ = await read_cells(request.services, units)
    for one in answers.values():
        if one is not None:
            return _place(one)
    raise BadRequest(f"Marker {marker[:80]} could not be found.")


def _place(one: ServerMigration) -> tuple[int, str]:
    return (one.created_at, one.uuid)


def _time(request: ApiRequest, name: str) -> int | None:
    text = request.first(name)
    if text is None:
        return None
    try:
        return parse_iso(text)
    except (ValueError, OverflowError):
        raise BadRequest(f"Invalid input for query parameters {name}. Value: {text[:80]}. It is no time") from None


def _shown(request: ApiRequest, one: ServerMigration, *, hosts: bool) -> Json:
    shown = {
        **_common(one, hosts=hosts),
        "instance_uuid": one.instance,
        "old_instance_type_id": _number(one.old_flavor),
        "new_instance_type_id": _number(one.new_flavor),
        "migration_type": one.type.value,
    }
    if one.type is MigrationType.LIVE and one.status in LIVE_IN_PROGRESS:
        shown["links"] = request.links.both(f"servers/{one.instance}/migrations", one.id)
    return shown


def _live(one: ServerMigration, *, hosts: bool) -> Json:
    figures = {name: getattr(one, name.removesuffix("_bytes")) for name in PROGRESS}
    return {**_common(one, hosts=hosts), "server_uuid": one.instance, **figures}


def _common(one: ServerMigration, *, hosts: bool) -> Json:
    places = {
        "source_compute": one.source_host,
        "source_node": one.source_host,
        "dest_compute": one.dest_host,
        "dest_node": one.dest_host,
        "dest_host": one.dest_address,
    }
    return {
        "id": one.id,
        "uuid": one.uuid,
        "status": one.status,
        "user_id": one.user_id,
        "project_id": one.project_id,
        "created_at": isoformat_micro(one.created_at),
        "updated_at": None if one.updated_at is None else isoformat_micro(one.updated_at),
        **(places if hosts else dict.fromkeys(places)),
    }


def _number(flavor: str | None) -> int | None:
    """Return the number that Nova would show of a flavor: Skep knows flavors by their ids, which may be numbers."""
    return int(flavor) if flavor is not None and flavor.isascii() and flavor.isdigit() and len(flavor) < 10 else None
