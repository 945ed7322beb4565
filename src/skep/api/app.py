"""The ASGI application: from bytes to a handler and back, the same few steps for every request.

Order, as in Nova: token, limits, microversion, route, project in the path, body, fields, policy, handler. Every answer
has its request id and microversion, every error is JSON, and what a client sent never ends in a 5xx.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from skep.api import bodies, microversions, versions
from skep.api.auth import UNAUTHENTICATED, authenticate, challenge, is_unheard_of
from skep.api.faults import fault_of, status_of
from skep.api.links import Links
from skep.api.requests import Answer, ApiRequest
from skep.api.routing import Match, Route, Router
from skep.api.services import ApiServices
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, NotFound, Unauthenticated
from skep.domain.ids import RequestId, new_request_id
from skep.http import urls
from skep.http.application import MAX_LOGGED_PATH, lifespan
from skep.http.bodies import receive_body
from skep.http.headers import Headers, by_name, global_request_id
from skep.telemetry import tracing

log = structlog.get_logger("skep.api")

PREFIXES = ("v2.1", "v2")

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Exchange:
    """One request while it is served."""

    method: str
    scope: Scope
    headers: dict[bytes, bytes]
    request_id: RequestId
    started: float
    version: int = microversions.MINIMUM
    versioned: bool = False
    """Whether the answer names a microversion: not for `/`, `/v2` and their documents."""
    template: str = "-"
    """The route's path; `-` when none was found."""
    context: RequestContext | None = None
    status: int = 500
    span: tracing.Span | None = None
    """What its work is part of, where requests are traced."""
    extra: Headers = field(default_factory=list)


