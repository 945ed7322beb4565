"""The parameters of lists: filters, tags, order, pages, and which keys are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from skep.database.api.network_rows import ResourceQuery
from skep.domain.errors import BadRequest
from skep.http.operations import BOOLEAN, STRING, Json, whole
from skep.http.urls import QueryValues, whole_number
from skep.standalone.networks.refusals import InvalidInput

MAX_VALUES = 1000
"""Values of one filter."""
MOST_TAGS = 50
"""Of one resource (Neutron's `MAX_TAGS_COUNT`)."""

TAG_FILTERS = ("tags", "tags-any", "not-tags", "not-tags-any")
PAGING = ("limit", "marker", "page_reverse", "sort_key", "sort_dir", "fields")

COMMON: Mapping[str, Json] = {
    **dict.fromkeys((*TAG_FILTERS, "marker", "sort_key", "fields"), STRING),
    "limit": whole(0, 10**18 - 1),
    "page_reverse": BOOLEAN,
    "sort_dir": {"enum": ["asc", "desc"]},
}
"""Parameters of every list, with their schemas."""


@dataclass(frozen=True)
class ListFilter:
    """How the values of one filter are read."""

    read: Callable[[str, str], Any]
    schema: Json
    column: str = ""
    """Empty: that of the filter's name."""


def text(_name: str, value: str) -> str:
    """Take any text."""
    return value


def flag(name: str, value: str) -> bool:
    """Read a boolean as Neutron does. Raises InvalidInput."""
    if value.lower() not in ("true", "false", "1", "0"):
        raise InvalidInput(f"{name}: '{value}' cannot be converted to boolean")
    return value.lower() in ("true", "1")


def number(name: str, value: str) -> int:
    """Read a whole number. Raises InvalidInput."""
    found = whole_number(value)
    if found is None or found >= 2**31:
        raise InvalidInput(f"{name}: '{value}' is not an integer")
    return found


TEXT, FLAG, NUMBER = ListFilter(text, STRING), ListFilter(flag, BOOLEAN), ListFilter(number, whole(0, 2**31 - 1))

OF_ALL: Mapping[str, ListFilter] = {
    **dict.fromkeys(("id", "name", "description", "project_id"), TEXT),
    "tenant_id": ListFilter(text, STRING, "project_id"),
    "revision_number": NUMBER,
}
"""Filters of every kind of resource."""


class ListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a list was asked for."""

    query: ResourceQuery
    fields: frozenset[str]
    """Keys that are shown; none: all."""
    paged: bool
    """Whether pages were asked for; an answer that leaves resources out has links, too."""


def parse(given: QueryValues, filters: Mapping[str, ListFilter], own: frozenset[str], most: int) -> ListRequest:
    """Read the parameters of a list; `own` names those that the kind of resource reads itself.

    Raises BadRequest naming the parameter.
    """
    unknown = [name for name in given if name not in filters and name not in COMMON and name not in own]
    if unknown:
        raise BadRequest(f"{sorted(unknown)} is invalid attribute for filtering")
    one_of = []
    for name, values in given.items():
        if name in filters:
            if len(values) > MAX_VALUES:
                raise InvalidInput(f"{name}: expected at most {MAX_VALUES} values")
            chosen = filters[name]
            one_of.append((chosen.column or name, tuple(chosen.read(name, value) for value in values)))
    limit = _limit(given)
    query = ResourceQuery(
        one_of=tuple(one_of),
        sort=_sort(given, filters),
        limit=most if limit is None else min(limit, most),
        marker=given.get("marker", [""])[0] or None,
        reverse=flag("page_reverse", given.get("page_reverse", ["false"])[0]),
        tags=_tags(given, "tags"),
        tags_any=_tags(given, "tags-any"),
        not_tags=_tags(given, "not-tags"),
        not_tags_any=_tags(given, "not-tags-any"),
    )
    return ListRequest(query=query, fields=fields(given), paged=limit is not None)


def fields(given: QueryValues) -> frozenset[str]:
    """Return the keys that are asked for."""
    return frozenset(name for name in given.get("fields", ()) if name)


def shown(resource: dict[str, Any], wanted: frozenset[str]) -> dict[str, Any]:
    """Leave out keys that are not asked for."""
    return {name: value for name, value in resource.items() if name in wanted} if wanted else resource


def _tags(given: QueryValues, name: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(tag for value in given.get(name, ()) for tag in value.split(",") if tag))
    if len(found) > MOST_TAGS:
        raise InvalidInput(f"{name}: expected at most {MOST_TAGS} tags, as a resource may have")
    return found


def _limit(given: QueryValues) -> int | None:
    text_ = given.get("limit", [""])[0]
    if text_ == "":
        return None
    found = whole_number(text_)
    if found is None:
        raise BadRequest(f"limit: expected a number, 0 or more, got '{text_[:80]}'")
    return found or None


def _sort(given: QueryValues, filters: Mapping[str, ListFilter]) -> tuple[tuple[str, bool], ...]:
    keys, directions = given.get("sort_key", []), given.get("sort_dir", [])
    if len(directions) > len(keys):
        raise BadRequest("sort_dir: expected at most one for each sort_key")
    chosen: dict[str, bool] = {}
    for position, name in enumerate(keys):
        column = filters[name].column or name if name in filters else None
        if column is None:
            raise BadRequest(f"sort_key: '{name[:80]}' is no attribute by which can be sorted")
        direction = directions[position] if position < len(directions) else "asc"
        if direction not in ("asc", "desc"):
            raise BadRequest("sort_dir: expected asc or desc")
        chosen.setdefault(column, direction == "desc")
    return tuple(chosen.items())
