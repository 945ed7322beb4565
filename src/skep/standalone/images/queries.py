"""The parameters of `GET /v2/images`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable

import msgspec

from skep.database.api.images import SORTABLE, ImageQuery
from skep.domain.clock import parse_iso
from skep.domain.errors import BadRequest
from skep.http.limits import MAX_DIGITS
from skep.http.operations import BOOLEAN, STRING, Json, whole
from skep.http.urls import whole_number
from skep.standalone.images.settings import ImagesSettings

VISIBILITIES = ("public", "private", "shared", "community", "all")
PAGING = ("limit", "marker", "sort_key", "sort_dir", "sort")
MAX_PARAMETERS = 100
"""A statement with more conditions is beyond what a database takes."""
MEMBER_STATUSES = ("accepted", "pending", "rejected", "all")


def parse(parameters: Iterable[tuple[str, str]], settings: ImagesSettings) -> tuple[ImageQuery, str | None]:
    """Return the query (without its marker) and the id of the marker.

    A parameter that the API does not know asks for a property of that name, as with Glance.
    Raises BadRequest naming the parameter.
    """
    given = list(parameters)
    if len(given) > MAX_PARAMETERS:
        raise BadRequest(f"query: expected at most {MAX_PARAMETERS} parameters, got {len(given)}")
    query = ImageQuery(sort=_sort(given), limit=settings.limit_param_default, most_bytes=settings.page_bytes)
    marker: str | None = None
    for name, value in given:
        if name == "marker":
            marker = value
        elif name == "limit":
            query = msgspec.structs.replace(query, limit=min(_number(name, value), settings.api_limit_max))
        elif name not in PAGING:
            query = _narrowed(query, name, value)
    return query, marker


def _narrowed(query: ImageQuery, name: str, value: str) -> ImageQuery:
    replace = msgspec.structs.replace
    if name in EXACT:
        return replace(query, one_of={**query.one_of, name: EXACT[name](name, value)})
    if name == "visibility":
        if value not in VISIBILITIES:
            raise BadRequest(f"visibility: expected one of {', '.join(VISIBILITIES)}")
        return replace(query, visibility=value)
    if name == "member_status":
        if value not in MEMBER_STATUSES:
            raise BadRequest(f"member_status: expected one of {', '.join(MEMBER_STATUSES)}")
        return replace(query, member_status=value)
    if name == "tag":
        return replace(query, tags=(*query.tags, value))
    if name in ("protected", "os_hidden"):
        return replace(query, **{name: _flag(name, value)})
    if name in ("size_min", "size_max"):
        return replace(query, **{name: _number(name, value)})
    if name in ("created_at", "updated_at"):
        return replace(query, times=(*query.times, _time(name, value)))
    return replace(query, properties={**query.properties, name: value})


def _values(name: str, value: str) -> tuple[str, ...]:
    if value.startswith("eq:"):
        return (value.removeprefix("eq:"),)
    if not value.startswith("in:"):
        return (value,)
    try:
        rows = list(csv.reader([value[3:]], doublequote=False, escapechar="\\", strict=True))
    except csv.Error as error:
        raise BadRequest(f"{name}: expected a list: {error}") from error
    return tuple(rows[0]) if rows else ()


def _sort(given: list[tuple[str, str]]) -> tuple[tuple[str, bool], ...]:
    """Return keys and whether they descend, each key once: one that stands there again decides nothing more."""
    chosen: dict[str, bool] = {}
    for key, descends in _pairs(given):
        chosen.setdefault(key, descends)
    return tuple(chosen.items())


def _pairs(given: list[tuple[str, str]]) -> tuple[tuple[str, bool], ...]:
    keys = [value for name, value in given if name == "sort_key"]
    directions = [value for name, value in given if name == "sort_dir"]
    combined = [item for name, value in given if name == "sort" for item in value.split(",")]
    if combined and (keys or directions):
        raise BadRequest("sort: expected without sort_key and sort_dir")
    if combined:
        pairs = [(key.strip(), direction.strip()) for key, _, direction in (item.partition(":") for item in combined)]
        return tuple((_sort_key("sort", key), _descends("sort", direction or "desc")) for key, direction in pairs)
    if len(directions) > max(len(keys), 1):
        raise BadRequest("sort_dir: expected at most one direction for each key")
    keys = keys or ["created_at"]
    shared = directions[0] if len(directions) == 1 else "desc"
    directions = directions if len(directions) == len(keys) else [shared] * len(keys)
    return tuple(
        (_sort_key("sort_key", key), _descends("sort_dir", direction))
        for key, direction in zip(keys, directions, strict=True)
    )


def _sort_key(field: str, name: str) -> str:
    if name not in SORTABLE:
        raise BadRequest(f"{field}: expected one of {', '.join(SORTABLE)}")
    return name


def _descends(field: str, direction: str) -> bool:
    if direction not in ("asc", "desc"):
        raise BadRequest(f"{field}: expected the direction asc or desc")
    return direction == "desc"


def _number(name: str, value: str) -> int:
    number = whole_number(value)
    if number is None:
        raise BadRequest(f"{name}: expected a number, 0 or more")
    return number


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise BadRequest(f"{name}: expected true or false")
    return value.lower() == "true"


def _time(name: str, value: str) -> tuple[str, str, int]:
    comparison, separator, at = value.partition(":")
    if not separator or comparison not in ("gt", "gte", "lt", "lte", "eq", "neq"):
        comparison, at = "eq", value
    try:
        return name, comparison, parse_iso(at)
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"{name}: expected a time such as gte:2026-01-31T12:00:00Z") from error


def _text(_name: str, value: str) -> tuple[str, ...]:
    return (value,)


def _one_number(name: str, value: str) -> tuple[int, ...]:
    return (_number(name, value),)


EXACT: dict[str, Callable[[str, str], tuple[str, ...] | tuple[int, ...]]] = {
    **dict.fromkeys(("id", "name", "status", "container_format", "disk_format", "owner"), _values),
    **dict.fromkeys(("checksum", "os_hash_algo", "os_hash_value"), _text),
    **dict.fromkeys(("size", "min_disk", "min_ram"), _one_number),
}
"""Column -> how the values are read of which an image must have one; the first may be lists, `in:a,b`."""

KNOWN: dict[str, Json] = {
    **dict.fromkeys((*PAGING, *EXACT, "tag", "created_at", "updated_at"), STRING),
    **dict.fromkeys(("limit", "size_min", "size_max", "size", "min_disk", "min_ram"), whole(0, 10**MAX_DIGITS - 1)),
    **dict.fromkeys(("protected", "os_hidden"), BOOLEAN),
    "visibility": {"enum": list(VISIBILITIES)},
    "member_status": {"enum": list(MEMBER_STATUSES)},
    "sort_key": {"enum": list(SORTABLE)},
    "sort_dir": {"enum": ["asc", "desc"]},
}
"""The parameters with their schemas; any other name is that of a property."""
