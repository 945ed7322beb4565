"""Where a server shall go: zone, forced host, requested host, and the scheduler hints."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.domain.errors import BadRequest
from skep.domain.ids import is_uuid

ABSENT_HINTS = ("query", "target_cell", "different_cell", "build_near_host_ip", "cidr")
"""Hints of Nova whose filters Skep does not have: to ignore them would break what the user relies on."""

VOLUME_HINT = "same_host_as_volume"
"""Followed where the volume filter is chosen: the volume service tells which volumes are on a host."""
MAX_VOLUME = 255


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of where its servers shall go."""

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

    Raises BadRequest for a zone with too many parts, or with a host beside a requested one.
    """
    zone, forced_host, forced_node = _parts(server.get("availability_zone"))
    found = Destination(
        zone=zone or default_zone,
        forced_host=forced_host,
        forced_node=forced_node,
        requested_host=server.get("host"),
        requested_node=server.get("hypervisor_hostname"),
    )
    if found.is_forced and found.is_requested:
        raise BadRequest(
            "Invalid input for field/attribute server.availability_zone. It names a host; "
            "give `host` and `hypervisor_hostname` only with a zone"
        )
    return found


def _parts(zone: str | None) -> tuple[str | None, str | None, str | None]:
    if zone is None or ":" not in zone:
        return zone, None, None
    parts = [part or None for part in zone.split(":")]
    if len(parts) > 3:
        raise BadRequest("Unable to parse availability_zone")
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler hints of a request."""

    group: str | None = None
    same_host: tuple[str, ...] = ()
    different_host: tuple[str, ...] = ()
    given: dict[str, object] = {}
    """All of them, as the user sent them."""


def hints(body: dict[str, Any], *, volumes: bool = False) -> Hints:
    """Read the hints, which stand beside the server under one of two names. `volumes`: the volume filter is chosen.

    Raises BadRequest for a hint that nothing here can follow.
    """
    given: dict[str, Any] = body.get("os:scheduler_hints") or body.get("OS-SCH-HNT:scheduler_hints") or {}
    for name in ABSENT_HINTS if volumes else (*ABSENT_HINTS, VOLUME_HINT):
        if name in given:
            raise BadRequest(
                f"Invalid input for field/attribute os:scheduler_hints.{name}. This cloud has no filter for it"
            )
    volume = given.get(VOLUME_HINT, "any")
    if not isinstance(volume, str) or not 0 < len(volume) <= MAX_VOLUME or not volume.isprintable():
        raise BadRequest(
            f"Invalid input for field/attribute os:scheduler_hints.{VOLUME_HINT}. "
            f"Expected the id of one volume, 1 to {MAX_VOLUME} printable characters"
        )
    return Hints(
        group=given.get("group"),
        same_host=_uuids(given, "same_host"),
        different_host=_uuids(given, "different_host"),
        given=given,
    )


def _uuids(given: dict[str, Any], name: str) -> tuple[str, ...]:
    value = given.get(name, ())
    uuids = (value,) if isinstance(value, str) else tuple(value)
    for one in uuids:
        if not is_uuid(one):
            raise BadRequest(f"Invalid input for field/attribute os:scheduler_hints.{name}. {one[:80]!r} is no UUID")
    return uuids
