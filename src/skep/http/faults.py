"""Errors as answers: the status of each error, and the form in which an API words it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from skep.domain import errors
from skep.http.answers import json_response
from skep.http.bodies import UnsupportedMediaType

STATUS: tuple[tuple[type[errors.SkepError], int], ...] = (
    (errors.BadRequest, 400),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.Withdrawn, 410),
    (errors.Outdated, 412),
    (errors.TooLarge, 413),
    (UnsupportedMediaType, 415),
    (errors.TooManyAttempts, 429),
    (errors.Unsupported, 501),
    (errors.TooManyRequests, 429),
    (errors.Unavailable, 503),
)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error that a caller or the state of a service causes; None for a bug."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), None)


def challenge(identity_url: str) -> str:
    """Return the value of `WWW-Authenticate`, which says where to get a token."""
    return f'Keystone uri="{identity_url}"'


@dataclass(frozen=True, slots=True)
class FaultForm:
    """How one API words its errors."""

    body: Callable[[int, str], dict[str, Any]]
    """Status and message -> the JSON of the answer."""
    bug: Callable[[str], str]
    """Request id -> the message of a 500; the text of the error itself stays in the log."""
    identity_url: str | None = None
    """Address of the identity service, told to a client without a valid token; None: not told."""
    wording: Mapping[int, str] = field(default_factory=dict)
    """Messages for what the router refuses, by status; for others Starlette's own."""

    def answer(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
        """Return an error answer."""
        return json_response(self.body(status, message), status, headers)

    def of_error(self, error: errors.SkepError) -> Response | None:
        """Return the answer to an error that a caller or the state of the service causes; None for a bug."""
        status = status_of(error)
        if status is None:
            return None
        headers: dict[str, str] = {}
        if isinstance(error, errors.Unauthenticated) and self.identity_url is not None:
            headers["WWW-Authenticate"] = challenge(self.identity_url)
        if isinstance(error, errors.Unavailable | errors.TooManyAttempts | errors.TooManyRequests):
            headers["Retry-After"] = str(error.retry_after)
        return json_response(self.worded(error, status), status, headers)

    def worded(self, error: errors.SkepError, status: int) -> dict[str, Any]:
        """Return the JSON of an error."""
        return self.body(status, str(error))

    def of_http(self, error: HTTPException) -> Response:
        """Return the answer to what the router refuses: unknown paths and methods."""
        message = self.wording.get(error.status_code, error.detail)
        return self.answer(error.status_code, message, error.headers)
