"""Small read-only answers: the namespaces of the host states, the compute API's own description."""

from __future__ import annotations

from typing import Any

from skep.admin.requests import AdminRequest
from skep.messages.to_scheduler import ListNamespaces
from skep.transport.base import SCHEDULER


async def namespaces(request: AdminRequest) -> Any:
    """Answer which namespaces the host states have, with the number of their records."""
    reply = await request.services.transport.call(SCHEDULER, ListNamespaces())
    return {"namespaces": [{"name": name, "records": count} for name, count in sorted(reply.namespaces.items())]}


async def openapi(request: AdminRequest) -> Any:
    """Answer the OpenAPI document of the compute API."""
    return request.services.openapi()
