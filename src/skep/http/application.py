"""What services put around their routes: request ids, errors in the form of the API, one log line for each request."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from skep.domain.errors import SkepError
from skep.domain.ids import new_request_id
from skep.http import urls
from skep.http.faults import FaultForm

MAX_LOGGED_PATH = 200
"""Characters."""

ServiceT = TypeVar("ServiceT")
Handler: TypeAlias = Callable[[ServiceT, Request], Awaitable[Response]]


def application(
    routes: Sequence[Route], log: FilteringBoundLogger, form: FaultForm, *, quiet: Collection[str] = ()
) -> ASGIApp:
    """Return an ASGI application for the routes. What goes well at the paths `quiet` is not logged."""

    async def on_bug(request: Request, error: Exception) -> Response:
        request_id = request.state.request_id
        path = request.scope["path"][:MAX_LOGGED_PATH]
        log.error("request failed", request=request_id, method=request.method, path=path, exc_info=error)
        return form.answer(500, form.bug(request_id))

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, SkepError)
        return form.of_error(error) or await on_bug(request, error)

    def on_http(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return form.of_http(error)

    handlers: dict[Any, Any] = {SkepError: on_error, HTTPException: on_http, Exception: on_bug}
    inner = Starlette(routes=list(routes), exception_handlers=handlers)
    inner.router.redirect_slashes = False
    return _Envelope(inner, log, frozenset(quiet))


def paths(table: Sequence[tuple[str, str, Handler[ServiceT]]], service: ServiceT) -> list[Route]:
    """Turn a table of (method, path, handler) into routes, one per path, so that a wrong method is a 405.

    No handler is asked about a URL that has a NUL or is not UTF-8.
    """
    by_path: dict[str, dict[str, Handler[ServiceT]]] = {}
    for method, path, handler in table:
        by_path.setdefault(path, {})[method] = handler
    return [Route(path, _endpoint(methods, service), methods=list(methods)) for path, methods in by_path.items()]


def _endpoint(methods: dict[str, Handler[ServiceT]], service: ServiceT) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        urls.segments(request.scope)
        urls.query(request.scope)
        method = "GET" if request.method == "HEAD" else request.method
        return await methods[method](service, request)

    return answer


async def lifespan(receive: Receive, send: Send) -> None:
    """Answer the server's start and stop; what a service works with is started by whoever made it."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


class _Envelope:
    """Gives each request its id, drops a slash at the path's end, and logs the answer.

    A handler may put `caller`, a RequestContext, into the request's state: the line then names project and user.
    """

    def __init__(self, inner: ASGIApp, log: FilteringBoundLogger, quiet: frozenset[str]) -> None:
        self._inner = inner
        self._log = log
        self._quiet = quiet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        request_id = new_request_id()
        scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        state = scope["state"] = {**scope.get("state", {}), "request_id": request_id}
        begun = time.perf_counter()
        status = 500
        whole = False

        async def send_with_id(message: Message) -> None:
            nonlocal status, whole
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-openstack-request-id", request_id.encode())]
            else:
                whole = not message.get("more_body", False)
            await send(message)

        try:
            await self._inner(scope, receive, send_with_id)
        except Exception:
            # Answered and logged as a bug; only of half an answer the server has to hear, to cut the connection.
            if not whole:
                raise
        if scope["path"] not in self._quiet or scope["method"] not in ("GET", "HEAD"):
            seconds = time.perf_counter() - begun
            self._log.info("request", **_facts(scope, state), status=status, ms=round(seconds * 1000, 1))


def _facts(scope: Scope, state: dict[str, Any]) -> dict[str, Any]:
    facts = {
        "request": state["request_id"],
        "method": scope["method"],
        "path": scope["path"][:MAX_LOGGED_PATH],
    }
    caller = state.get("caller")
    return facts if caller is None else {**facts, "project": caller.project_id, "user": caller.user_id}
