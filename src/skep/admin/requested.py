"""What an operator asks placement about, by names: a flavor, a zone, cells; made into what schedulers are asked."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from skep.admin.requests import AdminRequest
from skep.admin.services import AdminServices
from skep.database.api import flavors
from skep.database.api.flavors import FlavorQuery
from skep.domain.errors import BadRequest, NotFound
from skep.domain.flavors import Flavor
from skep.domain.ids import CellUuid
from skep.domain.lifetimes import lifetime_from
from skep.domain.nested.aliases import device_requests
from skep.domain.nested.reading import wanted as wanted_inside
from skep.domain.request_specs import RequestSpec
from skep.domain.spread import read_extra_specs


async def spec_of(
    request: AdminRequest,
    flavor: str,
    *,
    zone: str | None = None,
    host: str | None = None,
    hints: Mapping[str, str] | None = None,
) -> RequestSpec:
    """Return the spec of a server of this flavor.

    Raises BadRequest for a flavor that there is not, and for one of which no server can be: it names the extra spec.
    """
    found = await _flavor(request.services, flavor)
    devices = device_requests(found.extra_specs, request.services.aliases)
    wanted_inside(found, {}, devices)
    read_extra_specs(found.extra_specs)
    return RequestSpec(
        project_id=request.context.project_id,
        user_id=request.context.user_id,
        flavor=found,
        devices=devices,
        availability_zone=zone,
        requested_host=host,
        scheduler_hints=dict(hints or {}),
        lifetime=lifetime_from(hints or {}, request.services.clock.now()),
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
    def unit(connection: sa.Connection) -> Flavor | None:
        by_name = FlavorQuery(project=None, everything=True, public=None, name=wanted)
        return flavors.get(connection, wanted) or next(iter(flavors.find(connection, by_name)), None)

    flavor = await services.database.read(unit) if wanted.isprintable() else None
    if flavor is None:
        raise BadRequest(f"flavor: there is none with the id or name {wanted[:80]!r}.")
    return flavor
