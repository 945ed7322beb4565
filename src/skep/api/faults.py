"""Errors as the API shows them: `{"itemNotFound": {"code": 404, "message": "..."}}`, Nova's names for each status."""

from __future__ import annotations

from dataclasses import dataclass

from skep.api.microversions import NotAcceptable
from skep.api.routing import MethodNotAllowed
from skep.domain import errors
from skep.http import faults as statuses

NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
"""The key of the body; any other status is a `computeFault`."""


@dataclass(frozen=True, slots=True)
class FaultAnswer:
    """One error answer."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    retry_after: int | None = None
    servers: tuple[str, ...] = ()
    """The servers that there would be, where nobody knows whether they were stored."""

    def body(self) -> dict[str, object]:
        """Return the JSON of it."""
        inner: dict[str, object] = {"code": self.status, "message": self.message}
        if self.retry_after is not None and self.status in (413, 429):
            inner["retryAfter"] = str(self.retry_after)
        if self.servers:
            inner["servers"] = self.servers
        return {NAMES.get(self.status, "computeFault"): inner}


_STATUS: tuple[tuple[type[errors.SkepError], int], ...] = (
    (MethodNotAllowed, 405),
    (NotAcceptable, 406),
    (errors.OutcomeUnknown, 504),
)
"""Beside those of all services: what only this API raises or tells apart."""


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error; 500 for what nobody foresaw."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return statuses.status_of(error) or 500


def fault_of(error: BaseException, request_id: str) -> FaultAnswer:
    """Return the answer to an error. The text of an unforeseen one stays in the log."""
    status = status_of(error)
    if status == 500:
        return FaultAnswer(500, f"Unexpected API Error. The log names what happened under request id {request_id}.")
    message = str(error)
    if isinstance(error, MethodNotAllowed):
        return FaultAnswer(status, message, ((b"allow", ", ".join(error.allowed).encode()),))
    if isinstance(error, errors.OutcomeUnknown):
        return FaultAnswer(status, message, servers=error.servers)
    if isinstance(error, errors.Unavailable | errors.TooManyRequests):
        after = error.retry_after
        return FaultAnswer(status, message, ((b"retry-after", str(after).encode()),), after)
    return FaultAnswer(status, message)
