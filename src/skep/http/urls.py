"""URLs: the words of the path, the parameters of the query, the address that the client used."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request
from starlette.types import Scope

from skep.domain.errors import BadRequest, NotFound
from skep.http.limits import MAX_DIGITS, MAX_PARAMETERS, MAX_URL

QueryValues: TypeAlias = dict[str, list[str]]
"""What stands behind the question mark: every value of every key, in order."""


def ends_with_slash(scope: Scope) -> bool:
    """Tell whether the path's last word is empty."""
    return _path(scope).endswith(b"/")


def segments(scope: Scope) -> list[str]:
    """Split the path into its words; `%2F` inside a word does not divide it.

    Raises BadRequest when the URL is too long or not UTF-8, NotFound for a NUL in it.
    """
    raw = _path(scope)
    if len(raw) + len(scope["query_string"]) > MAX_URL:
        raise BadRequest("The URL is too long.")
    try:
        words = [unquote(word, errors="strict") for word in raw.decode("ascii").strip("/").split("/")]
    except UnicodeDecodeError:
        raise BadRequest("Malformed request URL: it is not UTF-8") from None
    if any("\x00" in word for word in words):
        raise NotFound("The resource could not be found.")
    return words if words != [""] else []


def _path(scope: Scope) -> bytes:
    """Return the path as it was sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw


def query(scope: Scope) -> QueryValues:
    """Return the parameters. Raises BadRequest when there are too many, they are not UTF-8, or a NUL is in one."""
    raw: bytes = scope["query_string"]
    if not raw:
        return {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except UnicodeDecodeError:
        raise BadRequest("Query string is not UTF-8 encoded") from None
    except ValueError:
        raise BadRequest(f"The query has more than {MAX_PARAMETERS} parameters.") from None
    values: QueryValues = {}
    for name, value in pairs:
        if "\x00" in name or "\x00" in value:
            raise BadRequest(f"Invalid input for query parameters {name[:80]!r}. There is a NUL character.")
        values.setdefault(name, []).append(value)
    return values


def whole_number(text: str) -> int | None:
    """Return a number from 0 up of at most MAX_DIGITS digits; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None


def base_url(request: Request) -> str:
    """Return the address the client used, no slash at its end.

    Raises BadRequest when the Host header is not an address.
    """
    try:
        return str(request.base_url).rstrip("/")
    except ValueError as error:
        raise BadRequest("Host: expected an address") from error
