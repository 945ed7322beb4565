"""What an operator asks placement about, by names: a flavor, a zone, cells; made into what schedulers are asked."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from skep.admin.requests import AdminRequest
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection
from skep.database.api import flavors, server_groups
from skep.database.api.flavors import FlavorQuery
from skep.database.hosts_of_servers import hosts_of
from skep.domain import request_specs
from skep.domain.destinations import check_one_way, destination
from skep.domain.errors import BadRequest, NotFound
from skep.domain.flavors import Flavor
from skep.domain.given_hints import cells_named
from skep.domain.given_hints import read as read_hints
from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid, ProjectId, is_uuid
from skep.domain.images import Image
from skep.domain.invalid_input import InvalidHint, invalid_hint
from skep.domain.nested.aliases import device_requests
from skep.domain.nested.reading import wanted as wanted_inside
from skep.domain.request_specs import RequestSpec


class HypotheticalServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is not created, in the words of a create: what placement is asked about."""

    flavor: str
    """Id or name."""
    image: str | None = None
    """Id. None: an image without properties."""
    availability_zone: str | None = None
    """Also `ZONE:HOST` and `ZONE:HOST:NODE`."""
    host: str | None = None
    hypervisor_hostname: str | None = None
    scheduler_hints: dict[str, Any] = {}
    project_id: str | None = None
    """Whose server it would be; None: the caller's."""


async def spec_of(request: AdminRequest, wanted: HypotheticalServer) -> RequestSpec:
    """Return the spec of such a server, with all that a create reads and the super conductor adds.

    Raises BadRequest, naming what is wrong, for a flavor, image or group that there is not, for hints that nothing
    follows or that make no sense, and for extra specs and properties with which no server can be.
    """
    try:
        return await _spec_of(request, wanted)
    except InvalidHint as error:
        raise error.under("scheduler_hints") from error


async def _spec_of(request: AdminRequest, wanted: HypotheticalServer) -> RequestSpec:
    services = request.services
    hints = read_hints(wanted.scheduler_hints, services.filters)
    where = destination(
        {
            "availability_zone": wanted.availability_zone,
            "host": wanted.host,
            "hypervisor_hostname": wanted.hypervisor_hostname,
        },
        None,
    )
    check_one_way(where, wanted.availability_zone)
    flavor, image = await _flavor(services, wanted.flavor), await _image(request, wanted.image)
    devices = device_requests(flavor.extra_specs, services.aliases)
    wanted_inside(flavor, image.properties if image is not None else {}, devices)
    spec = request_specs.spec_of(
        project_id=ProjectId(wanted.project_id or request.context.project_id),
        user_id=request.context.user_id,
        flavor=flavor,
        image=image,
        devices=devices,
        destination=where,
        hints=hints,
        group=await _group(services, hints.group),
        cells=cells_named(hints.cells, tuple(services.names.values()), target=hints.target_cell),
        now=services.clock.now(),
    )
    named = (*spec.same_host, *spec.different_host)
    return request_specs.with_host_names(
        spec, await hosts_of(services.database, services.cells, named, within=CELL_SECONDS)
    )


def cell_of(services: AdminServices, name: str | None, field: str = "cell") -> CellUuid | None:
    """Return the cell with this name or UUID. Raises NotFound, naming the field, where there is none."""
    if name is None:
        return None
    try:
        return services.cell_named(name).uuid
    except NotFound as error:
        raise NotFound(f"{field}: {error}") from None


async def _flavor(services: AdminServices, wanted: str) -> Flavor:
    def unit(connection: Connection) -> Flavor | None:
        by_name = FlavorQuery(project=None, everything=True, public=None, name=wanted)
        return flavors.get(connection, wanted) or next(iter(flavors.find(connection, by_name)), None)

    flavor = await services.database.read(unit) if wanted.isprintable() else None
    if flavor is None:
        raise BadRequest(f"flavor: there is none with the id or name {wanted[:80]!r}.")
    return flavor


async def _image(request: AdminRequest, wanted: str | None) -> Image | None:
    if wanted is None:
        return None
    images = request.services.images
    if images is None:
        raise BadRequest("image: this process asks no image service.")
    try:
        return await images.get(wanted, request.context)
    except NotFound:
        raise BadRequest(f"image: there is none with the id {wanted[:80]!r}.") from None


async def _group(services: AdminServices, wanted: str | None) -> GroupRule | None:
    if wanted is None:
        return None
    found = await services.database.read(partial(server_groups.get, uuid=wanted)) if is_uuid(wanted) else None
    if found is None:
        raise invalid_hint("group", wanted, "the UUID of a server group")
    return found.rule()
