"""Skep's client of services, for services on loopback."""

from __future__ import annotations

import ssl

import httpx

from skep.neighbours.answers import new_client


def unencrypted_client() -> httpx.AsyncClient:
    """Return a client that trusts no certificate: nothing is encrypted on loopback, and to read them takes long."""
    return new_client(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
