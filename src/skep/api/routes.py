"""The route table: all that the compute API serves, one row each."""

from __future__ import annotations

from skep.api.routing import Route
from skep.api.server_routes import SERVER_ROUTES

ROUTES: tuple[Route, ...] = (*SERVER_ROUTES,)
