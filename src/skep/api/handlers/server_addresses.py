"""Addresses and security groups of a server: without a network service there are none."""

from __future__ import annotations

from skep.api.handlers.server_lookup import find
from skep.api.requests import Answer, ApiRequest
from skep.domain.errors import NotFound


async def index(request: ApiRequest) -> Answer:
    """Return the addresses by network."""
    await find(request)
    return Answer({"addresses": {}})


async def show(request: ApiRequest) -> Answer:
    """Return the addresses on one network."""
    await find(request)
    raise NotFound(f"Network {request.params['label'][:80]} not found")


async def security_groups(request: ApiRequest) -> Answer:
    """Return the security groups of the server's ports."""
    await find(request)
    return Answer({"security_groups": []})
