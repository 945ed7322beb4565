"""Lists of servers over all places where they are.

Build requests are read before the cells: a server that leaves them is in a cell by then, so none is missed. A row that
is still staged counts only when its mapping names its cell, so none is there twice or too early. A cell that does not
answer in time is left out, or (2.69) stood in for by what its mappings say.

Where nobody knows how many rows have to be looked at, each piece of a cell's part is a read of its own, and those of
one cell take turns: other reads come between, and none waits for a long list. A list in an order that no database can
give keeps what may come on its page, and no more. A project has one such list under way at a time: however many it asks
for, others wait for one piece of it, and one page of it is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import msgspec
import structlog

from skep.api.cells import LIST_SECONDS, cell_database
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
from skep.database.cell.listing import ListQuery, NamedServer, Piece, next_names, next_servers
from skep.database.of_cells import ask_each
from skep.domain.errors import BadRequest
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Instance, Task
from skep.domain.states import FROZEN

log = structlog.get_logger("skep.api.servers")

MAX_NAMED = 500
"""Servers named in one statement."""
MOST_LOOKED_AT = 100_000
"""Rows of one cell that one request may have looked at: some seconds of a processor."""

Row = TypeVar("Row", bound=Instance | NamedServer)
"""A server as its cell returns it: with all facts, or with its name alone for a list of names."""
Lists = Callable[[Connection, ListQuery], Piece[Row]]
Keep = Callable[[list[Row], int], list[Row]]
"""Returns those of a cell's servers that may come on the page, where so many of other places may replace some."""


async def index(request: ApiRequest) -> Answer:
    """List servers: id, name and links."""
    listed = await _page(request, next_names)
    view = await view_for(request, hosts=False)
    shown = [view.unknown(one) if isinstance(one, Mapping) else view.basic(one.uuid, one.name) for one in listed]
    return _answer(request, "servers", shown)


async def detail(request: ApiRequest) -> Answer:
    """List servers with all keys."""
    # Both at once: neither a cell nor a scheduler that is away is waited for after the other.
    listed, view = await asyncio.gather(_page(request, next_servers), view_for(request))
    shown = [view.unknown(one) if isinstance(one, Mapping) else view.whole(one) for one in listed]
    return _answer(request, "servers/detail", shown)


def _answer(request: ApiRequest, path: str, shown: list[dict[str, object]]) -> Answer:
    body: dict[str, object] = {"servers": shown}
    links = request.next_link(path, len(shown), shown[-1]["id"] if shown else None)
    if links is not None:
        body["servers_links"] = links
    return Answer(body)


async def _page(request: ApiRequest, lists: Lists[Row]) -> list[Instance | Row | Mapping]:
    """Return the servers of a page; of those in cells that cannot be read what is known above."""
    limit, marker = request.page()
    marker = marker or None
    chosen = selection(request)
    if chosen.in_default_order:
        after = await _place_of(request, chosen, marker) if marker is not None else None
        if chosen.nothing or limit == 0:
            return []
        query = msgspec.structs.replace(chosen.query, after=after, limit=limit)
        found, unread = await _collect(request, query, lists, _all)
        partly: list[Mapping] = []
        if unread and chosen.plain and request.version >= PARTIAL_SINCE:
            partly = await _known_above(request.services, unread, query, {one.uuid for one in found})
        return sorted([*found, *partly], key=_place, reverse=True)[:limit]
    start = await _marked(request, chosen, marker) if marker is not None else None
    if chosen.nothing or limit == 0:
        return []

    def first(found: list[Instance], more: int = 0) -> list[Instance]:
        return _after(ordered(_with(found, start), chosen.order), start)[: limit + more]

    everything, _ = await _collect(request, chosen.query, next_servers, first)
    return [*first(everything)]


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


def _all(found: list[Row], _: int) -> list[Row]:
    return found


def _with(found: list[Instance], start: Instance | None) -> list[Instance]:
    """Return the servers with the marker as it was found when the request came: all pieces begin after the same."""
    return found if start is None else [*(one for one in found if one.uuid != start.uuid), start]


