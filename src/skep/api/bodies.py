"""Request bodies: read within a limit, decoded from JSON, free of what no database or client could give back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from skep.api.faults import UnsupportedMediaType
from skep.domain.errors import BadRequest, TooLarge

JSON_TYPES = (b"application/json", b"application/vnd.openstack.compute+json")
MALFORMED = "Malformed request body"
MAX_DEPTH = 64
"""Levels of objects and lists; nothing in the API has ten."""

_decode = msgspec.json.Decoder().decode


async def receive_body(receive: Any, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    """Return the whole body of a request.

    Raises TooLarge as soon as it is clear that it exceeds `limit` bytes; BadRequest when the client went away.
    """
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and int(length[:18]) > limit:
        raise TooLarge("Request is too large.")
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise TooLarge("Request is too large.")
        return body
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise BadRequest("The request body ended early")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise TooLarge("Request is too large.")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()


def decode(raw: bytes, headers: Mapping[bytes, bytes]) -> Any:
    """Return the JSON value of a body. Of a key that stands there twice the last one counts.

    Raises UnsupportedMediaType, or BadRequest: for what is not JSON, is nested beyond reason, or holds characters that
    cannot be stored (then it names the field).
    """
    kind = headers.get(b"content-type")
    if kind is not None and kind.split(b";")[0].strip().lower() not in JSON_TYPES:
        raise UnsupportedMediaType("Unsupported Content-Type")
    try:
        value = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest(_why_malformed(raw)) from None
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _too_deep(value):
        raise BadRequest(f"{MALFORMED}: nested more than {MAX_DEPTH} levels deep")
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


def _find(value: Any, bad: Any) -> str | None:
    """Return the path of the first text that is bad; a bad key is named by where it stands."""
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        path, part = todo.pop()
        if isinstance(part, str):
            if bad(part):
                return path or "body"
        elif isinstance(part, dict):
            for key, item in part.items():
                if bad(key):
                    return f"{path or 'body'} (the name of a key)"
                todo.append((f"{path}.{key[:80]}" if path else key[:80], item))
        elif isinstance(part, list):
            todo.extend((f"{path}[{index}]", item) for index, item in enumerate(part))
    return None


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
