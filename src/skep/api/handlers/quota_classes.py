"""Quota classes. Only `default` has an effect: its limits hold for every project without its own."""

from __future__ import annotations

from skep.api.requests import Answer, ApiRequest
from skep.database import Connection
from skep.database.api import quotas


async def show(request: ApiRequest) -> Answer:
    """`GET /os-quota-class-sets/{name}`."""
    name = request.params["name"]
    configured = request.services.settings.quotas.limits()
    limits = await request.services.database.read(lambda c: quotas.class_limits(c, name, defaults=configured))
    return Answer({"quota_class_set": {"id": name, **limits}})


async def update(request: ApiRequest) -> Answer:
    """`PUT /os-quota-class-sets/{name}`."""
    name, wanted = request.params["name"], request.body["quota_class_set"]
    configured = request.services.settings.quotas.limits()

    def unit(connection: Connection) -> dict[str, int]:
        quotas.set_class_limits(connection, name, wanted)
        return quotas.class_limits(connection, name, defaults=configured)

    return Answer({"quota_class_set": await request.services.database.write(unit)})
