"""Consoles of servers: where a host gives out a line to a guest, and which kinds of consoles clients name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec

MOST_SECONDS = 3600
"""For which a door stays open."""
MOST_OF_HOST = 32
"""Lines, and doors that are still unused, of one host at a time."""
MOST_OF_GUEST = 2
"""Lines, and as many unused doors, of one guest at a time: a new door replaces the oldest."""
CHUNK = 16 * 1024
"""Bytes of a line that are passed on at a time."""

SERIAL, VNC = "serial", "vnc"

PATHS: Mapping[str, str] = MappingProxyType({SERIAL: "/consoles/serial", VNC: "/consoles/vnc"})
"""Protocol of a console -> where the port of the compute API hands lines of it through, by websockets."""

KINDS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "novnc": (VNC, 6),
        "xvpvnc": (VNC, 6),
        "spice-html5": ("spice", 6),
        "rdp-html5": ("rdp", 6),
        "serial": (SERIAL, 6),
        "webmks": ("mks", 8),
        "spice-direct": ("spice", 99),
    }
)
"""Kind of a console -> its protocol, and since which microversion `remote-consoles` knows it (Nova's API reference)."""


class ConsoleDoor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a host waits for one connection to a console of a guest."""

    address: Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z._:%-]{1,253}\Z")]
    """An IP address, or the name of a host."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    secret: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """What the connection says first; it is good once."""

    def __repr__(self) -> str:
        """Leaves the secret out."""
        return f"ConsoleDoor(address={self.address!r}, port={self.port})"
