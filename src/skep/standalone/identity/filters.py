"""Query parameters and domain fields that several nouns share."""

from __future__ import annotations

from msgspec import UnsetType
from starlette.requests import Request

from skep.domain.errors import BadRequest
from skep.http.operations import parameter


def flag(request: Request, name: str) -> bool | None:
    """Return a yes-or-no parameter as Keystone reads it: anything but `0` and `false` is yes; None when absent."""
    value = parameter(request, name)
    return None if value is None else value.lower() not in ("0", "false")


def check_same_id(given: str | UnsetType, known: str | None, field: str) -> None:
    """Refuse an id in a body, but where it repeats the one in the path (`known`), as clients that send all they got do.

    Raises BadRequest.
    """
    if isinstance(given, str) and given != known:
        raise BadRequest(f"{field}: cannot be chosen or changed")
