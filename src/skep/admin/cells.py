"""Cells: which there are, what they hold, and whether they get new servers."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.admin import operator_state
from skep.admin.requests import AdminRequest
from skep.admin.services import AdminServices
from skep.database.api import cells
from skep.database.cell.tables import instances
from skep.domain.cells import Cell
from skep.domain.errors import Conflict, NotFound, SkepError
from skep.domain.hosts import HostState
from skep.domain.instances import State
from skep.messages.to_scheduler import GetHostStates
from skep.transport.base import SCHEDULER


class CellChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `PATCH /cells/{name}`."""

    disabled: bool


async def index(request: AdminRequest) -> Any:
    """Answer all cells, cell0 too."""
    request.only_query()
    every = await request.services.database.read(cells.every)
    hosts = await _hosts(request.services)
    return {"cells": [await _view(request.services, cell, hosts) for cell in every]}


async def show(request: AdminRequest) -> Any:
    """Answer one cell by its name or UUID."""
    request.only_query()
    cell = await request.services.database.read(lambda connection: _named(connection, request.params["name"]))
    return {"cell": await _view(request.services, cell, await _hosts(request.services))}


async def update(request: AdminRequest) -> Any:
    """Disable or enable a cell: a disabled one gets no new servers, its servers stay reachable."""
    request.only_query()
    change = request.read_body(CellChange)

    def unit(connection: sa.Connection) -> None:
        cell = _named(connection, request.params["name"])
        if cell.is_cell0:
            raise Conflict("cell0 keeps servers that never got a host; it cannot be disabled or enabled.")
        cells.set_disabled(connection, cell.uuid, change.disabled)

    await request.services.database.write(unit, intake=True)
    await operator_state.publish(request.services)
    return await show(request)


def _named(connection: sa.Connection, name: str) -> Cell:
    for cell in cells.every(connection):
        if name in (cell.name, cell.uuid):
            return cell
    raise NotFound(f"There is no cell {name[:80]!r}.")


async def _hosts(services: AdminServices) -> tuple[HostState, ...] | None:
    """Return all host states; None when no scheduler answers: what rows say is shown all the same."""
    try:
        return (await services.transport.call(SCHEDULER, GetHostStates())).hosts
    except SkepError:
        return None


async def _view(services: AdminServices, cell: Cell, hosts: tuple[HostState, ...] | None) -> dict[str, Any]:
    mine = None if hosts is None else [host for host in hosts if host.cell == cell.uuid]
    view: dict[str, Any] = {
        "name": cell.name,
        "uuid": cell.uuid,
        "disabled": cell.disabled,
        "hosts": None if mine is None else len(mine),
        "hosts_up": None if mine is None else sum(host.up for host in mine),
        "servers": None,
        "reachable": False,
    }
    database = services.cells.get(cell.uuid)
    if database is not None:
        try:
            view["servers"] = await database.read(_servers_by_state)
            view["reachable"] = True
        except SkepError as error:
            view["error"] = str(error)
    return view


def _servers_by_state(connection: sa.Connection) -> dict[str, int]:
    counted = connection.execute(
        sa.select(instances.c.state, sa.func.count().label("servers"))
        .where(instances.c.deleted_at.is_(None), instances.c.state.not_in([State.STAGED.value, State.MOVED.value]))
        .group_by(instances.c.state)
        .order_by(instances.c.state)
    )
    return {row.state: row.servers for row in counted}
