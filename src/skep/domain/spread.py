"""Topology spread: how evenly the members of a server group stand over hosts, racks or zones.

The meaning is that of Kubernetes' `topologySpreadConstraints`: `key` is its `topologyKey`, `max_skew` its `maxSkew`,
hard its `DoNotSchedule` and soft its `ScheduleAnyway`. Written `zone:1:hard`; hard is understood where neither is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, cast

import msgspec

from skep.domain.groups import GroupRule, SpreadConstraint, SpreadKey
from skep.domain.invalid_input import invalid_property

HINT = "spread"
SCOPE = "spread:"
"""Of extra specs: `spread:zone` = `1` or `1:soft`."""

RACK = "rack"
"""The key in the metadata of an aggregate that makes its hosts a rack."""

EXPECTED = "KEY:MAX_SKEW or KEY:MAX_SKEW:hard|soft, KEY one of host, rack, zone and MAX_SKEW 1 to 1000000"
"""For error texts."""
_EXPECTED_OF_SPEC = "MAX_SKEW or MAX_SKEW:hard|soft, the key one of host, rack, zone and MAX_SKEW 1 to 1000000"

_ONE = re.compile(r"\s*(host|rack|zone)\s*:\s*([1-9][0-9]{0,5}|1000000)\s*(?::\s*(hard|soft))?\s*")


def read_hint(text: object) -> tuple[SpreadConstraint, ...]:
    """Read `zone:1:hard,rack:2:soft`. Raises ValueError saying what was expected."""
    if not isinstance(text, str) or len(text) > 200:
        raise ValueError(EXPECTED)
    return _distinct(_read(one) for one in text.split(","))


def read_extra_specs(specs: Mapping[str, str]) -> tuple[SpreadConstraint, ...]:
    """Read `spread:zone` = `1:soft`. Raises BadRequest naming the key and what was expected."""
    found = []
    for key, value in sorted(specs.items()):
        if key.startswith(SCOPE):
            try:
                found.append(_read(f"{key.removeprefix(SCOPE)}:{value}"))
            except ValueError as error:
                raise invalid_property(key, value, _EXPECTED_OF_SPEC) from error
    return tuple(found)


def spread_group(
    group: GroupRule | None, hinted: Iterable[SpreadConstraint], specs: Mapping[str, str]
) -> GroupRule | None:
    """Return the group's rule with what hint and flavor ask for; of two for one key the hint's holds.

    A flavor asks for nothing where there is no group: no server is counted. Raises BadRequest as `read_extra_specs`.
    """
    constraints = {one.key: one for one in (*read_extra_specs(specs), *hinted)}
    if group is None or not constraints:
        return group
    return msgspec.structs.replace(group, spread=tuple(constraints[key] for key in sorted(constraints)))


def _read(text: str) -> SpreadConstraint:
    found = _ONE.fullmatch(text)
    if found is None:
        raise ValueError(EXPECTED)
    key: SpreadKey = cast("Literal['host', 'rack', 'zone']", found[1])
    return SpreadConstraint(key=key, max_skew=int(found[2]), hard=found[3] != "soft")


def _distinct(constraints: Iterable[SpreadConstraint]) -> tuple[SpreadConstraint, ...]:
    by_key: dict[SpreadKey, SpreadConstraint] = {}
    for one in constraints:
        if one.key in by_key:
            raise ValueError(f"{EXPECTED}, each KEY once")
        by_key[one.key] = one
    return tuple(by_key.values())
