"""Where a service that takes passwords may listen."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from skep.domain.errors import Misconfigured


def check_bind(host: str, tls: bool) -> None:
    """Refuse to carry passwords and tokens in clear beyond this machine.

    Raises Misconfigured when `host` is anything but a loopback address (or `localhost`) and there is no TLS.
    """
    if not tls and not is_loopback(host):
        raise Misconfigured(
            f"listening on {host!r} without TLS would send passwords and tokens in clear: "
            "listen on 127.0.0.1, or configure TLS"
        )


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Tell whether an address reaches this machine only. Names other than `localhost` count as reaching further."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
