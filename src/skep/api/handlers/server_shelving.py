"""What the API asks before a server that is on no host is unshelved, and the write that begins it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from skep.api.awaited_images import BEGIN_SECONDS
from skep.api.cells import write_cell
from skep.api.handlers import server_images
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.handlers.server_moves import NOT_ALLOWED, check_within_reach
from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.api import aggregates, build_requests
from skep.database.cell import unshelves
from skep.domain.actions import UnshelveServer
from skep.domain.clock import SECOND
from skep.domain.errors import BadRequest, Conflict, NotFound, Unavailable
from skep.domain.ids import CellUuid
from skep.domain.images import Image
from skep.domain.instances import Instance, State
from skep.domain.leaving import CROSS_CELL

TO_HOST = "os_compute_api:os-shelve:unshelve_to_host"
ZONES_SINCE = 77
HOSTS_SINCE = 91


def asks_for_place(request: ApiRequest, asked: Any) -> bool:
    """Tell whether the body of an unshelve names a zone or a host, or says that the zone does not matter."""
    return request.version >= ZONES_SINCE and bool(asked)


async def unshelve(request: ApiRequest, found: LocatedServer, asked: Any) -> bool:
    """Begin to build a server from the image it was shelved into; False when its row does not allow it any more.

    Raises Forbidden, BadRequest and Conflict for what is asked for, Conflict where the image is gone.
    """
    server = found.instance
    asked = asked if asks_for_place(request, asked) else {}
    host = asked.get("host")
    if host is not None:
        request.authorize(rule=TO_HOST, project_id=server.project_id, user_id=server.user_id)
    pin = asked.get("availability_zone", server.pinned_availability_zone)
    elsewhere = request.allowed(CROSS_CELL, project_id=server.project_id, user_id=server.user_id)
    cell = None if elsewhere else found.cell
    await request.services.database.read(
        partial(_check, request=request, zone=asked.get("availability_zone"), pin=pin, host=host, cell=cell)
    )
    image = None if server.is_volume_backed else await _image(request, server)
    if image is not None:
        await server_images.await_shelved(request, server, image.id)
    unit = partial(
        _write,
        server=server,
        request=request,
        image=image,
        wanted=UnshelveServer(zone=asked.get("availability_zone"), host=host),
        pin=pin,
        elsewhere=elsewhere,
        noted_at=request.services.clock.now(),
    )
    assert found.cell is not None
    begun = await write_cell(request.services, found.cell, unit)
    if begun and pin != server.pinned_availability_zone:
        # A failure in between is mended by pinning it again: the cell's row is what the scheduler is told.
        pinning = partial(build_requests.pin, instance=server.uuid, zone=pin)
        await request.services.database.write(pinning, intake=True)
    return begun


def _write(
    connection: Connection,
    server: Instance,
    request: ApiRequest,
    image: Image | None,
    wanted: UnshelveServer,
    pin: str | None,
    elsewhere: bool,
    noted_at: int,
) -> bool:
    """Begin it, unless it is so late that others may have forgotten the image. Raises Unavailable then."""
    now = request.services.clock.now()
    if now - noted_at > BEGIN_SECONDS * SECOND:
        raise Unavailable("The cell of the server took too long to answer. Nothing was begun; try again.")
    return unshelves.begin(connection, server, request.context, image, wanted, pin, now, elsewhere=elsewhere)


def refuse_place(server: Instance) -> Conflict:
    """Return the refusal of a zone or a host for a server that is on one."""
    return Conflict(
        f"Cannot 'unshelve' instance {server.uuid} to an availability zone or a host: it is not "
        f"{State.SHELVED_OFFLOADED.value}"
    )


def _check(
    connection: Connection,
    request: ApiRequest,
    zone: str | None,
    pin: str | None,
    host: str | None,
    cell: CellUuid | None,
) -> None:
    """Raise BadRequest and Conflict for a place that cannot be; `cell`: the one in which it has to be, None: any."""
    default = request.services.settings.default_availability_zone
    if zone is not None and not aggregates.zone_has_host(connection, zone, default):
        raise BadRequest(f"The requested availability zone is not available: {zone}")
    if host is None:
        return
    check_within_reach(connection, host, cell, None if cell is None else NOT_ALLOWED)
    of_host = aggregates.zones_of(aggregates.every(connection), [host]).get(host, default)
    if pin is not None and pin != of_host:
        raise Conflict(f"Host {host} is not in the availability zone {pin}.")


async def _image(request: ApiRequest, server: Instance) -> Image:
    """Return the image that a server is in, as its own project sees it."""
    if server.shelved is None:
        raise Conflict(f"Cannot 'unshelve' instance {server.uuid}: no image of it is known")
    owner = msgspec.structs.replace(request.context, project_id=server.project_id)
    try:
        image = await request.services.images.get(server.shelved.image_id, owner)
    except NotFound as error:
        raise Conflict(
            f"Cannot 'unshelve' instance {server.uuid}: image {server.shelved.image_id}, which it was shelved into, "
            "could not be found"
        ) from error
    if image.status != "active":
        raise Conflict(f"Cannot 'unshelve' instance {server.uuid}: image {image.id} is {image.status}")
    return image
