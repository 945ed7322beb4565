"""The matrix sees what it is there to see: each of these worlds is wrong in one way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.support.access.matrix import Caller, Row, Thing, World, walk

ROW = Row(
    method="GET",
    path="/things/{id}",
    right="reader",
    thing=(THING := Thing("mine", "none", "theirs")),
    fill={"id": THING},
)
CALLERS = (
    Caller("stranger", {}, known=False),
    Caller("reader", {}, frozenset({"reader"})),
    Caller("guest", {}),
    Caller("admin", {}, frozenset({"admin"}), owns=False),
)
RIGHT: dict[str, tuple[int, int, int]] = {
    "stranger": (401, 401, 401),
    "reader": (200, 404, 404),
    "guest": (403, 404, 404),
    "admin": (200, 200, 404),
}
"""What each is answered of his own, another's and a missing thing."""


async def _walked(
    answers: Mapping[str, tuple[int, int, int]], *, changed: bool = False, text: str = "no {name}"
) -> list[str]:
    found: list[str] = []
    for caller in CALLERS:
        statuses = dict(zip(("mine", "theirs", "none"), answers[caller.name], strict=True))

        async def send(_method: str, url: str, _body: Any, _row: Row, _headers: Any, by: Any = statuses) -> Any:
            name = url.rpartition("/")[2]
            return httpx.Response(by[name], text="" if by[name] == 200 else text.format(name=name))

        async def restore() -> None: ...

        found += await walk(World(send, lambda: changed, restore, ("sesame",)), [ROW], [caller])
    return found


async def test_what_is_right_is_not_complained_of() -> None:
    assert await _walked(RIGHT) == []


@pytest.mark.parametrize(
    ("by", "statuses", "complaint"),
    [
        ("stranger", (200, 401, 401), "expected 401"),
        ("reader", (200, 403, 404), "told from a missing one"),
        ("reader", (200, 200, 404), "expected 403 or 404"),
        ("guest", (200, 404, 404), "expected 403"),
        ("guest", (500, 404, 404), "a 5xx"),
        ("admin", (200, 404, 404), "expected 200"),
        ("admin", (200, 200, 200), "expected 404"),
    ],
)
async def test_a_wrong_status_is(by: str, statuses: tuple[int, int, int], complaint: str) -> None:
    (first, *_) = await _walked({**RIGHT, by: statuses})
    assert complaint in first
    assert f"by {by}" in first


async def test_a_refusal_that_changed_something_is() -> None:
    assert any("it was refused, and changed something" in one for one in await _walked(RIGHT, changed=True))


async def test_a_text_that_differs_or_tells_is() -> None:
    differing = await _walked(RIGHT, text="no {name}{name}")
    assert differing == []
    told = await _walked(RIGHT, text="{name} of sesame")
    assert any("it tells of another project's object" in one for one in told)
