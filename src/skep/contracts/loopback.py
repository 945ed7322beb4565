"""Clients of services on loopback, for tests."""

from __future__ import annotations

import httpx

from skep.contracts.eventually import PATIENCE


def plain_client(url: str = "") -> httpx.AsyncClient:
    """Return a client that encrypts nothing: to read certificates takes long."""
    return httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False, verify=False)
