"""The admin API as an ASGI application: `/admin/v1`, `/healthz`, `/readyz`, `/metrics`, and `/v1` for users.

Answers are JSON; errors read `{"error": {"code": 404, "message": "..."}}`. Every route asks for the role `admin` but
for the placement of a server, which its owner may see without the names of hosts, and for what a program may do with a
credential that is bound to a cell or a namespace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import structlog
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
    events,
    fences,
    health,
    host_states,
    hosts,
    namespace_states,
    namespaces,
    placement,
    plans,
    recovery,
)
from skep.admin.callers import Caller, authenticate, new_host
from skep.admin.event_streams import LAST_EVENT, is_wanted
from skep.admin.requests import AdminRequest, Handler
from skep.admin.services import AdminServices
from skep.domain.credentials import ScopeKind
from skep.domain.errors import Forbidden
from skep.http.answers import json_response
from skep.http.application import application, paths
from skep.http.bodies import read_limited
from skep.http.faults import FaultForm
from skep.http.limits import MAX_BATCH_BODY, MAX_SMALL_BODY

PREFIX = "/admin/v1"
USER_PREFIX = "/v1"
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
    ("GET", "/hosts/{host}/plan", plans.show),
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
    ("GET", "/events", events.index),
    ("GET", "/openapi.json", documents.openapi),
)
"""Method, path below the prefix, what answers. HEAD goes where GET goes."""

USER_ROUTES: tuple[tuple[str, str, Handler], ...] = (("GET", "/events", events.of_project),)
"""What Skep serves to users beside the compute API: method, path below `USER_PREFIX`, what answers."""

OF_USERS = frozenset(does for _method, _path, does in USER_ROUTES)
"""Handlers whose requests count for their projects, as those of the compute API.

Of others that owners may ask too, theirs count, and those of operators do not.
"""

FOR_OWNERS = frozenset({placement.show, events.of_project})
"""Handlers that decide themselves who may see what; all others are for admins."""

STREAMS: dict[Handler, Callable[[AdminRequest, str | None], Awaitable[Response]]] = {
    events.index: events.stream_of_all,
    events.of_project: events.stream_of_project,
}
"""What tells a reader who accepts `text/event-stream` the same as a handler, as it comes."""

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

FAULTS = FaultForm(
    body=lambda status, message: {"error": {"code": status, "message": message}},
    bug=lambda request_id: f"Unexpected error; the log names it under {request_id}.",
    wording={404: "There is no such resource.", 405: "The resource does not support this method."},
)


class AdminApi:
    """The admin API. `serves` says which paths of a shared listener are its own."""

    def __init__(self, services: AdminServices) -> None:
        self.services = services
        routes = paths([(method, PREFIX + path, _endpoint(handler)) for method, path, handler in ROUTES], services)
        routes += paths([(one, USER_PREFIX + path, _endpoint(does)) for one, path, does in USER_ROUTES], services)
        routes += [
            Route("/healthz", health.alive, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
        ]
        self._inner = application(routes, structlog.get_logger("skep.admin"), FAULTS, quiet=OPEN_PATHS)

    @staticmethod
    def serves(path: str) -> bool:
        """Tell whether a request for `path` is for this application."""
        return path in OPEN_PATHS or any(path == one or path.startswith(f"{one}/") for one in (PREFIX, USER_PREFIX))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._inner(scope, receive, send)

    async def _ready(self, _request: Request) -> Response:
        reasons, warnings = await health.readiness(self.services)
        body = {"ready": not reasons, "reasons": reasons, "warnings": warnings}
        return json_response(body, 503 if reasons else 200)

    async def _metrics(self, _request: Request) -> Response:
        return Response(self.services.metrics(), media_type=health.METRICS_TYPE)


def _endpoint(handler: Handler) -> Callable[[AdminServices, Request], Awaitable[Response]]:
    limit = MAX_BATCH_BODY if handler in WITH_BATCHES else MAX_SMALL_BODY

    async def answer(services: AdminServices, request: Request) -> Response:
        if handler in FOR_NEW_HOSTS:
            return await answered(services, request, await new_host(services, request))
        caller = await authenticate(services, request)
        request.state.caller = caller.context
        counts = handler in OF_USERS or (handler in FOR_OWNERS and not caller.context.is_admin)
        with services.limits.project(caller.context) if counts else nullcontext():
            _authorize(handler, caller)
            return await answered(services, request, caller)

    async def answered(services: AdminServices, request: Request, caller: Caller) -> Response:
        asked = AdminRequest(
            services=services,
            context=caller.context,
            params={name: str(value) for name, value in request.path_params.items()},
            query=dict(request.query_params),
            body=await read_limited(request, limit),
            queries={name: tuple(request.query_params.getlist(name)) for name in request.query_params},
            scope=caller.scope,
            token=caller.token,
            known=handler.facts.query,
        )
        asked.check_query()
        stream = STREAMS.get(handler)
        if stream is not None and request.method == "GET" and is_wanted(request.headers.get("Accept", "")):
            return await stream(asked, request.headers.get(LAST_EVENT) or None)
        return json_response(await handler(asked))

    return answer


def _authorize(handler: Handler, caller: Caller) -> None:
    """Raise Forbidden when such a caller may not do this at all."""
    if caller.scope is not None:
        if FOR_CREDENTIALS.get(handler) != caller.scope.kind:
            raise Forbidden(f"A credential that is bound to a {caller.scope.kind} does not permit this request.")
    elif handler not in FOR_OWNERS and not caller.context.is_admin:
        raise Forbidden("This request needs the role admin.")
