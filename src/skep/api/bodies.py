"""Request bodies: decoded from JSON, free of what no database or client could give back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from skep.domain.errors import BadRequest
from skep.http.bodies import UnsupportedMediaType
from skep.http.json_texts import NUL, bad_text, has_nul

JSON_TYPES = (b"application/json", b"application/vnd.openstack.compute+json")
MALFORMED = "Malformed request body"
MAX_DEPTH = 64
"""Levels of objects and lists; nothing in the API has ten."""
MAX_VALUES = 4096
"""Values in a body; as many UUIDs do not fit into one of the usual size, and each value costs more than its bytes."""

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
    if NUL in raw:
        _refuse_nul(value)
    return value


def _why_malformed(raw: bytes) -> str:
    """Name the field of a lone surrogate, which is JSON of a kind but no text; all else is just malformed."""
    if b"\\ud" not in raw.lower():
        return MALFORMED
    try:
        path = bad_text(json.loads(raw), _has_surrogate)
    except (ValueError, RecursionError):
        return MALFORMED
    return MALFORMED if path is None else f"Invalid input for field/attribute {path}. The text has a lone surrogate."


def _refuse_nul(value: Any) -> None:
    path = bad_text(value, has_nul)
    if path is not None:
        raise BadRequest(f"Invalid input for field/attribute {path}. The text has a NUL character.")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


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
