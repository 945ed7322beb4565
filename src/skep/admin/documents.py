"""Documents that describe other parts: the compute API's own description."""

from __future__ import annotations

from typing import Any

from skep.admin.requests import AdminRequest, operation


@operation()
async def openapi(request: AdminRequest) -> Any:
    """Answer the OpenAPI document of the compute API."""
    return request.services.openapi()
