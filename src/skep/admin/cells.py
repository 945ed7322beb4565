"""Cells: which there are, what they hold, and whether they get new servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import msgspec

from skep.admin.answers import AnsweredCell, AnsweredDeletionOfCell, ListedCells, ShownCell
from skep.admin.requests import AdminRequest, operation, takes
from skep.admin.services import AdminServices
from skep.database import Connection
from skep.database.api import cells
from skep.database.api.operator_state import Concerned
from skep.database.cell import listing, residents
from skep.database.cell.residents import LeftInCell
from skep.domain.cells import Cell
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, Conflict, NotFound, SkepError, Unavailable
from skep.domain.hosts import HostState
from skep.domain.ids import CellUuid
from skep.http.operations import BOOLEAN
from skep.reconciler import deletions
from skep.reconciler.operator_state import tell_schedulers
from skep.transport.host_states import host_states

CELL_SECONDS = 1.0
"""How long a list of cells waits for the database of one."""


class CellChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `PATCH /cells/{name}`."""

    disabled: bool | None = None
    database_url: str | None = None
    """Where its database is from now on, or by which password it is reached; empty: as the configuration says."""
    transport_url: str | None = None


class NewCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /cells`."""

    name: str
    database_url: str = ""
    transport_url: str = ""
    disabled: bool = False


@operation()
async def index(request: AdminRequest) -> ListedCells:
    """Answer all cells, cell0 too."""
    every, counts, marked = await request.services.database.read(
        lambda c: (cells.located(c), cells.server_counts(c), cells.deleting(c))
    )
    hosts = await _hosts(request.services)
    views = (_view(request.services, cell, where, counts, marked, hosts) for cell, where in every)
    return {"cells": list(await asyncio.gather(*views))}


@takes(NewCell)
async def create(request: AdminRequest, new: NewCell) -> AnsweredCell:
    """Make a cell: its database must be there and empty. It gets servers once it has a host."""
    services = request.services
    cell = await services.cell_work.create(new.name, new.database_url, new.transport_url)
    if new.disabled:
        await services.database.write(partial(cells.set_disabled, uuid=cell.uuid, disabled=True), intake=True)
    await _told(services)
    return await _shown(services, cell.uuid)


@operation()
async def show(request: AdminRequest) -> AnsweredCell:
    """Answer one cell by its name or UUID."""
    return await _shown(request.services, request.params["name"])


async def _shown(services: AdminServices, name: str) -> AnsweredCell:
    def unit(connection: Connection) -> tuple[Cell, cells.Addresses, dict[CellUuid, int], dict[CellUuid, int]]:
        cell = _named(connection, name)
        where = dict(cells.located(connection))[cell]
        return cell, where, cells.server_counts(connection), cells.deleting(connection)

    cell, where, counts, marked = await services.database.read(unit)
    return {"cell": await _view(services, cell, where, counts, marked, await _hosts(services))}


@takes(CellChange)
async def update(request: AdminRequest, change: CellChange) -> AnsweredCell:
    """Disable or enable a cell (a disabled one gets no new servers, its servers stay reachable), or say where it is.

    To enable one that is being deleted takes the deletion back.
    """
    services = request.services
    cell = await services.database.read(partial(_named, name=request.params["name"]))
    if cell.is_cell0:
        raise Conflict("cell0 keeps servers that never got a host; it cannot be changed here.")
    if change.database_url is not None or change.transport_url is not None:
        await services.cell_work.move(cell, change.database_url, change.transport_url)
    if change.disabled is not None:
        unit = partial(cells.set_disabled, uuid=cell.uuid, disabled=change.disabled)
        await services.database.write(unit, intake=True)
    await _told(services)
    return await show(request)


async def _told(services: AdminServices) -> None:
    """Take changed rows into use here, and tell those who decide."""
    await services.cell_work.refresh()
    await tell_schedulers(services.database, services.transport, Concerned(cells=True))


@operation(query={"hosts": BOOLEAN})
async def delete(request: AdminRequest) -> AnsweredDeletionOfCell:
    """Remove a disabled cell that holds no server; `?hosts=true` with the hosts that are still mapped to it.

    It is marked first: from then on nothing is mapped to it. Where servers are on their way it stays `deleting` until
    they are placed elsewhere; the super conductor ends it then. Its database and what its hosts have on disk stay.
    """
    services = request.services
    with_hosts = _said_yes(request.query.get("hosts", "false"))
    cell = await services.database.read(partial(_removable, name=request.params["name"], with_hosts=with_hosts))
    database = services.cells.get(cell.uuid)
    if database is None:
        raise Unavailable(f"This process does not reach the database of cell {cell.name}.")
    _refuse_residents(cell, await database.read(residents.in_cell, within=CELL_SECONDS))

    def mark(connection: Connection) -> list[str]:
        _removable(connection, cell.uuid, with_hosts)
        cells.begin_deletion(connection, cell.uuid, services.clock.now())
        return cells.hosts(connection, cell.uuid)

    marked = await services.database.write(mark, intake=True)
    await _told(services)
    left, hosts = await deletions.end_cell(services.database, database, cell.uuid, within=CELL_SECONDS)
    if hosts is None:
        if await services.database.read(partial(cells.get, uuid=cell.uuid)) is not None:
            return {"cell": {"name": cell.name, "uuid": cell.uuid, "deleted": False, "staged": left.staged}}
        # A super conductor saw the mark and was faster.
        hosts = marked
    await services.stop_cell(cell.uuid)
    await services.cell_work.refresh()
    await tell_schedulers(services.database, services.transport)
    return {"cell": {"name": cell.name, "uuid": cell.uuid, "deleted": True, "hosts": hosts}}


def _said_yes(word: str) -> bool:
    if word not in ("true", "false"):
        raise BadRequest(f"hosts: expected true or false, got {word[:80]!r}.")
    return word == "true"


def _removable(connection: Connection, name: str, with_hosts: bool) -> Cell:
    """Return a cell that may be removed. Raises Conflict saying what is still there."""
    cell = _named(connection, name)
    if cell.is_cell0:
        raise Conflict("cell0 keeps servers that never got a host; it cannot be removed.")
    servers, hosts = len(cells.servers(connection, cell.uuid)), len(cells.hosts(connection, cell.uuid))
    if servers:
        raise Conflict(f"Cell {cell.name} holds {servers} servers and {hosts} hosts; delete its servers first.")
    if not cell.disabled:
        raise Conflict(f"Cell {cell.name} gets new servers; disable it first.")
    if hosts and not with_hosts:
        raise Conflict(f"Cell {cell.name} has {hosts} hosts; expected hosts=true (`--yes`) to delete them, too.")
    return cell


def _refuse_residents(cell: Cell, left: LeftInCell) -> None:
    """See that the cell itself has nothing under way either. Raises Conflict with counts."""
    if left.servers or left.held:
        raise Conflict(
            f"The database of cell {cell.name} has {left.servers} servers and {left.held} open attempts that "
            "are not deleted yet."
        )


def _named(connection: Connection, name: str) -> Cell:
    for cell in cells.every(connection):
        if name in (cell.name, cell.uuid):
            return cell
    raise NotFound(f"There is no cell {name[:80]!r}.")


async def _hosts(services: AdminServices) -> tuple[HostState, ...] | None:
    """Return all host states; None when no scheduler answers: what rows say is shown all the same."""
    try:
        return await host_states(services.transport)
    except SkepError:
        return None


async def _view(
    services: AdminServices,
    cell: Cell,
    where: cells.Addresses,
    counts: Mapping[CellUuid, int],
    marked: Mapping[CellUuid, int],
    hosts: tuple[HostState, ...] | None,
) -> ShownCell:
    mine = None if hosts is None else [host for host in hosts if host.cell == cell.uuid]
    view: ShownCell = {
        "name": cell.name,
        "uuid": cell.uuid,
        "disabled": cell.disabled,
        "deleting_at": isoformat_micro(marked[cell.uuid]) if cell.uuid in marked else None,
        "hosts": None if mine is None else len(mine),
        "hosts_up": None if mine is None else sum(host.up for host in mine),
        "servers": None,
        "servers_mapped": counts.get(cell.uuid, 0),
        "reachable": False,
        "database_url": where.database_url,
        "transport_url": where.transport_url,
    }
    database = services.cells.get(cell.uuid)
    if database is not None:
        try:
            view["servers"] = await database.read(listing.count_by_state, within=CELL_SECONDS)
            view["reachable"] = True
        except SkepError as error:
            view["error"] = str(error)
    return view
