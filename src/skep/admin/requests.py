"""One request of the admin API as its handler sees it, and how its body is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from skep.admin.services import AdminServices
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest

MAX_BODY = 65_536
"""Bytes; no body of this API has a hundredth of it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """Who asks for what."""

    services: AdminServices
    context: RequestContext
    params: Mapping[str, str]
    """The words of the path that a route leaves open."""
    query: Mapping[str, str]
    body: bytes

    def read_body(self, wanted: type[T]) -> T:
        """Return the body as `wanted`.

        Raises BadRequest naming the field when it is something else.
        """
        try:
            return msgspec.json.decode(self.body, type=wanted)
        except msgspec.ValidationError as error:
            raise BadRequest(f"Invalid request body: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadRequest("The request body is not JSON.") from None

    def only_query(self, *known: str) -> None:
        """Refuse parameters that the route does not know.

        Raises BadRequest naming the first of them.
        """
        for name in self.query:
            if name not in known:
                raise BadRequest(f"Unknown query parameter {name[:80]!r}; known: {', '.join(known) or 'none'}.")


Handler = Callable[[AdminRequest], Awaitable[Any]]
"""Returns what is answered as JSON with 200."""
