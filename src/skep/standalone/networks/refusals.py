"""Errors as Neutron words them: `{"NeutronError": {"type", "message", "detail"}}`. Clients act on the type."""

from __future__ import annotations

from typing import Any

from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, SkepError
from skep.http.faults import FaultForm

TYPES = {
    400: "HTTPBadRequest",
    401: "Unauthorized",
    403: "PolicyNotAuthorized",
    404: "HTTPNotFound",
    405: "HTTPMethodNotAllowed",
    409: "Conflict",
    412: "RevisionNumberConstraintFailed",
    413: "HTTPRequestEntityTooLarge",
    415: "HTTPUnsupportedMediaType",
    429: "HTTPTooManyRequests",
    500: "HTTPInternalServerError",
    503: "ServiceUnavailable",
}
"""What an error is called that has no name of its own, by its status."""


class InvalidInput(BadRequest):
    """A value that cannot be (400)."""

    def __init__(self, text: str) -> None:
        super().__init__(f"Invalid input for operation: {text}.")


class AutomaticAddresses(BadRequest):
    """An address that is chosen where each port makes its own (400)."""

    type = "AllocationOnAutoAddressSubnet"

    def __init__(self, address: object, subnet_id: str) -> None:
        super().__init__(
            f"fixed_ips: address {address} cannot be chosen on subnet {subnet_id}, where a port makes its address of "
            "its mac_address; name the subnet alone."
        )


class Missing(NotFound):
    """What is named and is not there, or is not the caller's to see (404)."""

    def __init__(self, noun: str, resource_id: str) -> None:
        self.type = f"{''.join(word[:1].upper() + word[1:] for word in noun.split())}NotFound"
        super().__init__(f"{noun} {resource_id} could not be found.")


class InTheWay(Conflict):
    """What cannot be done as things are (409)."""

    def __init__(self, type_: str, text: str) -> None:
        self.type = type_
        super().__init__(text)


class NotPermitted(Forbidden):
    """What the caller's roles do not let him do (403)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is disallowed by policy")


def _body(type_: str, message: str) -> dict[str, Any]:
    return {"NeutronError": {"type": type_, "message": message, "detail": ""}}


def _by_status(status: int, message: str) -> dict[str, Any]:
    return _body(TYPES.get(status, "HTTPError"), message)


class NeutronFaults(FaultForm):
    """How errors are answered."""

    def worded(self, error: SkepError, status: int) -> dict[str, Any]:
        """Return the JSON of an error, with its name."""
        named = "InvalidInput" if isinstance(error, InvalidInput) else getattr(error, "type", None)
        return _body(named or TYPES.get(status, "HTTPError"), str(error))


def form(identity_url: str) -> NeutronFaults:
    """Return how errors are worded; `identity_url` is told to a client that sends no valid token."""
    return NeutronFaults(_by_status, lambda _request: "Request Failed: internal server error.", identity_url)
