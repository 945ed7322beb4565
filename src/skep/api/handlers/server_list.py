"""Lists of servers over all places where they are.

Build requests are read before the cells: a server that leaves them is in a cell by then, so none is missed. A row that
is still staged counts only when its mapping names its cell, so none is there twice or too early. A cell that does not
answer in time is left out, or (2.69) stood in for by what its mappings say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from skep.api.cells import read_cells
from skep.api.handlers.server_filters import ServerSelection, ordered, selection
from skep.api.handlers.server_lookup import CellUnreadable, look_up, settled
from skep.api.handlers.server_views import view_for
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.server_answers import PARTIAL_SINCE
from skep.api.services import ApiServices
from skep.database import Connection
from skep.database.api import build_requests
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.database.cell.listing import ListQuery, NamedServer, list_all, list_named
from skep.domain.errors import BadRequest
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Instance, Task
from skep.domain.states import FROZEN

log = structlog.get_logger("skep.api.servers")

MAX_NAMED = 500
"""Servers named in one statement."""

Row = TypeVar("Row", bound=Instance | NamedServer)
"""A server as its cell returns it: with all facts, or with its name alone for a list of names."""


async def index(request: ApiRequest) -> Answer:
    """List servers: id, name and links."""
    listed = await _page(request, list_named)
    view = await view_for(request, hosts=False)
    shown = [view.unknown(one) if isinstance(one, Mapping) else view.basic(one.uuid, one.name) for one in listed]
    return _answer(request, "servers", shown)


async def detail(request: ApiRequest) -> Answer:
    """List servers with all keys."""
    # Both at once: neither a cell nor a scheduler that is away is waited for after the other.
    listed, view = await asyncio.gather(_page(request, list_all), view_for(request))
    shown = [view.unknown(one) if isinstance(one, Mapping) else view.whole(one) for one in listed]
    return _answer(request, "servers/detail", shown)


def _answer(request: ApiRequest, path: str, shown: list[dict[str, object]]) -> Answer:
    body: dict[str, object] = {"servers": shown}
    links = request.next_link(path, len(shown), shown[-1]["id"] if shown else None)
    if links is not None:
        body["servers_links"] = links
    return Answer(body)


async def _page(
    request: ApiRequest, lists: Callable[[Connection, ListQuery], list[Row]]
) -> list[Instance | Row | Mapping]:
    """Return the servers of a page; of those in cells that cannot be read what is known above."""
    limit, marker = request.page()
    marker = marker or None
    chosen = selection(request)
    if chosen.in_default_order:
        after = await _place_of(request, chosen, marker) if marker is not None else None
        if chosen.nothing or limit == 0:
            return []
        query = msgspec.structs.replace(chosen.query, after=after, limit=limit)
        found, unread = await _collect(request.services, query, lists)
        partly: list[Mapping] = []
        if unread and chosen.plain and request.version >= PARTIAL_SINCE:
            partly = await _known_above(request.services, unread, query, {one.uuid for one in found})
        return sorted([*found, *partly], key=_place, reverse=True)[:limit]
    start = await _marked(request, chosen, marker) if marker is not None else None
    if chosen.nothing or limit == 0:
        return []
    everything, _ = await _collect(request.services, chosen.query, list_all)
    return list(_after(ordered(_with(everything, start), chosen.order), start)[:limit])


def _place(one: Instance | NamedServer | Mapping) -> tuple[int, str]:
    return (one.created_at, one.instance if isinstance(one, Mapping) else one.uuid)


async def _place_of(request: ApiRequest, chosen: ServerSelection, marker: str) -> tuple[int, str]:
    """Return where in the default order the marker stands: its mapping says so, also when it is deleted by now."""
    mapping = await request.services.database.read(partial(mappings.get, instance=InstanceUuid(marker)))
    if mapping is None or chosen.query.project_id not in (None, mapping.project_id):
        raise _no_marker(marker)
    return (mapping.created_at, mapping.instance)


async def _marked(request: ApiRequest, chosen: ServerSelection, marker: str) -> Instance:
    """Return the server that a list in another order begins after."""
    try:
        found = await look_up(request.services, InstanceUuid(marker), deleted=True)
    except CellUnreadable:
        found = None
    if found is None or chosen.query.project_id not in (None, found.instance.project_id):
        raise _no_marker(marker)
    return found.instance


def _no_marker(marker: str) -> BadRequest:
    return BadRequest(f"marker [{marker[:80]}] not found")


def _with(found: list[Instance], start: Instance | None) -> list[Instance]:
    if start is None or any(one.uuid == start.uuid for one in found):
        return found
    return [*found, start]


def _after(found: list[Instance], start: Instance | None) -> list[Instance]:
    if start is None:
        return found
    at = next(index for index, one in enumerate(found) if one.uuid == start.uuid)
    return found[at + 1 :]


async def _collect(
    services: ApiServices, query: ListQuery, lists: Callable[[Connection, ListQuery], list[Row]]
) -> tuple[list[Instance | Row], list[CellUuid]]:
    """Return the servers of all places, each once and in no order, and the cells that could not be read."""
    waiting, leaving = await services.database.read(partial(_read_above, query=query))
    answers, unread = await read_cells(services, dict.fromkeys(services.cells, lambda cell: lists(cell, query)))
    for cell, error in unread.items():
        log.warning("cell left out of a list", cell=cell, error=str(error))
    found: dict[str, Instance | Row] = {one.uuid: one for one in waiting}
    staged: list[tuple[CellUuid, Instance]] = []
    for cell, rows in answers.items():
        for one in rows:
            if isinstance(one, Instance) and one.state in FROZEN:
                staged.append((cell, one))
            else:
                found[one.uuid] = one
    if staged:
        for settling in await _mapped(services, staged):
            if query.accepts(settling):
                found[settling.uuid] = settling
            else:
                found.pop(settling.uuid, None)
    return [_leaving(one, leaving) if isinstance(one, Instance) else one for one in found.values()], list(unread)


def _read_above(connection: Connection, query: ListQuery) -> tuple[list[Instance], set[str]]:
    leaving = mappings.deleting(connection, query.project_id)
    if query.deleted:
        return [], leaving
    waiting = build_requests.list_all(
        connection,
        project_id=query.project_id,
        changed_since=query.changed_since,
        changed_before=query.changed_before,
        after=query.after,
        accepts=query.accepts,
        limit=query.limit,
    )
    return waiting, leaving


async def _mapped(services: ApiServices, staged: list[tuple[CellUuid, Instance]]) -> list[Instance]:
    """Return those staged rows whose mapping names their cell, as they will be in a moment."""
    known: dict[str, Mapping] = {}
    for start in range(0, len(staged), MAX_NAMED):
        uuids = [one.uuid for _, one in staged[start : start + MAX_NAMED]]
        known.update(await services.database.read(partial(mappings.get_many, instances=uuids)))
    return [
        msgspec.structs.replace(one, state=settled(one))
        for cell, one in staged
        if one.uuid in known and known[one.uuid].cell == cell
    ]


async def _known_above(
    services: ApiServices, cells: list[CellUuid], query: ListQuery, there: set[str]
) -> list[Mapping]:
    """Return what the mappings say of the servers of cells that cannot be read, without those that are `there`."""
    known: list[Mapping] = []
    for cell in cells:
        unit = partial(mappings.in_cell, cell=cell, project_id=query.project_id, after=query.after, limit=query.limit)
        known += [one for one in await services.database.read(unit) if one.instance not in there]
    return known


def _leaving(instance: Instance, leaving: set[str]) -> Instance:
    """Show that a server is to go before its row says so."""
    if instance.uuid in leaving and instance.task is None and instance.deleted_at is None:
        return msgspec.structs.replace(instance, task=Task.DELETING)
    return instance
