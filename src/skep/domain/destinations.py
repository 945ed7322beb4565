"""Where a server shall go: zone, forced host, requested host."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.domain.invalid_input import invalid_field


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The destination that a request names for its servers."""

    zone: str | None = None
    forced_host: str | None = None
    forced_node: str | None = None
    requested_host: str | None = None
    requested_node: str | None = None

    @property
    def is_forced(self) -> bool:
        """Whether the zone names a host, which only admins may."""
        return self.forced_host is not None or self.forced_node is not None

    @property
    def is_requested(self) -> bool:
        """Whether `host` or `hypervisor_hostname` was given (2.74)."""
        return self.requested_host is not None or self.requested_node is not None

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts that are named; they must exist."""
        return tuple(name for name in (self.forced_host, self.requested_host) if name is not None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All hypervisors that are named; they must exist."""
        return tuple(name for name in (self.forced_node, self.requested_node) if name is not None)


def destination(server: dict[str, Any], default_zone: str | None) -> Destination:
    """Read `availability_zone` (also `zone:host:node`, where zone and host may be empty), `host` and its node.

    Raises BadRequest for a zone with too many parts.
    """
    zone, forced_host, forced_node = _parts(server.get("availability_zone"))
    return Destination(
        zone=zone or default_zone,
        forced_host=forced_host,
        forced_node=forced_node,
        requested_host=server.get("host"),
        requested_node=server.get("hypervisor_hostname"),
    )


def check_one_way(found: Destination, zone: str | None) -> None:
    """Raise BadRequest where `zone`, as it was sent, names a host beside a requested one."""
    if found.is_forced and found.is_requested:
        expected = "a zone without a host beside host and hypervisor_hostname"
        raise invalid_field("server.availability_zone", zone, expected)


def _parts(zone: str | None) -> tuple[str | None, str | None, str | None]:
    if zone is None or ":" not in zone:
        return zone, None, None
    parts = [part or None for part in zone.split(":")]
    if len(parts) > 3:
        raise invalid_field("server.availability_zone", zone, "ZONE, ZONE:HOST or ZONE:HOST:NODE")
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None
