"""What other services answer, read with an end: seconds, bytes, and the form that their API promises."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Collection
from typing import Any, TypeVar

import httpx
import msgspec
import structlog

from skep.domain.clock import Timestamp, parse_iso
from skep.domain.decoding import json_decoder
from skep.domain.errors import Unavailable, Unreachable
from skep.neighbours.connections import (
    EncodedAnswer,
    EndlessAnswer,
    ServiceAnswer,
    ServiceClient,
    ServiceConnections,
)

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

JSON = {**PLAIN, "Content-Type": "application/json"}
"""Headers of a request that sends JSON."""


def new_client(authorities: ssl.SSLContext) -> httpx.AsyncClient:
    """Return a client of services, one of which may be slow: requests to it take no connection from another.

    So there are as many connections as requests that wait, whose number has a limit where they come in.
    """
    return ServiceClient(ServiceConnections(authorities))


async def ask(
    service: str,
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    seconds: float,
    headers: dict[str, str] | None = None,
    said: Any = None,
) -> ServiceAnswer:
    """Send a request, with JSON where something is `said`, and read its answer, all within some seconds.

    Raises Unreachable when the service does not answer or breaks off, Unavailable for an answer without an end.
    """
    body = None if said is None else as_json(said)
    given = {**(PLAIN if body is None else JSON), **(headers or {})}
    try:
        async with asyncio.timeout(seconds):
            if isinstance(client, ServiceClient):
                answer = await client.exchange(method, url, given, body, seconds=seconds, most=MOST_BYTES)
                if answer is not None:
                    return answer
            return await send(service, client, method, url, seconds=seconds, headers=given, content=body)
    except (httpx.HTTPError, TimeoutError) as error:
        raise unreachable(service, url, error) from error
    except EncodedAnswer as error:
        raise _encoded(service) from error
    except EndlessAnswer as error:
        raise _endless(service) from error


def as_json(value: Any) -> bytes:
    """Return JSON as httpx sends it, with whole numbers of any size. Raises ValueError for what JSON has not."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


async def send(
    service: str,
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    seconds: float,
    headers: dict[str, str],
    content: bytes | AsyncIterator[bytes] | None,
) -> ServiceAnswer:
    """Send a request that may have a long body. For `seconds` nothing may move; so long its answer may take to come.

    Raises as `ask` does, and whatever the body raises.
    """
    given = {**PLAIN, **headers}
    try:
        async with client.stream(method, url, headers=given, timeout=seconds, content=content) as response:
            return await _read(service, url, response, seconds)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(service, url, error) from error


async def _read(service: str, url: str, response: httpx.Response, seconds: float) -> ServiceAnswer:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise _encoded(service)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MOST_BYTES:
                    raise _endless(service)
    except TimeoutError as error:
        raise unreachable(service, url, error) from error
    return ServiceAnswer(status_code=response.status_code, headers=response.headers, content=bytes(body), url=url)


def _encoded(service: str) -> Unavailable:
    return nonsense(service, "its bytes are encoded")


def _endless(service: str) -> Unavailable:
    return nonsense(service, f"there are more than {MOST_BYTES} bytes")


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


def decode(service: str, response: ServiceAnswer, body: type[BodyT]) -> BodyT:
    """Decode the JSON of an answer.

    Raises Unavailable when it is not what the service's API promises.
    """
    try:
        return json_decoder(body).decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise nonsense(service, str(error)) from error


def refusal_of(
    service: str,
    response: ServiceAnswer,
    form: type[BodyT],
    *,
    formed: Collection[int],
    bare: Collection[int] = frozenset(),
) -> BodyT | None:
    """Return what a service says of its refusal, in the form of its API; None: no form, and a status that is `bare`.

    `formed`: statuses of refusals that have the form. `bare`: those that refuse without it, too, whoever says so.
    Raises Unavailable for all others: what stands before a service that is away may answer a page with any status, and
    nothing follows from it.
    """
    status = response.status_code
    if status in formed:
        try:
            return json_decoder(form).decode(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if status not in bare:
                raise nonsense(service, str(error)) from error
    if status not in bare:
        raise nonsense(service, f"it answered {status}")
    return None


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
