"""From a token to a caller. What a caller without a valid one reads is worded as keystonemiddleware words it."""

from __future__ import annotations

from collections.abc import Mapping

from skep.domain.context import RequestContext
from skep.domain.errors import Unauthenticated
from skep.domain.ids import RequestId
from skep.http import faults
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import IdentityService, well_formed

UNAUTHENTICATED = {
    "error": {
        "code": 401,
        "title": "Unauthorized",
        "message": "The request you have made requires authentication.",
    }
}


SERVICE_TYPE = "compute"
"""Our name in the catalogue and in access rules of application credentials."""


SERVICE_ROLE = "service"
"""What another service has that shows a token of its own beside that of a user (`X-Service-Token`)."""


SHOWN = (b"x-auth-token", b"x-service-token")
"""The headers in which callers show tokens."""


def is_unheard_of(identity: IdentityService, headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a request shows a token for which another service would have to be asked."""
    shown = (headers[name].decode("latin-1") for name in SHOWN if name in headers)
    return not all(identity.remembers(token) for token in shown)


async def authenticate(
    identity: IdentityService, headers: Mapping[bytes, bytes], request_id: RequestId, method: str, path: str
) -> RequestContext:
    """Return who asks.

    Another service that works on a user's request may show, beside the user's token, one of its own: then that of the
    user may have expired meanwhile, as keystonemiddleware allows.

    Raises Unauthenticated without a token that is valid for this request, Unavailable when identity cannot tell.
    """
    token = headers.get(b"x-auth-token", b"").decode("latin-1")
    if not well_formed(token):
        raise Unauthenticated("The request you have made requires authentication.")
    chained = await _by_a_service(identity, headers)
    caller = await identity.validate(token, Use(SERVICE_TYPE, method, path), chained=chained)
    if caller is None:
        raise Unauthenticated("The request you have made requires authentication.")
    return caller.context(request_id)


async def _by_a_service(identity: IdentityService, headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a service shows the token; Raises Unauthenticated when it has not proven that it is one."""
    token = headers.get(b"x-service-token")
    if token is None:
        return False
    service = await identity.validate(token.decode("latin-1"))
    if service is None or SERVICE_ROLE not in service.roles:
        raise Unauthenticated("The request you have made requires authentication.")
    return True


def challenge(identity_url: str) -> tuple[bytes, bytes]:
    """Return the header that says where to get a token."""
    return (b"www-authenticate", faults.challenge(identity_url).encode())
