"""JSON in and out: bodies are read with a limit and checked against a struct; what is wrong names its field."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from skep.domain.errors import BadRequest, TooLarge
from skep.domain.invalid_input import shortened
from skep.domain.wording import UNSEEN

MAX_JSON_BODY = 114_688
"""Bytes of a JSON body (Keystone's and Glance's own limit); images themselves are not read through here."""

MAX_DIGITS = 18

LINE = rf"^[^{UNSEEN}]*\Z"
"""A line holds no character that cannot be seen, but for spaces."""
NAME = rf"^[^{UNSEEN}]*[^\s{UNSEEN}][^{UNSEEN}]*\Z"
"""A name is a line that is not all spaces."""
TEXT = r"^[^\x00]*\Z"
"""A text holds no NUL."""

BodyT = TypeVar("BodyT")


async def read_json(request: Request, body: type[BodyT], media_types: tuple[str, ...] = ("application/json",)) -> BodyT:
    """Read and check a JSON body.

    Raises BadRequest naming the field, TooLarge, or HTTPException 415 for another content type.
    """
    check_media_type(request, media_types)
    raw = await read_limited(request, MAX_JSON_BODY)
    try:
        return msgspec.json.decode(raw, type=body)
    except msgspec.ValidationError as error:
        raise BadRequest(_naming_field(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise BadRequest("the body is not valid JSON: it is nested too deeply") from error


def convert(value: Any, target: Any, field: str = "") -> Any:
    """Check a decoded value; `field` is its name where it is no object.

    Raises BadRequest naming the field.
    """
    try:
        return msgspec.convert(value, target)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{field}: {_naming_field(error)}" if field else _naming_field(error)) from error


async def read_limited(request: Request, limit: int) -> bytes:
    """Read a body; it is refused while it arrives, never stored beyond the limit.

    Raises TooLarge.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:MAX_DIGITS]) > limit:
        raise TooLarge(f"the body has {shortened(declared, MAX_DIGITS)} bytes; at most {limit} are accepted")
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > limit:
            raise TooLarge(f"the body has more than {limit} bytes")
    return bytes(raw)


def check_media_type(request: Request, accepted: tuple[str, ...]) -> None:
    """Refuse a body of another kind.

    Raises HTTPException 415.
    """
    if not is_media_type(request, *accepted):
        given = _media_type(request) or "absent"
        raise HTTPException(415, f"Content-Type must be {' or '.join(accepted)}, not {given}")


def is_media_type(request: Request, *wanted: str) -> bool:
    """Tell whether the body is of one of these kinds."""
    return _media_type(request) in wanted


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _naming_field(error: msgspec.ValidationError) -> str:
    """Turn `Expected int - at $.user.name` into `user.name: expected int`, the form clients can act on."""
    reason, separator, path = str(error).rpartition(" - at `$")
    if not separator:
        return str(error)
    reason = reason[:1].lower() + reason[1:]
    return f"{path.removesuffix('`').removeprefix('.')}: {reason}"
