"""The operator's own services that are asked what a server shall be told besides: dynamic vendor data.

Source: Nova's administrator guide, "Vendordata", DynamicJSON: the request's body and where the answers stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import structlog

from skep.domain.decoding import json_decoder
from skep.domain.errors import Unavailable
from skep.domain.guest_documents.facts import GuestFacts

log = structlog.get_logger("skep.neighbours")

MAX_BYTES = 64 * 1024
"""Of one answer."""


class VendorTarget(msgspec.Struct, frozen=True):
    """One service; its answer stands below `name`."""

    name: str
    url: str


class VendorDataUnavailable(Unavailable):
    """A service gave no data, and servers are not to do without."""


class _Question(msgspec.Struct, rename="kebab"):
    """What a service is told of a server."""

    project_id: str
    instance_id: str
    image_id: str | None
    user_data: str | None
    hostname: str
    metadata: dict[str, str]
    boot_roles: str
    """The roles of who asked for the server, with commas between."""


class VendorDataTargets:
    """Asks all services at once. `required`: whether a server may not be told less."""

    def __init__(
        self, targets: Sequence[VendorTarget], http: httpx.AsyncClient, *, timeout: float, required: bool
    ) -> None:
        """`timeout`: seconds in which a service has to have answered."""
        self._targets = tuple(targets)
        self._http = http
        self._timeout = timeout
        self._required = required

    async def of(self, facts: GuestFacts) -> dict[str, Any]:
        """Return the answers by the names of the services; `{}` for one that gives none.

        Raises VendorDataUnavailable where they are required.
        """
        server = facts.server
        question = _Question(
            project_id=server.project_id,
            instance_id=server.uuid,
            image_id=server.image.id if server.image is not None else None,
            user_data=server.user_data,
            hostname=server.hostname or server.uuid,
            metadata=dict(server.metadata),
            boot_roles=",".join(server.boot_roles),
        )
        content = msgspec.json.encode(question)
        answers = await asyncio.gather(*(self._ask(target, content) for target in self._targets))
        return {target.name: answer for target, answer in zip(self._targets, answers, strict=True)}

    async def close(self) -> None:
        """Disconnect."""
        await self._http.aclose()

    async def _ask(self, target: VendorTarget, content: bytes) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._answer(target, content)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            # The answer may hold secrets, so it is not told.
            why = str(error) or f"no answer in {self._timeout:g} s"
            log.warning("no dynamic vendor data", target=target.name, error=why)
            if self._required:
                raise VendorDataUnavailable(f"The vendor data {target.name} cannot be had: {why}") from error
            return {}

    async def _answer(self, target: VendorTarget, content: bytes) -> Any:
        """Raises httpx.HTTPError, and ValueError for an answer that is none."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        async with self._http.stream("POST", target.url, content=content, headers=headers) as response:
            if not response.is_success:
                raise ValueError(f"it answered {response.status_code}")
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_BYTES:
                    raise ValueError(f"its answer has more than {MAX_BYTES} bytes")
        try:
            return json_decoder(Any).decode(bytes(body))
        except msgspec.DecodeError as error:
            raise ValueError("its answer is no JSON") from error
