"""What other services answer, read with an end: seconds, bytes, and the form that their API promises."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import httpx
import msgspec
import structlog

from skep.domain.clock import Timestamp, parse_iso
from skep.domain.decoding import json_decoder
from skep.domain.errors import Unavailable, Unreachable
from skep.neighbours.connections import ServiceConnections

log = structlog.get_logger("skep.neighbours")

BodyT = TypeVar("BodyT")

IDENTITY, IMAGES = "the identity service", "the image service"
NETWORKS, VOLUMES = "the network service", "the volume service"
"""What users read of a service: its address is for the log."""

LABELS = {IDENTITY: "identity", IMAGES: "image", NETWORKS: "network", VOLUMES: "volume"}
"""The same in metrics."""

MOST_BYTES = 16 << 20
"""Of an answer that is no image."""

SLOWEST = 4096
"""Bytes of an image that come at least in the seconds in which something has to."""

PLAIN = {"Accept-Encoding": "identity"}
"""Asks for an answer whose bytes are those that are counted."""

_OF_THE_WAY = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
"""Headers that say how a body came, and nothing of it once it is there."""


def new_client(authorities: ssl.SSLContext) -> httpx.AsyncClient:
    """Return a client of services, one of which may be slow: requests to it take no connection from another.

    So there are as many connections as requests that wait, whose number has a limit where they come in.
    """
    return httpx.AsyncClient(transport=ServiceConnections(authorities), trust_env=False)


async def ask(
    service: str, client: httpx.AsyncClient, method: str, url: str, *, seconds: float, **sent: Any
) -> httpx.Response:
    """Send a request and read its answer, all within some seconds. `sent` is what httpx takes.

    Raises Unreachable when the service does not answer or breaks off, Unavailable for an answer without an end.
    """
    try:
        async with asyncio.timeout(seconds):
            return await send(service, client, method, url, seconds=seconds, **sent)
    except TimeoutError as error:
        raise unreachable(service, url, error) from error


async def send(
    service: str,
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    seconds: float,
    headers: dict[str, str] | None = None,
    **sent: Any,
) -> httpx.Response:
    """Send a request that may have a long body. For `seconds` nothing may move; so long its answer may take to come.

    Raises as `ask` does, and whatever the body raises.
    """
    given = {**PLAIN, **(headers or {})}
    try:
        async with client.stream(method, url, headers=given, timeout=seconds, **sent) as response:
            return await _read(service, url, response, seconds)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(service, url, error) from error


async def _read(service: str, url: str, response: httpx.Response, seconds: float) -> httpx.Response:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise nonsense(service, "its bytes are encoded")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MOST_BYTES:
                    raise nonsense(service, f"there are more than {MOST_BYTES} bytes")
    except TimeoutError as error:
        raise unreachable(service, url, error) from error
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_THE_WAY]
    return httpx.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)


async def flowing(service: str, response: httpx.Response, seconds: float, piece: int) -> AsyncIterator[bytes]:
    """Give the bytes of a long answer in pieces of this size; the last one is shorter.

    Raises Unreachable when hardly any come: a service that sends a byte now and then is none.
    """
    loop = asyncio.get_running_loop()
    held, came, since = bytearray(), 0, loop.time()
    async for part in response.aiter_raw():
        held += part
        came += len(part)
        if loop.time() - since > seconds:
            if came < SLOWEST:
                raise Unreachable(f"{service} sends too slowly: {came} bytes in {seconds:g} s")
            came, since = 0, loop.time()
        while len(held) >= piece:
            yield bytes(held[:piece])
            del held[:piece]
            came, since = 0, loop.time()
    if held:
        yield bytes(held)


def decode(service: str, response: httpx.Response, body: type[BodyT]) -> BodyT:
    """Decode the JSON of an answer.

    Raises Unavailable when it is not what the service's API promises.
    """
    try:
        return json_decoder(body).decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise nonsense(service, str(error)) from error


def time_of(service: str, text: object) -> Timestamp:
    """Return a time of an answer. Raises Unavailable when it is none."""
    try:
        return parse_iso(str(text))
    except (ValueError, OverflowError) as error:
        raise nonsense(service, f"expected a time, got {str(text)[:80]!r}") from error


def nonsense(service: str, why: str) -> Unavailable:
    """Return the error of an answer that means nothing."""
    log.warning("neighbour answered nonsense", service=service, why=why)
    return Unavailable(f"{service} did not answer as its API specifies: {why}")


def failed(service: str, url: str, status: int) -> Unavailable:
    """Return the error of an answer that says that the service cannot answer now."""
    log.warning("neighbour failed", service=service, url=url, status=status)
    return Unavailable(f"{service} answered {status}")


def unreachable(service: str, url: str, error: Exception) -> Unreachable:
    """Return the error of a service that did not answer, or broke off."""
    log.warning("neighbour did not answer", service=service, url=url, error=type(error).__name__)
    return Unreachable(f"{service} does not answer ({type(error).__name__})")
