"""The application on the API's port: everything of ours under `/admin/v1` and beside it, and the viewer of
screens; all else is Nova's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from skep.admin.app import AdminApi
from skep.api.console_pages import PAGE
from skep.processes.health import health_app


class Front:
    """Sends each request to the compute API or to the admin API by the beginning of its path."""

    def __init__(self, compute: ASGIApp, admin: AdminApi, consoles: ASGIApp, console_pages: ASGIApp) -> None:
        """`consoles` serves websockets, `console_pages` what browsers show them with."""
        self._compute = compute
        self._admin = admin
        self._consoles = consoles
        self._console_pages = console_pages
        self.under_way = 0
        """Requests to the compute API that are being answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one websocket."""
        if scope["type"] == "websocket":
            await self._consoles(scope, receive, send)
            return
        if scope["type"] == "http" and self._admin.serves(scope["path"].rstrip("/")):
            await self._admin(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"].startswith(PAGE):
            await self._console_pages(scope, receive, send)
            return
        self.under_way += 1
        try:
            await self._compute(scope, receive, send)
        finally:
            self.under_way -= 1


class Door:
    """Stands on the API's port while the process starts: says how it is, and sends everybody else away until later."""

    def __init__(self, reasons: Callable[[], Sequence[str]], metrics: Callable[[], bytes]) -> None:
        self.inside: ASGIApp | None = None
        """What answers once it can."""
        self._health = health_app(reasons, metrics)
        self._paths = {route.path for route in self._health.routes if isinstance(route, Route)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self.inside is not None:
            await self.inside(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1013, "reason": "The service is starting."})
        elif scope["path"] in self._paths:
            await self._health(scope, receive, send)
        else:
            await _STARTING(scope, receive, send)


_STARTING = JSONResponse(
    {"error": {"code": 503, "message": "The service is starting."}}, status_code=503, headers={"Retry-After": "1"}
)