def _after(found: list[Instance], start: Instance | None) -> list[Instance]:
    if start is None:
        return found
    at = next(index for index, one in enumerate(found) if one.uuid == start.uuid)
    return found[at + 1 :]


class _Part(msgspec.Struct, Generic[Row]):
    """The servers of one cell."""

    settled: list[Row] = []
    staged: dict[InstanceUuid, Instance] = {}
    """Frozen ones: their mappings say whether they are shown."""
    whole: bool = True
    """Whether all rows were looked at that had to be."""


async def _collect(
    request: ApiRequest, query: ListQuery, lists: Lists[Row], keep: Keep[Row]
) -> tuple[list[Instance | Row], list[CellUuid]]:
    """Read all places, once the project that asks has no other long list under way in this process."""
    services, project = request.services, request.context.project_id
    if not query.in_pieces:
        return await _read_all(services, query, lists, keep)
    async with services.long_lists.setdefault(project, asyncio.Lock()):
        return await _read_all(services, query, lists, keep)


async def _read_all(
    services: ApiServices, query: ListQuery, lists: Lists[Row], keep: Keep[Row]
) -> tuple[list[Instance | Row], list[CellUuid]]:
    """Return the servers of all places, each once and in no order, and the cells that could not be read.

    Raises BadRequest where too many rows would have to be looked at.
    """
    waiting, leaving = await services.database.read(partial(_read_above, query=query))
    parts, unread = await ask_each(
        services.cells, lambda cell: _part(services, cell, query, lists, lambda one: _leaving(one, leaving), keep)
    )
    for cell, error in unread.items():
        log.warning("cell left out of a list", cell=cell, error=str(error))
    if not all(part.whole for part in parts.values()):
        raise BadRequest(
            f"More than {MOST_LOOKED_AT} servers of one cell would have to be looked at for this list. Narrow it, by "
            "status, host, flavor, image or changes-since, or leave out sort_key."
        )
    found: dict[str, Instance | Row] = {one.uuid: _leaving(one, leaving) for one in waiting}
    for part in parts.values():
        found.update((one.uuid, one) for one in part.settled)
    staged = [(cell, one) for cell, part in parts.items() for one in part.staged.values()]
    for settling in await _mapped(services, staged):
        if query.accepts(settling):
            found[settling.uuid] = _leaving(settling, leaving)
        else:
            found.pop(settling.uuid, None)
    return [*found.values()], list(unread)


async def _part(
    services: ApiServices,
    cell: CellUuid,
    query: ListQuery,
    lists: Lists[Row],
    seen: Callable[[Row], Row],
    keep: Keep[Row],
) -> _Part[Row]:
    """Read the servers of one cell. Raises StorageUnavailable when it does not answer in time."""
    part: _Part[Row] = _Part()
    rest: ListQuery | None = query
    looked_at = 0
    while rest is not None and part.whole:
        piece = await _read_piece(services, cell, rest, lists)
        for one in piece.found:
            if isinstance(one, Instance) and one.state in FROZEN:
                part.staged[one.uuid] = one
            else:
                part.settled.append(seen(one))
                part.staged.pop(one.uuid, None)
        looked_at += piece.looked_at
        rest = piece.rest
        if rest is not None:
            part.settled = keep(part.settled, len(part.staged))
            part.whole = looked_at < MOST_LOOKED_AT
    return part


async def _read_piece(services: ApiServices, cell: CellUuid, query: ListQuery, lists: Lists[Row]) -> Piece[Row]:
    turn = services.list_turns[cell] if query.in_pieces else contextlib.nullcontext()
    async with turn:
        database = cell_database(services, cell)
        return await database.read(lambda connection: lists(connection, query), within=LIST_SECONDS)


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


def _leaving(one: Row, leaving: set[str]) -> Row:
    """Show that a server is to go before its row says so."""
    if isinstance(one, Instance) and one.uuid in leaving and one.task is None and one.deleted_at is None:
        return msgspec.structs.replace(one, task=Task.DELETING)
    return one
