"""What both services put around their routes: request ids, JSON errors, one log line per request."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from skep.domain.errors import BadRequest, SkepError
from skep.domain.ids import new_request_id
from skep.http import faults

ServiceT = TypeVar("ServiceT")
Handler: TypeAlias = Callable[[ServiceT, Request], Awaitable[Response]]


def application(routes: Sequence[Route], log: FilteringBoundLogger, challenge: str) -> ASGIApp:
    """Return an ASGI application for the routes.

    `challenge` is the identity service's address, told to whoever sends no valid token.
    """

    def on_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, SkepError)
        response = faults.from_error(error, challenge)
        if response is None:
            raise error
        return response

    def on_http(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return faults.from_http(error)

    inner = Starlette(routes=list(routes), exception_handlers={SkepError: on_error, HTTPException: on_http})
    inner.router.redirect_slashes = False
    return _Envelope(inner, log)


def paths(table: Sequence[tuple[str, str, Handler[ServiceT]]], service: ServiceT) -> list[Route]:
    """Turn a table of (method, path, handler) into routes, one per path, so that a wrong method is a 405."""
    by_path: dict[str, dict[str, Handler[ServiceT]]] = {}
    for method, path, handler in table:
        by_path.setdefault(path, {})[method] = handler
    return [Route(path, _endpoint(methods, service), methods=list(methods)) for path, methods in by_path.items()]


def _endpoint(methods: dict[str, Handler[ServiceT]], service: ServiceT) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await methods[method](service, request)

    return answer


def base_url(request: Request) -> str:
    """Return the address the client used, no slash at its end.

    Raises BadRequest when the Host header is not an address.
    """
    try:
        return str(request.base_url).rstrip("/")
    except ValueError as error:
        raise BadRequest("the Host header is not an address") from error


class _Envelope:
    """Gives each request its id, drops a slash at the path's end, and answers bugs with a bare 500."""

    def __init__(self, inner: ASGIApp, log: FilteringBoundLogger) -> None:
        self._inner = inner
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        request_id = new_request_id()
        scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        scope.setdefault("state", {})["request_id"] = request_id
        begun = time.perf_counter()
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-openstack-request-id", request_id.encode())]
            await send(message)

        said: dict[str, Any] = {"method": scope["method"], "path": scope["path"], "request": request_id}
        try:
            await self._inner(scope, receive, send_with_id)
        except Exception:
            self._log.exception("request failed", **said)
            if status is not None:
                raise
            await faults.fault(500, "An unexpected error prevented the request.")(scope, receive, send_with_id)
        self._log.info("request", **said, status=status, ms=round((time.perf_counter() - begun) * 1000, 1))
