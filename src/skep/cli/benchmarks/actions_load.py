"""The client of `skep bench actions`: builds servers, asks for one action on all of them, waits, asks for the next."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import aiohttp
import msgspec

from skep.cli.benchmarks.build_load import POLL_SECONDS, SETTLE_SECONDS
from skep.cli.benchmarks.process import CloudProcess
from skep.domain.clock import Clock, isoformat

IMAGE_BYTES = 1 << 20
"""Of the image of all servers, so of their disks and of their snapshots."""
OVERLAP = 2_000_000
"""Microseconds that a poll asks for again: what was written meanwhile."""
LOOKS_AT_ALL = 15
"""After so many polls one asks for all changes since the action began."""
IMAGE = "IMAGE"
"""Stands in a request for the id of the image of all servers."""
LARGER = "bench"
"""The id of a flavor with a little more memory than the servers have."""
PAGE = 1000
"""Rows of one answer."""
_HEADERS = {"OpenStack-API-Version": "compute 2.1"}


class MeasuredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for each server."""

    body: Mapping[str, object]
    status: str
    """Of the server when it is done; it has no task then."""
    image: str | None = None
    """The name of the image that the request makes of each server, and that has its bytes when it is done."""


class ActionsLoad:
    """One run over servers that are alike."""

    def __init__(self, cloud: CloudProcess, compute: str, token: str, servers: int, concurrency: int) -> None:
        """Take a running cloud, how many servers it gets, and how many requests are sent at once."""
        self.spent: dict[str, dict[str, float]] = {}
        """CPU seconds of the cloud by action, then by role and server."""
        self.seconds: dict[str, float] = {}
        self.refused: Counter[str] = Counter()
        """Requests without success, by action."""
        self.unfinished = 0
        self._cloud = cloud
        self._compute = compute
        self._images = f"{cloud.images_url.removesuffix('/v2')}/v2/images"
        self._token = token
        self._servers = servers
        self._concurrency = concurrency
        self._image = ""
        self._ids: list[str] = []
        self._since = ""
        self._action = ""
        """What is measured now."""
        self._seen: dict[str, tuple[str, str | None]] = {}
        """Server -> its status and its task."""
        self._client: aiohttp.ClientSession

    async def run(
        self, build: str, actions: Mapping[str, Sequence[MeasuredRequest]], progress: Callable[[str], None]
    ) -> None:
        """Measure the build of all servers, and then each action on them."""
        headers = {**_HEADERS, "X-Auth-Token": self._token}
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as self._client:
            image = self._image = await self._upload()
            await self._make_flavor()
            progress(build)
            await self._measured(build, self._build(image))
            for action, requests in actions.items():
                progress(action)
                await self._measured(action, self._act(requests))

    async def _measured(self, name: str, work: Awaitable[None]) -> None:
        self._action = name
        self._cloud.begin_counting()
        began = time.perf_counter()
        await work
        self.seconds[name] = time.perf_counter() - began
        self._cloud.end_counting()
        self.spent[name] = dict(self._cloud.counted)

    async def _build(self, image: str) -> None:
        server = {"name": "bench", "imageRef": image, "flavorRef": "1"}
        self._since = isoformat(Clock().now())

        async def create() -> None:
            answer = await self._post(f"{self._compute}/servers", {"server": server})
            if answer is not None:
                self._ids.append(msgspec.json.decode(answer)["server"]["id"])

        await self._at_once([create] * self._servers)
        await self._until("ACTIVE", self._ids)

    async def _act(self, requests: Sequence[MeasuredRequest]) -> None:
        for asked in requests:
            accepted: list[str] = []

            body = msgspec.json.decode(msgspec.json.encode(asked.body).replace(IMAGE.encode(), self._image.encode()))

            async def ask(uuid: str, body: Mapping[str, object] = body, into: list[str] = accepted) -> None:
                if await self._post(f"{self._compute}/servers/{uuid}/action", body) is not None:
                    into.append(uuid)

            self._seen.clear()
            self._since = isoformat(Clock().now())
            await self._at_once([partial(ask, uuid) for uuid in self._ids])
            await self._until(asked.status, accepted)
            if asked.image is not None:
                await self._until_stored(asked.image, len(accepted))

    async def _at_once(self, stories: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Do all, so many at once as was asked for."""
        left = iter(stories)

        async def worker() -> None:
            for story in left:
                await story()

        await asyncio.gather(*(worker() for _ in range(self._concurrency)))

    async def _post(self, url: str, body: Mapping[str, object]) -> bytes | None:
        """Return what a request is answered; None where it is refused, which is counted."""
        async with self._client.post(url, json=body) as answer:
            content = await answer.read()
        if answer.status < 300:
            return content
        self.refused[self._action] += 1
        return None

    async def _until(self, status: str, uuids: Sequence[str]) -> None:
        """Follow servers as a client does, with `changes-since`, until they have a status and no task.

        Now and then all changes are asked for: a database that stalls shows one later than the overlap of two looks.
        """
        end, begun = time.monotonic() + SETTLE_SECONDS, self._since
        for looks in itertools.count(1):
            asked_at = isoformat(Clock().now() - OVERLAP)
            await self._look()
            self._since = begun if looks % LOOKS_AT_ALL == 0 else asked_at
            elsewhere = sum(self._seen.get(uuid) != (status, None) for uuid in uuids)
            if not elsewhere:
                return
            if time.monotonic() > end:
                self.unfinished += elsewhere
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _look(self) -> None:
        for server in await self._listed(f"{self._compute}/servers/detail", "servers", {"changes-since": self._since}):
            self._seen[server["id"]] = server["status"], server["OS-EXT-STS:task_state"]

    async def _until_stored(self, name: str, number: int) -> None:
        """Wait until there are so many images of this name with bytes."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            query = {"name": name, "status": "active"}
            missing = number - len(await self._listed(self._images, "images", query))
            if missing <= 0:
                return
            if time.monotonic() > end:
                self.unfinished += missing
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _listed(self, url: str, noun: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return all pages of a list."""
        found: list[dict[str, Any]] = []
        while True:
            after = {"marker": found[-1]["id"]} if found else {}
            async with self._client.get(url, params={**query, "limit": str(PAGE), **after}) as answer:
                answer.raise_for_status()
                page = msgspec.json.decode(await answer.read())[noun]
            found += page
            if len(page) < PAGE:
                return found

    async def _make_flavor(self) -> None:
        flavor = {"id": LARGER, "name": LARGER, "ram": 640, "vcpus": 1, "disk": 1}
        async with self._client.post(f"{self._compute}/flavors", json={"flavor": flavor}) as answer:
            answer.raise_for_status()

    async def _upload(self) -> str:
        """Make the image of all servers; return its id."""
        wanted = {"name": "bench", "disk_format": "raw", "container_format": "bare"}
        async with self._client.post(self._images, json=wanted) as answer:
            answer.raise_for_status()
            image = str(msgspec.json.decode(await answer.read())["id"])
        headers = {"Content-Type": "application/octet-stream"}
        async with self._client.put(f"{self._images}/{image}/file", data=bytes(IMAGE_BYTES), headers=headers) as stored:
            stored.raise_for_status()
        return image
