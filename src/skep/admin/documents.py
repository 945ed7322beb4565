"""Documents that describe other parts: the compute API's own description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skep.admin.requests import AdminRequest, operation


@operation(shows={"type": "object", "properties": {"openapi": {"const": "3.1.0"}}, "required": ["openapi"]})
async def openapi(request: AdminRequest) -> Mapping[str, Any]:
    """Answer the OpenAPI document of the compute API."""
    return request.services.openapi()
