"""Request bodies: decoded from JSON, free of what no database or client could give back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from skep.domain.errors import BadRequest
from skep.domain.invalid_input import MAX_SHOWN, shortened
from skep.http.bodies import UnsupportedMediaType

JSON_TYPES = (b"application/json", b"application/vnd.openstack.compute+json")
MALFORMED = "Malformed request body"
MAX_DEPTH = 64
"""Levels of objects and lists; nothing in the API has ten."""
MAX_VALUES = 4096
"""Values in a body; as many UUIDs do not fit into one of the usual size, and each value costs more than its bytes."""

MAX_PATH = 300
"""Characters of a path that an error names."""

_decode = msgspec.json.Decoder().decode


def decode(raw: bytes, headers: Mapping[bytes, bytes]) -> Any:
    """Return the JSON value of a body. Of a key that stands there twice the last one counts.

    Raises UnsupportedMediaType, or BadRequest: for what is not JSON, is nested beyond reason, has too many values, or
    holds characters that cannot be stored (then it names the field).
    """
    kind = headers.get(b"content-type")
    if kind is not None and kind.split(b";")[0].strip().lower() not in JSON_TYPES:
        raise UnsupportedMediaType("Unsupported Content-Type")
    try:
        value = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest(_why_malformed(raw)) from None
    groups = raw.count(b"{") + raw.count(b"[")
    if groups > MAX_DEPTH and _too_deep(value):
        raise BadRequest(f"{MALFORMED}: nested more than {MAX_DEPTH} levels deep")
    if groups + raw.count(b",") > MAX_VALUES and _too_many(value):
        raise BadRequest(f"{MALFORMED}: more than {MAX_VALUES} values")
    if b"\\u0000" in raw:
        _refuse_nul(value)
    return value


def _why_malformed(raw: bytes) -> str:
    """Name the field of a lone surrogate, which is JSON of a kind but no text; all else is just malformed."""
    if b"\\ud" not in raw.lower():
        return MALFORMED
    try:
        path = _find(json.loads(raw), _has_surrogate)
    except (ValueError, RecursionError):
        return MALFORMED
    return MALFORMED if path is None else f"Invalid input for field/attribute {path}. The text has a lone surrogate."


def _refuse_nul(value: Any) -> None:
    path = _find(value, lambda text: "\x00" in text)
    if path is not None:
        raise BadRequest(f"Invalid input for field/attribute {path}. The text has a NUL character.")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


_Place = tuple[Any, str | int] | None
"""Where a value stands: the place of what holds it, and its key or number there."""


def _find(value: Any, bad: Callable[[str], bool]) -> str | None:
    """Return the path of the first text that is bad; a bad key is named by where it stands."""
    todo: list[tuple[_Place, Any]] = [(None, value)]
    while todo:
        place, part = todo.pop()
        if isinstance(part, str):
            if bad(part):
                return _path(place) or "body"
        elif isinstance(part, dict):
            for key, item in part.items():
                if bad(key):
                    return f"{_path(place) or 'body'} (the name of a key)"
                todo.append(((place, key), item))
        elif isinstance(part, list):
            todo.extend(((place, index), item) for index, item in enumerate(part))
    return None


def _path(place: _Place) -> str:
    words: list[str] = []
    while place is not None:
        place, part = place
        words.append(f"[{part}]" if isinstance(part, int) else f".{part[:MAX_SHOWN]}")
    return shortened("".join(reversed(words)).removeprefix("."), MAX_PATH)


def _too_many(value: Any) -> bool:
    """Tell whether there are more values than a body may have; keys are counted with their values."""
    left, todo = MAX_VALUES, [value]
    while todo:
        part = todo.pop()
        left -= 1
        if left < 0:
            return True
        if isinstance(part, (dict, list)):
            todo.extend(part.values() if isinstance(part, dict) else part)
    return False


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for part in level
            if isinstance(part, (dict, list))
            for item in (part.values() if isinstance(part, dict) else part)
        ]
        if not level:
            return False
    return True
