"""Scheduler hints: which filter follows which, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address

import msgspec

from skep.domain.host_queries import parse
from skep.domain.ids import is_uuid
from skep.domain.invalid_input import invalid_hint, shown
from skep.domain.lifetimes import HINT as LIFETIME_HINT
from skep.domain.lifetimes import read_hint as read_lifetime
from skep.domain.networks import near

VOLUME_HINT = "same_host_as_volume"
RESERVATION_HINT = "reservation"
"""Of Blazar: its filter is another package's here."""
MAX_VOLUME = 255
MOST_LEVELS = 64
"""Of lists and objects in a hint."""
MOST_BYTES = 16_384
"""Of all hints of a request as JSON; each of its servers keeps them."""

FOLLOWED_BY = {
    "query": "JsonFilter",
    "build_near_host_ip": "SimpleCIDRAffinityFilter",
    "cidr": "SimpleCIDRAffinityFilter",
    VOLUME_HINT: "VolumeFilter",
    RESERVATION_HINT: "BlazarFilter",
}
"""Hints that are followed only where the operator chose a filter: to ignore them would break what users rely on."""


def check_hints(hints: Mapping[str, object], filters: Collection[str]) -> None:
    """Check hints that filters read. `filters`: those that the operator has chosen beside Skep's own choice.

    Raises BadRequest, naming the hint, for one that nothing here can follow, and for one that makes no sense.
    """
    for name, value in hints.items():
        if not _can_be_told(value, MOST_LEVELS):
            raise invalid_hint(name, value, f"numbers of at most 64 bits, and at most {MOST_LEVELS} levels of lists")
    sizes = {name: len(msgspec.json.encode(value)) + len(name) for name, value in hints.items()}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise invalid_hint(largest, hints[largest], f"at most {MOST_BYTES} bytes in all hints together")
    for name, filter_name in FOLLOWED_BY.items():
        if name in hints and filter_name not in filters:
            expected = (
                f"no hint {name}: this cloud does not follow it, since `[scheduler] enabled_filters` "
                f"does not name {filter_name}"
            )
            raise invalid_hint(name, hints[name], expected)
    if "query" in hints:
        try:
            parse(hints["query"])
        except ValueError as error:
            raise invalid_hint("query", hints["query"], f"a query in JSON: {error}") from error
    _check_network(hints)
    reservation = hints.get(RESERVATION_HINT)
    if reservation is not None and not (isinstance(reservation, str) and is_uuid(reservation)):
        raise invalid_hint(RESERVATION_HINT, reservation, "a UUID")
    try:
        read_lifetime(hints)
    except ValueError as error:
        raise invalid_hint(LIFETIME_HINT, hints[LIFETIME_HINT], str(error)) from error
    volume = hints.get(VOLUME_HINT, "any")
    if not isinstance(volume, str) or not 0 < len(volume) <= MAX_VOLUME or not volume.isprintable():
        raise invalid_hint(VOLUME_HINT, volume, f"the id of one volume, 1 to {MAX_VOLUME} printable characters")


def _can_be_told(value: object, levels: int) -> bool:
    """Tell whether all hints fit into a message: a request that cannot be sent to a scheduler would never end."""
    if isinstance(value, dict | list):
        within = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_can_be_told(item, levels - 1) for item in within)
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def _check_network(hints: Mapping[str, object]) -> None:
    address, width = hints.get("build_near_host_ip"), hints.get("cidr")
    if width is not None and not address:
        raise invalid_hint("cidr", width, "the hint build_near_host_ip beside it")
    try:
        near(hints)
    except ValueError as error:
        if width is not None and _is_address(address):
            expected = f"a width with which {shown(address)} is a network, as /24 ({error})"
            raise invalid_hint("cidr", width, expected) from error
        raise invalid_hint("build_near_host_ip", address, "an IPv4 address or an IPv6 address") from error


def _is_address(text: object) -> bool:
    try:
        ip_address(str(text))
    except ValueError:
        return False
    return True
