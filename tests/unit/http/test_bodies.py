"""Bodies are read within their limit, and never beyond it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import msgspec
import pytest

from skep.domain.errors import BadRequest, BrokenOff, TooLarge
from skep.http.bodies import decode, receive_body
from skep.http.headers import by_name, declared_length, global_request_id, media_type
from skep.http.urls import whole_number


class Client:
    """Sends a body in pieces; None: goes away."""

    def __init__(self, *pieces: bytes | None) -> None:
        self.left = list(pieces)

    async def __call__(self) -> MutableMapping[str, Any]:
        """Return the next message of the body."""
        piece = self.left.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(self.left)}


class Inner(msgspec.Struct):
    """An object in a body."""

    b: str


class Outer(msgspec.Struct):
    """A body."""

    a: Inner


@pytest.mark.parametrize("pieces", [[b""], [b"whole"], [b"wh", b"", b"ole"], [b"12345", b"67890"]])
async def test_a_body_comes_whole(pieces: list[bytes]) -> None:
    assert await receive_body(Client(*pieces), None, 10) == b"".join(pieces)


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 6, b"x"]])
async def test_a_body_ends_at_its_limit(pieces: list[bytes]) -> None:
    client = Client(*pieces)
    with pytest.raises(TooLarge, match="larger than 10 bytes"):
        await receive_body(client, None, 10)
    assert client.left == pieces[2:]


@pytest.mark.parametrize("length", [b"11", "11", b"9" * 5000])
async def test_a_declared_length_beyond_the_limit_is_refused_unread(length: bytes | str) -> None:
    client = Client(b"x")
    with pytest.raises(TooLarge, match="said so"):
        await receive_body(client, length, 10, too_large="said so")
    assert client.left == [b"x"]


async def test_a_body_that_breaks_off() -> None:
    with pytest.raises(BrokenOff):
        await receive_body(Client(b"half", None), None, 10)


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b'{"a": {"b": 1}}', "a.b: expected `str`"),
        (b'{"a": {"b": "\xff"}}', "not valid JSON"),
        (b'{"a": ', "not valid JSON"),
        (b'{"x": ' * 10_000, "not valid JSON"),
    ],
)
def test_what_is_wrong_is_named(raw: bytes, named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        decode(raw, Outer)


def test_headers() -> None:
    assert by_name([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]) == {b"a": b"1, 3", b"b": b"2"}
    assert [declared_length(one) for one in (None, b"", b"-1", b"7", "\u00b2", "12")] == [None, None, None, 7, None, 12]
    assert [media_type(one) for one in (None, "Text/XML; charset=utf-8", " application/json ")] == [
        "",
        "text/xml",
        "application/json",
    ]
    assert global_request_id("req-1") == "req-1"
    assert [global_request_id(one) for one in (None, "1", "req-\n", "req-" + "x" * 61)] == [None] * 4


def test_whole_numbers() -> None:
    assert [whole_number(one) for one in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]
    assert [whole_number(one) for one in ("", "-1", "1.0", "\u0663", "9" * 19, "1_0")] == [None] * 6
