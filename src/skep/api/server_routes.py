"""Rows of the route table for servers and what hangs below them."""

from __future__ import annotations

from skep.api.routing import Route

SERVER_ROUTES: tuple[Route, ...] = ()
