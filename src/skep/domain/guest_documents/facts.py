"""The facts that the documents of a server are made of."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from skep.domain.instances import Instance

SEED_BYTES = 512
"""Of the random seed that a server gets, as of Nova's."""


class GuestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it is to see itself. Passwords and files are there on config drives only."""

    server: Instance
    seed: bytes
    """Random bytes for the guest's generator of random numbers."""
    dhcp_domain: str = ""
    """Stands behind the host name of a server that has no domain of its own."""
    vendor_data: dict[str, Any] = {}
    """What the operator tells all servers."""
    dynamic_vendor_data: dict[str, Any] = {}
    """What the operator's services tell this server, by their names."""
    told_password: str = ""
    """What the guest has told of itself, encrypted."""
    admin_password: str | None = None
    files: tuple[tuple[str, bytes], ...] = ()
    """Path and content of each file that is injected."""

    @property
    def hostname(self) -> str:
        """The server's name in its network."""
        name = self.server.hostname or self.server.uuid
        return f"{name}.{self.dhcp_domain}" if self.dhcp_domain and "." not in name else name

    @property
    def user_data(self) -> bytes | None:
        """What the user wants the server to read."""
        said = self.server.user_data
        return base64.b64decode(said) if said else None

    def __repr__(self) -> str:
        """Leaves out all but the server: the rest holds secrets."""
        return f"GuestFacts(server={self.server.uuid})"
