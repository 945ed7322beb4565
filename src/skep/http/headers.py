"""Request headers: by name, in lower case, as bytes (ASGI) or as text (Starlette)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from skep.http.limits import MAX_DIGITS

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""The headers of an answer."""


def by_name(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by name; the values of a repeated header are joined by commas, as HTTP says."""
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def declared_length(value: bytes | str | None) -> int | None:
    """Return how many bytes a Content-Length declares, at most a number of MAX_DIGITS digits; None when it is none."""
    return int(value[:MAX_DIGITS]) if value is not None and value.isascii() and value.isdigit() else None


def media_type(value: str | None) -> str:
    """Return the media type of a Content-Type without its parameters; empty when there is none."""
    return (value or "").partition(";")[0].strip().lower()


def global_request_id(value: str | None) -> str | None:
    """Return the request id that the client gave, if it has the form of one; it is logged only."""
    known = value is not None and value.startswith("req-") and len(value) <= 64 and value.isprintable()
    return value if known else None
