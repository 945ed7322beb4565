"""What all sections of the configuration share, and bounds that several of them have."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Meta


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all sections share: frozen, made by keyword, closed."""


def tcp_port(description: str) -> Any:
    """Bounds of a TCP port; 0 lets the system choose a free one."""
    return Meta(ge=0, le=65535, description=description)


def port_of_health(role: str) -> Any:
    """Bounds of the port on which a role without another HTTP service says how it is."""
    description = f"Port of /healthz, /readyz and /metrics of `skep serve {role}`; 0: none"
    return Meta(ge=0, le=65535, description=description)
