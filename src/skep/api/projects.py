"""Whether a project that a request names exists."""

from __future__ import annotations

from skep.api.requests import ApiRequest
from skep.domain.errors import BadRequest


async def check_project(request: ApiRequest, project: str) -> None:
    """Raise BadRequest for a project that the identity service does not know; where it does not say, all pass."""
    if project != request.context.project_id and await request.services.identity.project_exists(project) is False:
        raise BadRequest(f"Project ID {project[:255]} is not a valid project.")
