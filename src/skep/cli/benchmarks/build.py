"""`skep bench build`: servers through the whole way of a build, over HTTP, with everything on that a cloud has on."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from skep.cli.benchmarks.leftovers import leftover_rows
from skep.cli.benchmarks.process import CloudProcess, cloud_process
from skep.domain.clock import Clock, isoformat

SETTLE_SECONDS = 300.0
"""How long after the last create all servers must be ACTIVE or ERROR; what is not then is stuck."""
POLL_SECONDS = 1.0
_HEADERS = {"OpenStack-API-Version": "compute 2.1", "Content-Type": "application/json"}

Progress = Callable[[str, int, int], None]
"""Told of what is done: `created` or `settled`, how many, of how many."""


class BuildFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to. CPU is the cloud's, the client apart."""

    servers: int
    hosts: int
    cells: int
    concurrency: int
    seconds: float
    servers_per_s: float
    cpu_ms_per_server: float
    post_p50_ms: float
    post_p99_ms: float
    errors: int
    stuck: int
    leftover_rows: int
    rss_mib: float
    idle_rss_mib: float


def run(*, servers: int, concurrency: int, hosts: int, cells: int, progress: Progress) -> BuildFigures:
    """Start a cloud with its databases on disk, create `servers` servers, wait for all, stop the cloud."""
    per_cell = math.ceil(hosts / cells)
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        root = Path(name)
        with cloud_process(root, benchmark_config(root), cells=cells, hosts=per_cell) as cloud:
            compute, token = cloud.wait_ready(per_cell * cells)
            idle = cloud.memory_mib("VmRSS")
            load = uvloop.run(_load(cloud, compute, token, servers, concurrency, progress))
            rss = cloud.memory_mib("VmHWM")
            left = leftover_rows(cloud.state, compute, token)
    return BuildFigures(
        servers=servers,
        hosts=per_cell * cells,
        cells=cells,
        concurrency=concurrency,
        seconds=round(load.seconds, 2),
        servers_per_s=round(load.active / load.seconds, 1),
        cpu_ms_per_server=round(load.cpu_seconds * 1000 / servers, 2),
        post_p50_ms=_percentile(load.posts, 0.50),
        post_p99_ms=_percentile(load.posts, 0.99),
        errors=load.errors,
        stuck=load.stuck,
        leftover_rows=left,
        rss_mib=round(rss, 1),
        idle_rss_mib=round(idle, 1),
    )


class _Load(msgspec.Struct, kw_only=True):
    seconds: float
    cpu_seconds: float
    posts: list[float]
    active: int
    errors: int
    stuck: int


async def _load(
    cloud: CloudProcess, compute: str, token: str, servers: int, concurrency: int, progress: Progress
) -> _Load:
    headers = {**_HEADERS, "X-Auth-Token": token}
    # A client that costs little: a slow one would measure itself.
    connector = aiohttp.TCPConnector(limit=concurrency + 4)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(
        base_url=f"{compute}/", headers=headers, connector=connector, timeout=timeout
    ) as client:
        body = await create_body(client, cloud)
        watch = _Watch(client, servers, isoformat(Clock().now()))
        cpu, began = cloud.cpu_seconds(), time.perf_counter()
        watching = asyncio.create_task(watch.run(progress))
        posts, refused = await _create(client, body, servers, concurrency, progress)
        watch.expected = servers - refused
        try:
            await asyncio.wait_for(watching, SETTLE_SECONDS)
        except TimeoutError:
            watching.cancel()
        seconds = time.perf_counter() - began
        return _Load(
            seconds=seconds,
            cpu_seconds=cloud.cpu_seconds() - cpu,
            posts=posts,
            active=watch.count("ACTIVE"),
            errors=refused + watch.count("ERROR"),
            stuck=servers - refused - watch.count("ACTIVE") - watch.count("ERROR"),
        )


async def _create(
    client: aiohttp.ClientSession, body: bytes, servers: int, concurrency: int, progress: Progress
) -> tuple[list[float], int]:
    """Send the creates, `concurrency` at a time; return the time of each POST in milliseconds, and how many failed."""
    posts: list[float] = []
    refused = 0
    left = iter(range(servers))

    async def worker() -> None:
        nonlocal refused
        for _ in left:
            began = time.perf_counter()
            async with client.post("servers", data=body) as answer:
                await answer.read()
            posts.append((time.perf_counter() - began) * 1000)
            refused += answer.status != 202
            progress("created", len(posts), servers)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return posts, refused


class _Watch:
    """Follows all servers as a client does: with `changes-since`, once a second."""

    def __init__(self, client: aiohttp.ClientSession, expected: int, since: str) -> None:
        self.expected = expected
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
            await asyncio.sleep(POLL_SECONDS)
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


async def create_body(client: aiohttp.ClientSession, cloud: CloudProcess) -> bytes:
    """Return the body of each create: image by id, as clients send it."""
    images = cloud.images_url.removesuffix("/v2")
    async with client.get(f"{images}/v2/images", params={"name": "tiny"}) as answer:
        answer.raise_for_status()
        image = msgspec.json.decode(await answer.read())["images"][0]["id"]
    return msgspec.json.encode({"server": {"name": "bench", "imageRef": image, "flavorRef": "1"}})


def benchmark_config(root: Path) -> str:
    """Return a configuration (TOML) with free ports, no quota, and fake hosts that take no time."""
    return f"""
[state]
directory = "{root / "state"}"
[api]
port = 0
backlog_limit = 1000000
[identity]
port = 0
[images]
port = 0
[quota]
instances = -1
cores = -1
ram = -1
[compute.fake]
spawn_delay = 0
destroy_delay = 0
power_delay = 0
"""


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)], 1) if ordered else 0.0
