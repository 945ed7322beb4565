"""Every row of a matrix with each of its inputs made large: twice as large may take at most about twice the work.

A row tells what a good request looks like. One place of it at a time, a value of the body or of the query, is filled
with something large; the work of two sizes is counted (`tests.support.work`).
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from tests.support.access.matrix import Caller, Row, World
from tests.support.pumps import PUMPS
from tests.support.work import Watch

SIZES = (8, 400, 800)
"""The first fills caches and is not counted."""
Path: TypeAlias = tuple[str | int, ...]
Pump: TypeAlias = Callable[[int], Any]

UNKNOWN = "unknown"
SAMPLE = 15
"""Rows of which one input each is tried, where not all are."""

QUERIES: dict[str, Pump] = {
    "a long text": lambda size: "a" * size * 8,
    "many digits": lambda size: "9" * size * 4,
    "an operator and a long list": lambda size: "in:" + ",".join(f"t{number}" for number in range(size)),
    "a pattern of repeats": lambda size: "(a*)*" * size,
}


async def grown(
    world: World, watch: Watch, rows: Iterable[Row], by: Callable[[Row], Caller], draw: random.Random | None
) -> list[str]:
    """Ask each row with large inputs, and return where the work grew faster than the input.

    With `draw` one input of `SAMPLE` rows is large, of all that could be; else each of each row in its turn.
    """
    found: list[str] = []
    rows = tuple(rows)
    for row in draw.sample(rows, SAMPLE) if draw else rows:
        inputs = list(_inputs(row))
        for name, large in [draw.choice(inputs)] if draw and inputs else inputs:
            work = []
            for size in SIZES:
                url, body = large(size)
                headers = {key: str(value) for key, value in _own(row.headers).items()}
                watch.begin()
                answer = await world.send(row.method, url, body, row, {**headers, **by(row).headers})
                work.append(watch.end())
                if answer.status_code >= 500:
                    found.append(f"{row.method} {row.path}, {name}: {answer.status_code} {answer.text[:200]}")
                if world.changed():
                    await world.restore()
            if more := work[2].grows_no_faster_than(work[1]):
                found.append(f"{row.method} {row.path}, {name}: {', '.join(more)}")
    return found


def _own(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "own", value) for name, value in headers.items()}


def _inputs(row: Row) -> Iterator[tuple[str, Callable[[int], tuple[str, Any]]]]:
    """Give what can be large of a request, and how its address and body are made."""
    address, body = row.url("own"), row.content("own")
    plain = address.partition("?")[0]
    names = [pair.partition("=")[0] for pair in row.query.split("&") if pair] or [UNKNOWN]
    for name in names:
        for what, pump in QUERIES.items():

            def asked(size: int, name: str = name, pump: Pump = pump) -> tuple[str, Any]:
                return f"{plain}?{name}={quote(pump(size))}", body

            yield f"{name} with {what}", asked
    yield (
        "a parameter again and again",
        lambda size: (f"{plain}?{'&'.join(f'{names[0]}=v{one}' for one in range(size))}", body),
    )
    yield (
        "many parameters that are none",
        lambda size: (f"{plain}?{'&'.join(f'k{one}=v' for one in range(size))}", body),
    )
    if body is None:
        return
    text = isinstance(body, str)
    try:
        value = json.loads(body) if text else body
    except ValueError:
        return
    for path in places(value):
        for what, pump in PUMPS.items():

            def large(size: int, path: Path = path, pump: Pump = pump) -> tuple[str, Any]:
                filled = with_at(value, path, pump(size))
                return address, json.dumps(filled) if text else filled

            yield f"{'.'.join(str(part) for part in path) or 'the body'} with {what}", large


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Give the path of each value of a body, and of one that is unknown in each object."""
    yield path
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        yield (*path, UNKNOWN)
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value[:1])
    for key, item in items:
        yield from places(item, (*path, key))


def with_at(value: Any, path: Path, new: Any) -> Any:
    """Return a body with another value at a place."""
    if not path:
        return new
    changed = copy.copy(value)
    key: Any = path[0]
    changed[key] = with_at(value.get(key) if isinstance(value, dict) else value[key], path[1:], new)
    return changed
