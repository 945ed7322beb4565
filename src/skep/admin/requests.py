"""One request of the admin API as its handler sees it, and how its body is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from skep.admin.services import AdminServices
from skep.domain.context import RequestContext
from skep.domain.credentials import Scope, Token
from skep.domain.errors import BadRequest
from skep.http.bodies import decode
from skep.http.urls import whole_number

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
    queries: Mapping[str, tuple[str, ...]]
    """All values of each parameter; `query` has the last."""
    scope: Scope | None = None
    """What the caller's credential is bound to; None for users."""
    token: Token | None = None
    """Of enrolments: what the caller shows, whoever it is."""

    def read_body(self, wanted: type[T]) -> T:
        """Return the body as `wanted`.

        Raises BadRequest naming the field when it is something else.
        """
        return decode(self.body, wanted, wording=lambda error: f"body: {error}")

    def only_query(self, *known: str) -> None:
        """Refuse parameters that the route does not know.

        Raises BadRequest naming the first of them.
        """
        for name in self.query:
            if name not in known:
                raise BadRequest(f"Unknown query parameter {name[:80]!r}; known: {', '.join(known) or 'none'}.")

    def number(self, name: str, least: int, most: int) -> int | None:
        """Return a parameter as an integer; None when it was not given.

        Raises BadRequest naming it when it is none, or not within its bounds.
        """
        text = self.query.get(name)
        if text is None:
            return None
        number = whole_number(text)
        if number is None or not least <= number <= most:
            raise BadRequest(f"{name}: expected an integer within {least} and {most}, got {text[:80]!r}.")
        return number


Handler = Callable[[AdminRequest], Awaitable[Any]]
"""Returns what is answered as JSON with 200."""
