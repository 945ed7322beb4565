"""The addresses under which a server says it can be reached: `accessIPv4` and `accessIPv6`."""

from __future__ import annotations

import ipaddress


def access_address(text: str | None) -> str | None:
    """Return an address in its one canonical form (RFC 5952 for IPv6); None where there is none.

    Raises ValueError for what is no address.
    """
    return str(ipaddress.ip_address(text)) if text else None
