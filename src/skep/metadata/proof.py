"""Who asks: the server that a proxy names, and proves by a secret that it shares with this service (Nova's headers)."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers

from skep.domain.errors import BadRequest, Forbidden
from skep.domain.guest_documents.proof import INSTANCE, PROJECT, SIGNATURE, signature
from skep.domain.ids import InstanceUuid, ProjectId


def asker(headers: Headers, secrets: Sequence[str]) -> tuple[InstanceUuid, ProjectId]:
    """Return the server that asks, and its project; proxies sign by one of the secrets.

    Raises BadRequest for a header that is missing or stands there twice, Forbidden without the right signature.
    """
    instance, project = _one(headers, INSTANCE), _one(headers, PROJECT)
    given = headers.getlist(SIGNATURE)
    if not given:
        raise Forbidden(f"{SIGNATURE} header is missing from request.")
    good = [hmac.compare_digest(signature(one, instance).encode(), given[0].encode()) for one in secrets]
    if len(given) > 1 or not any(good):
        raise Forbidden("Invalid proxy request signature.")
    return InstanceUuid(instance), ProjectId(project)


def _one(headers: Headers, name: str) -> str:
    given = headers.getlist(name)
    if not given or not given[0]:
        raise BadRequest(f"{name} header is missing from request.")
    if len(given) > 1 or "," in given[0]:
        raise BadRequest(f"Multiple {name} headers found within request.")
    return given[0]
