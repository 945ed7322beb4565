"""The application on the API's port: everything of ours under `/admin/v1` and beside it, all else is Nova's."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from skep.admin.app import AdminApi


class Front:
    """Sends each request to the compute API or to the admin API by the beginning of its path."""

    def __init__(self, compute: ASGIApp, admin: AdminApi) -> None:
        self._compute = compute
        self._admin = admin
        self.under_way = 0
        """Requests to the compute API that are being answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and self._admin.serves(scope["path"].rstrip("/")):
            await self._admin(scope, receive, send)
            return
        self.under_way += 1
        try:
            await self._compute(scope, receive, send)
        finally:
            self.under_way -= 1