class ComputeApi:
    """The compute API as an ASGI application."""

    def __init__(self, services: ApiServices, routes: Iterable[Route]) -> None:
        self.services = services
        self.router = Router(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"the compute API does not speak {scope['type']}")
        exchange = _Exchange(
            method=scope["method"],
            scope=scope,
            headers=by_name(scope["headers"]),
            request_id=new_request_id(),
            started=time.perf_counter(),
        )
        with tracing.request(exchange.headers.get(b"traceparent", b"").decode("latin-1")) as exchange.span:
            payload = await self._answer(exchange, receive)
            await _send(exchange, payload, send)
            self._account(exchange)

    async def _answer(self, exchange: _Exchange, receive: Receive) -> bytes:
        """Serve and return the body of the answer; what goes wrong becomes an error answer."""
        try:
            segments = urls.segments(exchange.scope)
            if len(segments) < 2 or segments[0] not in PREFIXES:
                return self._document(exchange, segments)
            exchange.versioned = segments[0] == "v2.1"
            return await self._serve(exchange, segments, receive)
        except Exception as error:  # noqa: BLE001 - whatever happens, the client gets an answer; 500 is logged whole
            return self._refuse(exchange, error)

    def _document(self, exchange: _Exchange, segments: list[str]) -> bytes:
        """Answer with a version document; no token is needed."""
        self.services.limits.count_address(exchange.scope)
        if exchange.method not in ("GET", "HEAD") or (segments and segments[0] not in PREFIXES):
            raise NotFound("The resource could not be found.")
        base = self._base(exchange)
        exchange.status = 200
        exchange.template = f"/{segments[0]}" if segments else "/"
        exchange.versioned = exchange.template == "/v2.1"
        return _encode(versions.document(base, exchange.template) if segments else versions.root(base))

    async def _serve(self, exchange: _Exchange, segments: list[str], receive: Receive) -> bytes:
        context = exchange.context = await self._authenticated(exchange, segments)
        with self.services.limits.project(context):
            return await self._served(exchange, context, segments, receive)

    async def _authenticated(self, exchange: _Exchange, segments: list[str]) -> RequestContext:
        """Return who asks; a request without a valid token counts for its address."""
        services = self.services
        if is_unheard_of(services.identity, exchange.headers):
            # An address that made up so many tokens has no further one looked up.
            services.limits.check_address(exchange.scope)
        path = "/" + "/".join(segments)  # as it is routed: slashes at its end mean nothing
        try:
            return await authenticate(services.identity, exchange.headers, exchange.request_id, exchange.method, path)
        except Unauthenticated:
            services.limits.count_address(exchange.scope)
            raise

    async def _served(
        self, exchange: _Exchange, context: RequestContext, segments: list[str], receive: Receive
    ) -> bytes:
        if exchange.span is not None:
            context = exchange.context = msgspec.structs.replace(context, traceparent=exchange.span.traceparent)
        if exchange.versioned:
            exchange.version = microversions.requested(exchange.headers)
        method = "GET" if exchange.method == "HEAD" else exchange.method
        if urls.ends_with_slash(exchange.scope):
            # An id was left out behind the last slash; the collection before it is not meant.
            raise NotFound("The resource could not be found.")
        match = self.router.find(method, segments[1:], exchange.version)
        exchange.template = match.routes[0].path
        if match.project_id is not None and match.project_id != context.project_id:
            raise BadRequest(
                f"Malformed request URL: URL's project_id '{match.project_id}' doesn't match Context's "
                f"project_id '{context.project_id}'"
            )
        route, body = await self._read(exchange, match, receive)
        raw_query = urls.query(exchange.scope)
        request = ApiRequest(
            context=context,
            version=exchange.version,
            params=match.params,
            query=route.query.read(raw_query, exchange.version),
            raw_query=raw_query,
            body=body,
            services=self.services,
            links=Links(self._base(exchange), f"/{segments[0]}", f"/{match.project_id}" if match.project_id else ""),
            rule=route.rule,
            token=exchange.headers[b"x-auth-token"].decode("latin-1"),
            idempotency_key=_text(exchange.headers.get(b"idempotency-key")),
        )
        answer = await self._handle(route, request)
        return _render(exchange, route, answer)

    async def _read(self, exchange: _Exchange, match: Match, receive: Receive) -> tuple[Route, Any]:
        """Read the body where the route takes one, and say which row it is for."""
        if not match.by_action and match.routes[0].body is None:
            return match.route(), None
        raw = await receive_body(
            receive,
            exchange.headers.get(b"content-length"),
            self.services.settings.max_body_bytes,
            too_large="Request is too large.",
        )
        value = bodies.decode(raw, exchange.headers)
        route = match.route(_action(value) if match.by_action else None)
        if route.action is not None:
            exchange.template = f"{route.path} {route.action}"
        return route, route.body.read(value, exchange.version) if route.body is not None else value

    async def _handle(self, route: Route, request: ApiRequest) -> Answer:
        if route.target == "caller":
            request.authorize()
        if route.intake and request.idempotency_key is None:
            # Of one with a key the handler knows first whether it was stored already.
            request.refuse_overload()
        answer = await route.handler(request)
        if not request.authorized:
            raise RuntimeError(f"{route.method} {route.path} answered without asking policy")
        return answer

    def _refuse(self, exchange: _Exchange, error: Exception) -> bytes:
        exchange.status = status_of(error)
        if exchange.status == 500:
            log.error(
                "request failed",
                request=exchange.request_id,
                method=exchange.method,
                path=exchange.template,
                exc_info=error,
            )
        if exchange.status == 401:
            exchange.extra.append(challenge(self.services.settings.identity_url))
            return _encode(UNAUTHENTICATED)
        fault = fault_of(error, exchange.request_id)
        exchange.extra.extend(fault.headers)
        return _encode(fault.body())

    def _base(self, exchange: _Exchange) -> str:
        """Return scheme and host that links begin with."""
        public = self.services.settings.public_url
        if public is not None:
            return public.rstrip("/")
        host = exchange.headers.get(b"host", b"localhost").decode("latin-1")
        return f"{exchange.scope.get('scheme', 'http')}://{host}"

    def _account(self, exchange: _Exchange) -> None:
        seconds = time.perf_counter() - exchange.started
        self.services.observe(exchange.method, exchange.template, exchange.status, seconds)
        context = exchange.context
        if exchange.span is not None:
            what: dict[str, str | int] = {"request": exchange.request_id, "status": exchange.status}
            exchange.span.name(f"{exchange.method} {exchange.template}", what)
            if exchange.status >= 500:
                exchange.span.fail(str(exchange.status))
        log.info(
            "request",
            request=exchange.request_id,
            global_request=global_request_id(_text(exchange.headers.get(b"x-openstack-request-id"))),
            method=exchange.method,
            path=exchange.scope["path"][:MAX_LOGGED_PATH],
            status=exchange.status,
            ms=round(seconds * 1000, 1),
            version=microversions.text(exchange.version),
            project=context.project_id if context else None,
            user=context.user_id if context else None,
        )


def _action(value: Any) -> str:
    """Return which action a body asks for: its only key."""
    if not isinstance(value, dict):
        raise BadRequest(bodies.MALFORMED)
    if len(value) != 1:
        raise BadRequest(f"{bodies.MALFORMED}: exactly one action is expected")
    return str(next(iter(value)))


def _render(exchange: _Exchange, route: Route, answer: Answer) -> bytes:
    exchange.status = route.status if answer.status is None else answer.status
    for name, value in answer.headers.items():
        exchange.extra.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    if answer.body is None:
        return b""
    body = answer.body if route.response is None else route.response.apply(answer.body, exchange.version)
    return _encode(body)


async def _send(exchange: _Exchange, payload: bytes, send: Send) -> None:
    request_id = exchange.request_id.encode()
    headers: Headers = [
        (b"x-openstack-request-id", request_id),
        (b"x-compute-request-id", request_id),
    ]
    if exchange.status != 204:
        headers.append((b"content-length", str(len(payload)).encode()))
    if payload:
        headers.append((b"content-type", b"application/json"))
    if exchange.versioned:
        headers += microversions.answer_headers(exchange.version)
    headers += exchange.extra
    await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if exchange.method == "HEAD" else payload})


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
