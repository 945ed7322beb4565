"""One request of the admin API as its handler sees it, and how its body is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, Unpack

from skep.admin.services import AdminServices
from skep.domain.context import RequestContext
from skep.domain.credentials import Scope, Token
from skep.domain.errors import BadRequest
from skep.http.bodies import decode
from skep.http.operations import JSON, NO_BODY, HttpOperation, Json, OperationWords, facts_of
from skep.http.urls import whole_number

T = TypeVar("T")
R = TypeVar("R")


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
    known: Mapping[str, Json] = field(default_factory=dict)
    """The parameters that the operation takes, with their schemas."""

    def check_query(self) -> None:
        """Refuse parameters that the operation does not take.

        Raises BadRequest naming the first of them.
        """
        for name in self.query:
            if name not in self.known:
                known = ", ".join(self.known) or "none"
                raise BadRequest(f"Unknown query parameter {name[:80]!r}; known: {known}.")

    def number(self, name: str) -> int | None:
        """Return a parameter as an integer; None when it was not given.

        Raises BadRequest naming it when it is none, or not within the bounds of its schema.
        """
        least, most = self.known[name]["minimum"], self.known[name]["maximum"]
        text = self.query.get(name)
        if text is None:
            return None
        if len(given := self.queries.get(name, ())) > 1:
            raise BadRequest(f"{name}: expected one value, got {len(given)}.")
        number = whole_number(text)
        if number is None or not least <= number <= most:
            raise BadRequest(f"{name}: expected an integer within {least} and {most}, got {text[:80]!r}.")
        return number


Handler: TypeAlias = HttpOperation[[AdminRequest], Any]
"""Returns what is answered as JSON with 200."""


def operation(
    **said: Unpack[OperationWords],
) -> Callable[[Callable[[AdminRequest], Awaitable[R]]], HttpOperation[[AdminRequest], R]]:
    """Say what a handler takes and answers."""

    def decorate(run: Callable[[AdminRequest], Awaitable[R]]) -> HttpOperation[[AdminRequest], R]:
        return HttpOperation(run, facts_of(run, NO_BODY, said))

    return decorate


def takes(
    body: type[T], **said: Unpack[OperationWords]
) -> Callable[[Callable[[AdminRequest, T], Awaitable[R]]], HttpOperation[[AdminRequest], R]]:
    """Say what a handler takes and answers, and of which type its body is; one that may be left out is `{}` then."""

    def decorate(run: Callable[[AdminRequest, T], Awaitable[R]]) -> HttpOperation[[AdminRequest], R]:
        facts = facts_of(run, {JSON: body}, said)

        async def answer(request: AdminRequest) -> R:
            raw = request.body if facts.body_required else request.body or b"{}"
            return await run(request, decode(raw, body, wording=lambda error: f"body: {error}"))

        return HttpOperation(answer, facts)

    return decorate
