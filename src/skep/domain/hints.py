"""Scheduler hints: which filter follows which, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from skep.domain.errors import BadRequest
from skep.domain.host_queries import parse
from skep.domain.lifetimes import HINT as LIFETIME_HINT
from skep.domain.lifetimes import read_hint as read_lifetime
from skep.domain.networks import near

VOLUME_HINT = "same_host_as_volume"
MAX_VOLUME = 255

FOLLOWED_BY = {
    "query": "JsonFilter",
    "build_near_host_ip": "SimpleCIDRAffinityFilter",
    "cidr": "SimpleCIDRAffinityFilter",
    VOLUME_HINT: "VolumeFilter",
}
"""Hints that are followed only where the operator chose a filter: to ignore them would break what users rely on."""


def check_hints(hints: Mapping[str, object], filters: Collection[str]) -> None:
    """Check hints that filters read. `filters`: those that the operator has chosen beside Skep's own choice.

    Raises BadRequest, naming the hint, for one that nothing here can follow, and for one that makes no sense.
    """
    for name, filter_name in FOLLOWED_BY.items():
        if name in hints and filter_name not in filters:
            raise _refused(name, "This cloud has no filter for it")
    if "query" in hints:
        try:
            parse(hints["query"])
        except ValueError as error:
            raise _refused("query", f"It is no query: {error}") from error
    try:
        near(hints)
    except ValueError as error:
        name = "cidr" if "cidr" in hints else "build_near_host_ip"
        raise _refused(name, f"It makes no network: {error}") from error
    try:
        read_lifetime(hints)
    except ValueError as error:
        raise _refused(LIFETIME_HINT, str(error)) from error
    volume = hints.get(VOLUME_HINT, "any")
    if not isinstance(volume, str) or not 0 < len(volume) <= MAX_VOLUME or not volume.isprintable():
        raise _refused(VOLUME_HINT, f"Expected the id of one volume, 1 to {MAX_VOLUME} printable characters")


def _refused(name: str, why: str) -> BadRequest:
    return BadRequest(f"Invalid input for field/attribute os:scheduler_hints.{name}. {why}")
