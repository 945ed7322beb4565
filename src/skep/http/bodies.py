"""Request bodies: read within a limit and checked against a struct; an error names the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import Receive

from skep.domain import decoding
from skep.domain.errors import BadRequest, BrokenOff, SkepError, TooLarge
from skep.http.headers import declared_length, media_type
from skep.http.json_texts import NUL, bad_text, has_nul
from skep.http.limits import MAX_JSON_BODY

BodyT = TypeVar("BodyT")


class UnsupportedMediaType(SkepError):
    """A body of another content type than the service takes (415)."""


async def receive_body(
    receive: Receive, content_length: bytes | str | None, limit: int, *, too_large: str | None = None
) -> bytes:
    """Return the whole body of a request; it is refused while it arrives, never stored beyond the limit.

    Raises TooLarge (with the text `too_large`, if given) as soon as it is clear that the body exceeds `limit` bytes;
    BrokenOff when the client went away.
    """
    text = too_large or f"The request body is larger than {limit} bytes."
    if (declared_length(content_length) or 0) > limit:
        raise TooLarge(text)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BrokenOff("The request body broke off before its end.")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise TooLarge(text)
        if not message.get("more_body", False):
            return b"".join([*parts, part]) if parts else part
        parts.append(part)


async def read_limited(request: Request, limit: int) -> bytes:
    """Read the body of a Starlette request. Raises as `receive_body`."""
    return await receive_body(request.receive, request.headers.get("content-length"), limit)


async def read_json(
    request: Request,
    body: type[BodyT],
    media_types: tuple[str, ...] = ("application/json",),
    *,
    strict: bool = True,
) -> BodyT:
    """Read and check a JSON body. Unless `strict`, numbers and truth values may be written as text.

    Raises BadRequest naming the field, TooLarge, or UnsupportedMediaType for another content type.
    """
    check_media_type(request, media_types)
    return decode(await read_limited(request, MAX_JSON_BODY), body, strict=strict)


def _naming_field(error: msgspec.ValidationError) -> str:
    """Turn `Expected int - at $.user.name` into `user.name: expected int`, the form clients can act on."""
    reason, separator, path = str(error).rpartition(" - at `$")
    if not separator:
        return str(error)
    reason = reason[:1].lower() + reason[1:]
    return f"{path.removesuffix('`').removeprefix('.')}: {reason}"


def decode(
    raw: bytes,
    wanted: type[BodyT],
    *,
    wording: Callable[[msgspec.ValidationError], str] = _naming_field,
    strict: bool = True,
) -> BodyT:
    """Return a JSON body as `wanted`. `wording` says what is wrong with a field.

    Raises BadRequest naming the field when it is something else.
    """
    try:
        found = decoding.json_decoder(wanted, strict=strict).decode(raw)
    except msgspec.ValidationError as error:
        raise BadRequest(wording(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"The request body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise BadRequest("The request body is not valid JSON: it is nested too deeply") from error
    _refuse_nul(raw)
    return found


def _refuse_nul(raw: bytes) -> None:
    """Raise BadRequest naming the first field of a body whose text has a NUL: no database has to take it."""
    if NUL in raw:
        path = bad_text(msgspec.json.decode(raw), has_nul)
        if path is not None:
            raise BadRequest(f"{path}: expected no NUL character")


def convert(value: Any, target: Any, field: str = "") -> Any:
    """Check a decoded value; `field` is its name where it is no object.

    Raises BadRequest naming the field.
    """
    try:
        return decoding.convert(value, target)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{field}: {_naming_field(error)}" if field else _naming_field(error)) from error


def check_media_type(request: Request, accepted: tuple[str, ...]) -> None:
    """Refuse a body of another kind. Raises UnsupportedMediaType."""
    if not is_media_type(request, *accepted):
        given = media_type(request.headers.get("content-type")) or "absent"
        raise UnsupportedMediaType(f"Content-Type: expected {' or '.join(accepted)}, got {given}")


def is_media_type(request: Request, *wanted: str) -> bool:
    """Tell whether the body is of one of these kinds."""
    return media_type(request.headers.get("content-type")) in wanted
