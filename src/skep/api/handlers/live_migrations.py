"""Live migrations: what is asked before one begins."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from skep.api.cells import read_cell
from skep.api.handlers import server_moves
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.requests import ApiRequest
from skep.database.cell import server_migrations
from skep.domain.clock import SECOND
from skep.domain.errors import BadRequest, Conflict
from skep.domain.instances import Instance

TO_HOST = "os_compute_api:os-migrate-server:migrate_live:host"
FORCE_SINCE, FORCE_UNTIL = 30, 67
"""Where a named host is taken unasked only with `force`; before, it always is, later never."""
ASYNCHRONOUS_SINCE = 34
"""Until then the answer waits for the choice of a host, and for what the host says."""
CHECK_SECONDS = 30
"""How long such an answer waits."""
LOOK_SECONDS = 0.1
"""Before the first look at the migration; each pause is twice the one before it."""
LONGEST_PAUSE = 1.0


async def wanted_host(request: ApiRequest, found: LocatedServer, asked: Any) -> str | None:
    """Return the host that the body names, None where it names none.

    Raises Forbidden for callers who may name none; BadRequest for a host that is unknown, the server's own or of
    another cell, and for force without a host.
    """
    host = asked["host"]
    if host is None:
        if asked.get("force"):
            raise BadRequest("Can't force to a non-provided destination")
        return None
    await server_moves.check_wanted(
        request, found, host, TO_HOST, elsewhere_refused="a live migration stays in its cell"
    )
    return str(host)


def is_forced(request: ApiRequest, asked: Any) -> bool:
    """Tell whether no filter judges the named host."""
    if request.version < FORCE_SINCE:
        return asked["host"] is not None
    return request.version <= FORCE_UNTIL and bool(asked.get("force"))


async def check_source(request: ApiRequest, server: Instance) -> None:
    """Raise BadRequest when the host of a server is known to be down."""
    try:
        await server_moves.check_source(request, server)
    except Conflict as error:
        raise BadRequest(str(error)) from error


async def wait_for_checks(request: ApiRequest, found: LocatedServer) -> None:
    """Wait until the target has said that the server may come. Raises BadRequest where there is none.

    What takes too long goes on by itself: the answer is that it has begun.
    """
    services, cell = request.services, found.cell
    assert cell is not None
    unit = partial(server_migrations.latest, instance=found.instance.uuid, request_id=request.context.request_id)
    until, pause = services.clock.now() + CHECK_SECONDS * SECOND, LOOK_SECONDS
    while services.clock.now() < until:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        known = await read_cell(services, cell, unit)
        if known is None or known[0] not in ("accepted", "preparing"):
            if known is not None and known[0] == "error":
                raise BadRequest(known[1] or "The migration failed.")
            return
