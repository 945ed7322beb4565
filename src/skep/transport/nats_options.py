"""How the settings of a transport become options of the NATS client: addresses, TLS, credentials."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from skep.config.sections import TransportSettings
from skep.domain.errors import Misconfigured


def servers(settings: TransportSettings) -> list[str]:
    """Return the addresses of the servers.

    Raises Misconfigured naming the setting when one is none.
    """
    found = [url.strip() for url in settings.url.split(",") if url.strip()]
    for url in found:
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("nats", "tls") and bool(parts.hostname) and (parts.port or 4222) > 0
        except ValueError:
            good = False
        if not good:
            raise Misconfigured(f"transport.url: {_without_password(url)!r} is not like nats://HOST:PORT or tls://HOST")
    if not found:
        raise Misconfigured("transport.url: no address of a NATS server")
    return found


def wants_tls(settings: TransportSettings) -> bool:
    """Tell whether a server that speaks no TLS must be refused."""
    return settings.wants_tls(servers(settings))


def security(settings: TransportSettings) -> dict[str, Any]:
    """Return the client's options for TLS and credentials.

    Raises Misconfigured naming the setting when a file cannot be used.
    """
    return settings.options("transport", servers(settings))


def _without_password(url: str) -> str:
    return url.rpartition("@")[2]
