"""The client of `skep bench build`: creates servers in one of three ways and follows them until all are settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import aiohttp
import msgspec

from skep.cli.benchmarks.process import CloudProcess
from skep.domain.clock import Clock, isoformat

SETTLE_SECONDS = 300.0
"""How long after the last create all servers must be ACTIVE or ERROR; what is not then is stuck."""
POLL_SECONDS = 1.0
POLL_SECONDS_OF_ONE_REQUEST = 0.25
"""Where the time of one request is measured, not the rate of many."""
_HEADERS = {"OpenStack-API-Version": "compute 2.1", "Content-Type": "application/json"}

Progress = Callable[[str, int, int], None]
"""Told of what is done: `created` or `settled`, how many, of how many."""


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """How servers are asked for."""

    servers: int
    concurrency: int
    """Creates at once, each sent when one before was answered."""
    rate: float = 0.0
    """Creates a second, sent whether those before were answered or not; 0: by `concurrency`."""
    together: bool = False
    """One request for all."""
    ports: int = 0
    """Networks on which each server gets a port."""
    volumes: int = 0
    """Volumes that are made for each server and go with it."""


class BuildLoad(msgspec.Struct, kw_only=True):
    """What came of it. `posts` are the milliseconds of each POST; of a rate, from when it was due."""

    seconds: float
    posts: list[float]
    active: int
    errors: int
    stuck: int


async def offer(cloud: CloudProcess, compute: str, token: str, offered: Offered, progress: Progress) -> BuildLoad:
    """Create all servers and wait until they are settled."""
    headers = {**_HEADERS, "X-Auth-Token": token}
    # A client that costs little: a slow one would measure itself.
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(
        base_url=f"{compute}/", headers=headers, connector=connector, timeout=timeout
    ) as client:
        networks = [await make_network(client, cloud, number) for number in range(offered.ports)]
        members = offered.servers if offered.together else 1
        body = await create_body(client, cloud, members, networks, offered.volumes)
        watch = _Watch(client, offered, isoformat(Clock().now()))
        cloud.begin_counting()
        began = time.perf_counter()
        watching = asyncio.create_task(watch.run(progress))
        posts = _Posts(client, body, offered, progress)
        await posts.run()
        watch.expected -= posts.refused
        try:
            await asyncio.wait_for(watching, SETTLE_SECONDS)
        except TimeoutError:
            watching.cancel()
        seconds = time.perf_counter() - began
        cloud.end_counting()
        return BuildLoad(
            seconds=seconds,
            posts=posts.milliseconds,
            active=watch.count("ACTIVE"),
            errors=posts.refused + watch.count("ERROR"),
            stuck=watch.expected - watch.settled,
        )


class _Posts:
    """Sends the creates."""

    def __init__(self, client: aiohttp.ClientSession, body: bytes, offered: Offered, progress: Progress) -> None:
        self.milliseconds: list[float] = []
        self.refused = 0
        """Servers that were asked for in vain."""
        self._client = client
        self._body = body
        self._offered = offered
        self._progress = progress

    async def run(self) -> None:
        """Return when all are answered."""
        offered = self._offered
        if offered.together:
            await self._post(time.perf_counter(), members=offered.servers)
        elif offered.rate:
            await self._at_rate()
        else:
            left = iter(range(offered.servers))
            await asyncio.gather(*(self._worker(left) for _ in range(offered.concurrency)))

    async def _worker(self, left: Iterator[int]) -> None:
        for _ in left:
            await self._post(time.perf_counter())

    async def _at_rate(self) -> None:
        """Send each when it is due: an answer that takes long delays no other, and is counted from the due time."""
        began = time.perf_counter()
        under_way: list[asyncio.Task[None]] = []
        for number in range(self._offered.servers):
            due = began + number / self._offered.rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            under_way.append(asyncio.create_task(self._post(due)))
        await asyncio.gather(*under_way)

    async def _post(self, due: float, members: int = 1) -> None:
        async with self._client.post("servers", data=self._body) as answer:
            await answer.read()
        self.milliseconds.append((time.perf_counter() - due) * 1000)
        if answer.status != 202:
            self.refused += members
        self._progress("created", len(self.milliseconds) * members, self._offered.servers)


class _Watch:
    """Follows all servers as a client does: with `changes-since`, once a second."""

    def __init__(self, client: aiohttp.ClientSession, offered: Offered, since: str) -> None:
        self.expected = offered.servers
        self._every = POLL_SECONDS_OF_ONE_REQUEST if offered.together else POLL_SECONDS
        self._client = client
        self._since = since
        self._status: dict[str, str] = {}

    def count(self, status: str) -> int:
        return sum(one == status for one in self._status.values())

    @property
    def settled(self) -> int:
        return self.count("ACTIVE") + self.count("ERROR")

    async def run(self, progress: Progress) -> None:
        while self.settled < self.expected:
            await asyncio.sleep(self._every)
            asked_at = isoformat(Clock().now() - 2_000_000)
            await self._read()
            self._since = asked_at
            progress("settled", self.settled, self.expected)

    async def _read(self) -> None:
        marker: str | None = None
        while True:
            query = {"changes-since": self._since, "limit": "1000"} | ({"marker": marker} if marker else {})
            async with self._client.get("servers/detail", params=query) as answer:
                answer.raise_for_status()
                page = msgspec.json.decode(await answer.read())
            for server in page["servers"]:
                self._status[server["id"]] = server["status"]
            if "servers_links" not in page:
                return
            marker = page["servers"][-1]["id"]


async def make_network(client: aiohttp.ClientSession, cloud: CloudProcess, number: int) -> str:
    """Make a network with room for all servers that a run may have; return its id."""
    networks = cloud.networks_url.rstrip("/").removesuffix("/v2.0")

    async def make(path: str, noun: str, fields: dict[str, object]) -> str:
        async with client.post(f"{networks}/v2.0/{path}", json={noun: fields}) as answer:
            answer.raise_for_status()
            return str(msgspec.json.decode(await answer.read())[noun]["id"])

    made = await make("networks", "network", {"name": f"bench-{number}"})
    await make("subnets", "subnet", {"network_id": made, "ip_version": 4, "cidr": f"10.{100 + number * 2}.0.0/15"})
    return made


async def create_body(
    client: aiohttp.ClientSession,
    cloud: CloudProcess,
    members: int = 1,
    networks: Sequence[str] = (),
    volumes: int = 0,
) -> bytes:
    """Return the body of a create of so many servers: image by id, as clients send it."""
    images = cloud.images_url.removesuffix("/v2")
    async with client.get(f"{images}/v2/images", params={"name": "tiny"}) as answer:
        answer.raise_for_status()
        image = msgspec.json.decode(await answer.read())["images"][0]["id"]
    server: dict[str, object] = {"name": "bench", "imageRef": image, "flavorRef": "1"}
    if networks:
        server["networks"] = [{"uuid": network} for network in networks]
    if volumes:
        root = {"source_type": "image", "uuid": image, "destination_type": "local", "boot_index": 0}
        new = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "delete_on_termination": True}
        server["block_device_mapping_v2"] = [root, *[new] * volumes]
    if members > 1:
        server |= {"min_count": members, "max_count": members}
    return msgspec.json.encode({"server": server})
