"""The metadata service as an ASGI application. Everything but the list at its root is for a server that is proven."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from skep.domain.errors import BadRequest, NotFound, TooLarge
from skep.domain.guest_documents.paths import asks_vendors, find, is_password, split, versions
from skep.http.application import application
from skep.http.bodies import read_limited
from skep.http.faults import FaultForm
from skep.metadata.proof import asker
from skep.metadata.servers import Servers

MAX_PASSWORD = 1020
"""Bytes of an encrypted password, as Nova stores them."""

FAULTS = FaultForm(
    body=lambda status, message: {"error": {"code": status, "message": message}},
    bug=lambda request_id: f"Unexpected error; the log names it under {request_id}.",
    wording={405: "The document can only be read."},
)


class MetadataApi:
    """The documents of all servers. `secrets` are what proxies share with it."""

    def __init__(self, servers: Servers, secrets: Sequence[str]) -> None:
        self._servers = servers
        self._secrets = secrets
        routes = [Route("/{path:path}", self._answer, methods=["GET", "POST"])]
        self._inner = application(routes, structlog.get_logger("skep.metadata"), FAULTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._inner(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        words = split(request.path_params["path"])
        if request.method == "POST":
            return await self._told(request, words)
        if not words:
            return _text(versions())
        instance, project = asker(request.headers, self._secrets)
        facts = await self._servers.facts(instance, project, with_vendors=asks_vendors(words))
        document = find(facts, words)
        if document is None:
            raise NotFound("There is no such document.")
        return _text(document, words[-1])

    async def _told(self, request: Request, words: tuple[str, ...]) -> Response:
        """Take the password that a guest tells."""
        instance, project = asker(request.headers, self._secrets)
        if not is_password(words):
            raise HTTPException(405)
        try:
            body = await read_limited(request, MAX_PASSWORD)
            password = body.decode("ascii")
        except (TooLarge, UnicodeDecodeError) as error:
            raise BadRequest(f"password: expected at most {MAX_PASSWORD} ASCII characters") from error
        if not password.replace("\n", "").replace("\r", "").isprintable():
            raise BadRequest("password: expected printable characters, such as base64")
        await self._servers.tell_password(instance, project, password)
        return _text(b"")


def _text(document: bytes, name: str = "") -> Response:
    kind = "application/json" if name.endswith(".json") else "text/plain; charset=utf-8"
    return Response(document, media_type=kind)
