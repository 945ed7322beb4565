"""Whether this process is alive, and whether it can do its work: for load balancers and `skep doctor`."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from skep.admin.services import AdminServices
from skep.database.api import cells as cell_rows
from skep.database.engine import Database, probe
from skep.domain.builds import NotReady
from skep.domain.cells import Cell
from skep.domain.errors import SkepError
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostState
from skep.domain.ids import InstanceUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.transport.base import SCHEDULER
from skep.transport.host_states import host_states

METRICS_TYPE = CONTENT_TYPE_LATEST
ANSWER_SECONDS = 2.0
"""A part that has not answered after this time is not ready."""

_NOTHING = RequestSpec(
    project_id=ProjectId(""),
    user_id=UserId(""),
    flavor=Flavor(flavorid="", name="nothing", vcpus=0, memory_mb=0),
)
"""What a dry run asks for when only the readiness of a cell is wanted."""


async def alive(_request: Request) -> Response:
    """Answer that the event loop runs. Whether more than that works is `/readyz`'s business."""
    return Response(b'{"alive":true}', media_type="application/json")


class Readiness(NamedTuple):
    """What is in the way, a sentence each."""

    reasons: list[str]
    """Why this process is not ready; empty when it is."""
    warnings: list[str]
    """Which cells get no servers now. The others do, and all can be looked at, so they make no process unready."""


async def readiness(services: AdminServices) -> Readiness:
    """Look whether databases and a scheduler answer, and whether every enabled cell gets servers."""
    found = list(services.missing())
    databases = {"api": services.database, **{services.names[uuid].name: db for uuid, db in services.cells.items()}}
    answers = await asyncio.gather(*(_of_database(name, database) for name, database in databases.items()))
    found += [answer for answer in answers if answer is not None]
    try:
        cells = await services.database.read(cell_rows.every)
        hosts = await host_states(services.transport, timeout=ANSWER_SECONDS)
    except SkepError as error:
        return Readiness(found or [f"scheduler: {error}"], [])
    of_cells = await asyncio.gather(
        *(_of_cell(services, cell, hosts) for cell in cells if not (cell.disabled or cell.is_cell0))
    )
    return Readiness(found, [warning for warning in of_cells if warning is not None])


async def _of_database(name: str, database: Database) -> str | None:
    try:
        await asyncio.wait_for(database.read(probe), 2.0)
    except TimeoutError:
        return f"database {name}: does not answer"
    except SkepError as error:
        return f"database {name}: {error}"
    return None


async def _of_cell(services: AdminServices, cell: Cell, hosts: tuple[HostState, ...]) -> str | None:
    """Say why placement would not consider a cell: its claims are not asserted, or no host of it is up."""
    if not any(host.cell == cell.uuid and host.up for host in hosts):
        return f"cell {cell.name}: no host is up"
    probe = SelectDestinations(
        spec=_NOTHING, members=(Member(InstanceUuid("readiness"), 0),), cell=cell.uuid, dry_run=True
    )
    try:
        reply = await services.transport.call(SCHEDULER, probe, timeout=ANSWER_SECONDS)
    except SkepError as error:
        return f"cell {cell.name}: {error}"
    decision = reply.decisions[0]
    return f"cell {cell.name}: {decision.reason}" if isinstance(decision, NotReady) else None
