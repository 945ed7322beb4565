"""The admin API as an ASGI application: `/admin/v1`, `/healthz`, `/readyz`, `/metrics`.

Answers are JSON; errors read `{"error": {"code": 404, "message": "..."}}`. Every route asks for the role `admin` but
for the placement of a server, which its owner may see without the names of hosts, and for what a program may do with a
credential that is bound to a cell or a namespace.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from skep.admin import (
    audit,
    capacity,
    cells,
    claims,
    clocks,
    credentials,
    documents,
    enrolments,
    fences,
    health,
    host_states,
    hosts,
    namespace_states,
    namespaces,
    placement,
    recovery,
)
from skep.admin.callers import Caller, authenticate, bearer
from skep.admin.requests import MAX_BATCH_BODY, MAX_BODY, AdminRequest, Handler
from skep.admin.services import AdminServices
from skep.domain import errors
from skep.domain.context import RequestContext
from skep.domain.credentials import ScopeKind
from skep.domain.ids import new_request_id

PREFIX = "/admin/v1"
OPEN_PATHS = ("/healthz", "/readyz", "/metrics")
"""Answered without a token: load balancers and Prometheus have none, and no name of a host or user is in them."""

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/cells", cells.index),
    ("POST", "/cells", cells.create),
    ("GET", "/cells/{name}", cells.show),
    ("PATCH", "/cells/{name}", cells.update),
    ("DELETE", "/cells/{name}", cells.delete),
    ("GET", "/hosts", hosts.index),
    ("GET", "/hosts/{host}", hosts.show),
    ("PATCH", "/hosts/{host}", hosts.update),
    ("POST", "/hosts/{host}/fence", fences.fence),
    ("DELETE", "/hosts/{host}/fence", fences.unfence),
    ("DELETE", "/hosts/{host}/key", enrolments.release_key),
    ("GET", "/recovery", recovery.show),
    ("POST", "/recovery/hosts/{host}/release", recovery.release),
    ("POST", "/recovery/servers/{id}", recovery.decide),
    ("GET", "/servers/{id}/placement", placement.show),
    ("POST", "/placement/dry-run", placement.dry_run),
    ("POST", "/select-destinations", placement.select),
    ("GET", "/capacity", capacity.show),
    ("GET", "/host-states", host_states.index),
    ("POST", "/host-states", host_states.update),
    ("POST", "/claims/assert", claims.assert_),
    ("POST", "/claims/release", claims.release),
    ("GET", "/cells/{name}/credentials", credentials.index_of_cell),
    ("POST", "/cells/{name}/credentials", credentials.create_of_cell),
    ("DELETE", "/cells/{name}/credentials/{id}", credentials.delete_of_cell),
    ("GET", "/cells/{name}/enrolment-tokens", enrolments.tokens),
    ("POST", "/cells/{name}/enrolment-tokens", enrolments.create_token),
    ("DELETE", "/cells/{name}/enrolment-tokens/{id}", enrolments.delete_token),
    ("POST", "/enrolments", enrolments.enrol),
    ("GET", "/namespaces", namespaces.index),
    ("GET", "/namespaces/{name}", namespaces.show),
    ("PUT", "/namespaces/{name}", namespaces.put),
    ("DELETE", "/namespaces/{name}", namespaces.delete),
    ("GET", "/namespaces/{name}/credentials", credentials.index_of_namespace),
    ("POST", "/namespaces/{name}/credentials", credentials.create_of_namespace),
    ("DELETE", "/namespaces/{name}/credentials/{id}", credentials.delete_of_namespace),
    ("GET", "/namespaces/{name}/states", namespace_states.index),
    ("PUT", "/namespaces/{name}/states", namespace_states.update),
    ("GET", "/namespaces/{name}/states/{key}", namespace_states.show),
    ("DELETE", "/namespaces/{name}/states/{key}", namespace_states.delete),
    ("GET", "/audit", audit.show),
    ("POST", "/audit/repair", audit.mend),
    ("GET", "/clocks", clocks.index),
    ("GET", "/openapi.json", documents.openapi),
)
"""Method, path below the prefix, what answers. HEAD goes where GET goes."""

FOR_OWNERS = frozenset({placement.show})
"""Handlers that decide themselves who may see what; all others are for admins."""

FOR_NEW_HOSTS = frozenset({enrolments.enrol})
"""Handlers for who has an enrolment token and is otherwise nobody."""

FOR_CREDENTIALS: dict[Handler, ScopeKind] = {
    host_states.index: "cell",
    host_states.update: "cell",
    claims.assert_: "cell",
    claims.release: "cell",
    namespaces.show: "namespace",
    namespace_states.index: "namespace",
    namespace_states.update: "namespace",
    namespace_states.show: "namespace",
    namespace_states.delete: "namespace",
}
"""What a program may do with a credential, and with which kind. Each handler sees to what the credential is bound."""

WITH_BATCHES = frozenset({host_states.update, claims.assert_, claims.release, namespace_states.update})
"""Handlers that take many states in one body."""

_STATUS: tuple[tuple[type[errors.SkepError], int], ...] = (
    (errors.BadRequest, 400),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.TooLarge, 413),
    (errors.Unavailable, 503),
)

log = structlog.get_logger("skep.admin")


class AdminApi:
    """The admin API. `serves` says which paths of a shared listener are its own."""

    def __init__(self, services: AdminServices) -> None:
        self.services = services
        by_path: dict[str, dict[str, Handler]] = {}
        for method, path, handler in ROUTES:
            by_path.setdefault(path, {})[method] = handler
        routes = [
            Route(PREFIX + path, self._endpoint(handlers), methods=list(handlers)) for path, handlers in by_path.items()
        ]
        routes += [
            Route("/healthz", health.alive, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
        ]
        self._inner = Starlette(
            routes=routes,
            exception_handlers={HTTPException: _on_http, errors.SkepError: _on_error, Exception: _on_bug},
        )
        self._inner.router.redirect_slashes = False

    @staticmethod
    def serves(path: str) -> bool:
        """Tell whether a request for `path` is for this application."""
        return path in OPEN_PATHS or path == PREFIX or path.startswith(f"{PREFIX}/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
            scope["state"] = {"request_id": new_request_id(), "started": time.perf_counter()}
        try:
            await self._inner(scope, receive, send)
        except Exception:  # noqa: BLE001 - answered and logged by `_on_bug`; the server need not hear of it again
            return

    def _endpoint(self, handlers: dict[str, Handler]) -> Any:
        async def answer(request: Request) -> Response:
            handler = handlers["GET" if request.method == "HEAD" else request.method]
            if handler in FOR_NEW_HOSTS:
                caller = bearer(request)
            else:
                caller = await authenticate(self.services, request)
                _authorize(handler, caller)
            found = await handler(
                AdminRequest(
                    services=self.services,
                    context=caller.context,
                    params={name: str(value) for name, value in request.path_params.items()},
                    query=dict(request.query_params),
                    body=await _body(request, MAX_BATCH_BODY if handler in WITH_BATCHES else MAX_BODY),
                    queries={name: tuple(request.query_params.getlist(name)) for name in request.query_params},
                    scope=caller.scope,
                    token=caller.token,
                )
            )
            _account(request, 200, caller.context)
            return _json(request, 200, found)

        return answer

    async def _ready(self, request: Request) -> Response:
        reasons, warnings = await health.readiness(self.services)
        body = {"ready": not reasons, "reasons": reasons, "warnings": warnings}
        return _json(request, 503 if reasons else 200, body)

    async def _metrics(self, _request: Request) -> Response:
        return Response(self.services.metrics(), media_type=health.METRICS_TYPE)


def _authorize(handler: Handler, caller: Caller) -> None:
    """Raise Forbidden when such a caller may not do this at all."""
    if caller.scope is not None:
        if FOR_CREDENTIALS.get(handler) != caller.scope.kind:
            raise errors.Forbidden(f"A credential that is bound to a {caller.scope.kind} does not allow this.")
    elif handler not in FOR_OWNERS and not caller.context.is_admin:
        raise errors.Forbidden("This needs the role admin.")


async def _body(request: Request, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise errors.TooLarge(f"The request body is larger than {most} bytes.")
        parts.append(part)
    return b"".join(parts)


def _json(request: Request, status: int, value: Any) -> Response:
    headers = {"X-Openstack-Request-Id": request.state.request_id}
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def _error(request: Request, status: int, message: str) -> Response:
    _account(request, status, None)
    return _json(request, status, {"error": {"code": status, "message": message}})


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {404: "There is no such resource.", 405: "The resource does not take this method."}
    response = _error(request, error.status_code, message.get(error.status_code, error.detail))
    response.headers.update(error.headers or {})
    return response


async def _on_error(request: Request, error: Exception) -> Response:
    for kind, status in _STATUS:
        if isinstance(error, kind):
            response = _error(request, status, str(error))
            if isinstance(error, errors.Unavailable):
                response.headers["Retry-After"] = str(error.retry_after)
            return response
    return await _on_bug(request, error)


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("request failed", request=request.state.request_id, path=request.url.path, exc_info=error)
    return _error(request, 500, f"Unexpected error; the log names it under {request.state.request_id}.")


def _account(request: Request, status: int, context: RequestContext | None) -> None:
    log.info(
        "request",
        request=request.state.request_id,
        method=request.method,
        path=request.url.path[:200],
        status=status,
        ms=round((time.perf_counter() - request.state.started) * 1000, 1),
        project=context.project_id if context else None,
        user=context.user_id if context else None,
    )
