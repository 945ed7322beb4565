"""Health and metrics of a process that has no other HTTP service: for supervisors, load balancers and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from skep.telemetry.metrics import CONTENT_TYPE


def health_app(reasons: Callable[[], Sequence[str]], metrics: Callable[[], bytes]) -> Starlette:
    """Return `/healthz`, `/readyz` and `/metrics`; `reasons` says why the process is not ready, empty when it is."""

    async def alive(_request: Request) -> Response:
        return JSONResponse({"alive": True})

    async def ready(_request: Request) -> Response:
        found = list(reasons())
        return JSONResponse({"ready": not found, "reasons": found}, status_code=503 if found else 200)

    async def exposition(_request: Request) -> Response:
        return Response(metrics(), media_type=CONTENT_TYPE)

    return Starlette(routes=[Route("/healthz", alive), Route("/readyz", ready), Route("/metrics", exposition)])
