"""Twice as large a body or query is at most about twice the work, whichever field of whichever route is pumped up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from skep.api.microversions import MAXIMUM
from skep.api.routes import ROUTES
from skep.api.routing import Route
from skep.api.schemas.fields import REQUEST, Array, Either, Map, Object, Type
from skep.domain.errors import BadRequest
from tests.support import samples
from tests.support.pumps import PUMPS
from tests.support.work import watching

SIZE = 150


def _places(kind: Type, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the path of each field of a body."""
    yield path
    match kind:
        case Object(fields=fields):
            for field in fields:
                if field.applies(MAXIMUM, REQUEST):
                    yield from _places(field.type, (*path, field.name))
        case Array(item=item):
            yield from _places(item, (*path, 0))
        case Map(value=value):
            yield from _places(value, (*path, "key"))
        case Either(types=types):
            for one in types:
                yield from (place for place in _places(one, path) if place != path)


def _with(path: tuple[str | int, ...], value: Any) -> Any:
    for part in reversed(path):
        value = [value] if isinstance(part, int) else {part: value}
    return value


WITH_BODY = [route for route in ROUTES if route.body is not None and route.at(MAXIMUM)]


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: f"{route.method} {route.path} {route.action or ''}")
def test_bodies(route: Route) -> None:
    assert route.body is not None
    body = route.body

    def read(value: Any) -> None:
        with contextlib.suppress(BadRequest):
            body.read(value, MAXIMUM)

    grown = {}
    with watching() as watch:
        read({})
        for path in dict.fromkeys(_places(body.description)):
            for name in samples.sample(list(PUMPS), samples.examples(len(PUMPS)), samples.seed(), str(path)):
                pump = PUMPS[name]
                less, more = _with(path, pump(SIZE)), _with(path, pump(2 * SIZE))
                work = watch.of(lambda: read(less))  # noqa: B023 - called at once
                grew = watch.of(lambda: read(more)).grows_no_faster_than(work)  # noqa: B023
                if grew:
                    grown[path, name] = grew
    assert grown == {}


@pytest.mark.parametrize(
    "route", [one for one in ROUTES if one.method == "GET" and one.at(MAXIMUM)], ids=lambda one: one.path
)
def test_queries(route: Route) -> None:
    names = sorted({parameter.name for parameter in route.query.parameters}) or ["unknown"]

    def read(size: int) -> None:
        with contextlib.suppress(BadRequest):
            route.query.read({name: [f"x{number}" for number in range(size)] for name in names}, MAXIMUM)
        with contextlib.suppress(BadRequest):
            route.query.read({f"{names[0]}{number}": ["9"] for number in range(size)}, MAXIMUM)
        with contextlib.suppress(BadRequest):
            route.query.read({names[0]: ["9" * size]}, MAXIMUM)

    with watching() as watch:
        read(1)
        less = watch.of(lambda: read(SIZE))
        assert watch.of(lambda: read(2 * SIZE)).grows_no_faster_than(less) == []
