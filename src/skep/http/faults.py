"""Errors as Keystone words them: `{"error": {"code", "title", "message"}}`."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import Response

from skep.domain.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    SkepError,
    TooLarge,
    TooManyAttempts,
    Unauthenticated,
    Unavailable,
)
from skep.http.bodies import json_response

STATUS: tuple[tuple[type[SkepError], int], ...] = (
    (BadRequest, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (TooLarge, 413),
    (TooManyAttempts, 429),
    (Unavailable, 503),
)

UNAUTHENTICATED = "The request you have made requires authentication."


def fault(code: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error response."""
    title = HTTPStatus(code).phrase
    return json_response({"error": {"code": code, "title": title, "message": message}}, code, headers)


def from_error(error: SkepError, challenge: str) -> Response | None:
    """Return the response for an error that a caller or the state of the service causes; None for a bug.

    `challenge` is the address of the identity service, named where a token is missing.
    """
    code = next((status for kind, status in STATUS if isinstance(error, kind)), None)
    if code is None:
        return None
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = f'Keystone uri="{challenge}"'
    if isinstance(error, Unavailable | TooManyAttempts):
        headers["Retry-After"] = str(error.retry_after)
    return fault(code, str(error), headers)


def from_http(error: HTTPException) -> Response:
    """Return the response for what the router refuses: unknown paths and methods."""
    return fault(error.status_code, error.detail, dict(error.headers or {}))
