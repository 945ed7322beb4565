"""Operations: handlers with what their documents say of them.

A handler reads its body and its parameters by what is said here, and its answer is of the type that it is annotated
with, so that a document cannot say anything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack, get_args, get_origin, get_type_hints

from starlette.requests import Request
from starlette.responses import Response

from skep.http.answers import JsonResponse
from skep.http.bodies import read_json

P = ParamSpec("P")
R = TypeVar("R")
ServiceT = TypeVar("ServiceT")
BodyT = TypeVar("BodyT")
Json: TypeAlias = dict[str, Any]

JSON = "application/json"
NO_BODY: Mapping[str, Any] = MappingProxyType({})
STRING: Json = {"type": "string"}
"""The schema of a parameter of any text."""
BOOLEAN: Json = {"type": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is said of an operation, beside its method and its path."""

    summary: str = ""
    query: Mapping[str, Json]
    """Its parameters, with their schemas."""
    headers: tuple[str, ...] = ()
    """Which it reads, beside those of all operations."""
    bodies: Mapping[str, Any]
    """Media type -> the type or the schema of such a body; none: it takes no body."""
    body_required: bool = True
    statuses: tuple[int, ...] = (200,)
    """Of successes; one of 204 has no content."""
    shows: Any
    """The type or the schema of its JSON."""
    gives: str = JSON
    """Media type of what it answers."""
    faults: frozenset[int] = frozenset()
    """Statuses of what it refuses, beside those that follow from its form."""
    open: bool = False
    """Whether it is for everybody, without a token."""


@dataclass(frozen=True, slots=True, eq=False)
class HttpOperation(Generic[P, R]):
    """A handler, and what its document says of it."""

    run: Callable[P, Awaitable[R]]
    facts: Facts

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Answer one request."""
        return await self.run(*args, **kwargs)


Served: TypeAlias = HttpOperation[[ServiceT, Request], Response]
"""An operation of a service whose handlers read their requests themselves."""
Read: TypeAlias = Callable[[], Awaitable[BodyT]]
"""Reads the body of a request. Raises BadRequest, TooLarge, UnsupportedMediaType."""


def whole(least: int, most: int) -> Json:
    """Return the schema of a parameter that is a whole number."""
    return {"type": "integer", "minimum": least, "maximum": most}


class OperationWords(TypedDict, total=False):
    """What a decorator is told of a handler. Names of parameters alone stand for texts.

    What it answers is of the type that it returns; `shows` is the schema where that says too little.
    """

    query: Mapping[str, Json] | Collection[str]
    headers: tuple[str, ...]
    body_required: bool
    status: int | tuple[int, ...]
    shows: Json
    gives: str
    faults: Collection[int]
    open_: bool


def facts_of(run: Callable[..., Any], bodies: Mapping[str, Any], said: OperationWords) -> Facts:
    """Return what is said of a handler."""
    lines = (run.__doc__ or "").strip().splitlines()
    query, status = said.get("query", ()), said.get("status", 200)
    return Facts(
        summary=lines[0] if lines else "",
        query=query if isinstance(query, Mapping) else dict.fromkeys(query, STRING),
        headers=said.get("headers", ()),
        bodies=bodies,
        body_required=said.get("body_required", True),
        statuses=(status,) if isinstance(status, int) else status,
        shows=said["shows"] if "shows" in said else _answered(run),
        gives=said.get("gives", JSON),
        faults=frozenset(said.get("faults", ())),
        open=said.get("open_", False),
    )


def _answered(run: Callable[..., Any]) -> Any:
    """Return the type of a handler's answer, or the schema of anything where it returns no JSON of a type."""
    hint = get_type_hints(run)["return"]
    if get_origin(hint) is JsonResponse:
        return get_args(hint)[0]
    return {} if isinstance(hint, type) and issubclass(hint, Response) else hint


def operation(
    bodies: Mapping[str, Any] = NO_BODY, **said: Unpack[OperationWords]
) -> Callable[[Callable[[ServiceT, Request], Awaitable[Response]]], Served[ServiceT]]:
    """Say what a handler answers. `bodies`: media types that it reads itself, and the type or the schema of each."""

    def decorate(run: Callable[[ServiceT, Request], Awaitable[Response]]) -> Served[ServiceT]:
        facts = facts_of(run, bodies, said)

        async def answer(service: ServiceT, request: Request) -> Response:
            request.state.known_parameters = facts.query
            return await run(service, request)

        return HttpOperation(answer, facts)

    return decorate


def takes(
    body: type[BodyT], *, schema: Json | None = None, **said: Unpack[OperationWords]
) -> Callable[[Callable[[ServiceT, Request, Read[BodyT]], Awaitable[Response]]], Served[ServiceT]]:
    """Say what a handler answers, and of which type the JSON is that it reads. `schema`: where that says too little."""

    def decorate(run: Callable[[ServiceT, Request, Read[BodyT]], Awaitable[Response]]) -> Served[ServiceT]:
        facts = facts_of(run, {JSON: schema or body}, said)

        async def answer(service: ServiceT, request: Request) -> Response:
            request.state.known_parameters = facts.query
            return await run(service, request, partial(read_json, request, body))

        return HttpOperation(answer, facts)

    return decorate


def parameter(request: Request, name: str) -> str | None:
    """Return a parameter of the query that the operation is said to have; None when it is absent."""
    assert name in request.state.known_parameters, f"undocumented parameter {name}"
    return request.query_params.get(name)
