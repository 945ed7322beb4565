"""Quota classes. Only `default` has an effect: its limits hold for every project without its own."""

from __future__ import annotations

from skep.api.requests import Answer, ApiRequest
from skep.database import Connection
from skep.database.api import quotas
from skep.domain.quotas import FixedLimits


async def show(request: ApiRequest) -> Answer:
    """`GET /os-quota-class-sets/{name}`."""
    name = request.params["name"]
    configured = await request.services.quotas_of(None)
    limits = await request.services.database.read(lambda c: quotas.class_limits(c, name, defaults=configured))
    return Answer({"quota_class_set": {"id": name, **limits}})


async def update(request: ApiRequest) -> Answer:
    """`PUT /os-quota-class-sets/{name}`."""
    name, wanted = request.params["name"], request.body["quota_class_set"]
    configured = await request.services.quotas_of(None)

    def unit(connection: Connection) -> dict[str, int]:
        if not isinstance(configured, FixedLimits):
            quotas.set_class_limits(connection, name, wanted)
        return quotas.class_limits(connection, name, defaults=configured)

    return Answer({"quota_class_set": await request.services.database.write(unit)})
