"""Who a request comes from and by which scheme, where a proxy stands between."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from skep.standalone.binding import is_loopback
from skep.telemetry.logs import get_logger

log = get_logger(__name__)


class Forwarded:
    """Stands before an application and corrects `client` and `scheme` of the scope.

    The scheme is believed of this machine's proxies and of the trusted ones, since it only decides how links begin; the
    client's address of the trusted ones alone, since sign-in counts failures by it.
    """

    def __init__(self, inner: ASGIApp, trusted: Iterable[str]) -> None:
        self._inner = inner
        self._trusted = frozenset(trusted)
        self._warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["client"]:
            peer, port = scope["client"]
            if peer in self._trusted or is_loopback(peer):
                scheme = _last(scope, b"x-forwarded-proto")
                if scheme in ("http", "https"):
                    scope["scheme"] = scheme
            hops = _values(scope, b"x-forwarded-for")
            if hops and peer in self._trusted:
                scope["client"] = (client_behind(peer, hops, self._trusted), port)
            elif hops and not self._warned:
                self._warned = True
                log.warning(
                    "X-Forwarded-For of a proxy that is not trusted: all its clients count as one address at sign-in "
                    "until `http.trusted_proxies` names it",
                    proxy=peer,
                )
        await self._inner(scope, receive, send)


def client_behind(peer: str, hops: list[str], trusted: frozenset[str]) -> str:
    """Return the last address that no trusted proxy has; what stands before it anybody may have written."""
    client = peer
    for hop in reversed(hops):
        try:
            client = str(ipaddress.ip_address(hop))
        except ValueError:
            break
        if client not in trusted:
            break
    return client


def _values(scope: Scope, header: bytes) -> list[str]:
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == header]
    return [word.strip() for value in found for word in value.split(",") if word.strip()]


def _last(scope: Scope, header: bytes) -> str | None:
    return next(reversed(_values(scope, header)), None)
