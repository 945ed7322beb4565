"""`skep bench restart`: how soon servers go on being built after the whole cloud was killed under load."""

from __future__ import annotations

import asyncio
import contextlib
import math
import tempfile
import time
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from skep.cli.benchmarks.build import benchmark_config
from skep.cli.benchmarks.build_load import create_body
from skep.cli.benchmarks.process import CloudProcess, cloud_process

GIVE_UP_SECONDS = 120.0
LOOK_SECONDS = 0.1


class RestartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to. Seconds count from the start of the second process."""

    servers: int
    hosts: int
    answered: int
    """Creates that were answered 202 before the kill."""
    active_before: int
    """Of these, ACTIVE at the last look before the kill."""
    first_active_s: float
    all_settled_s: float
    active: int
    errors: int
    lost: int
    """Answered, and unknown afterwards."""


def run(*, servers: int, hosts: int, cells: int) -> RestartFigures:
    """Create servers, kill the cloud (SIGKILL) when a third of the creates is answered, start it again, follow them."""
    per_cell = math.ceil(hosts / cells)
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        root = Path(name)
        config = benchmark_config(root)
        with cloud_process(root, config, cells=cells, hosts=per_cell) as cloud:
            compute, token = cloud.wait_ready(per_cell * cells)
            answered, active = uvloop.run(_until_killed(cloud, compute, token, servers))
        began = time.monotonic()
        with cloud_process(root, config, cells=cells, hosts=per_cell) as cloud:
            compute, token = cloud.wait_answering()
            states, first, last = uvloop.run(_follow(compute, token, answered, active, began))
    return RestartFigures(
        servers=servers,
        hosts=per_cell * cells,
        answered=len(answered),
        active_before=len(active),
        first_active_s=round(first, 2),
        all_settled_s=round(last, 2),
        active=sum(status == "ACTIVE" for status in states.values()),
        errors=sum(status == "ERROR" for status in states.values()),
        lost=len(answered - states.keys()),
    )


async def _until_killed(cloud: CloudProcess, compute: str, token: str, servers: int) -> tuple[set[str], set[str]]:
    answered: set[str] = set()
    async with _client(compute, token) as client:
        body = await create_body(client, cloud)
        left = iter(range(servers))

        async def worker() -> None:
            for _ in left:
                async with client.post("servers", data=body) as answer:
                    said = msgspec.json.decode(await answer.read())
                    answered.add(said["server"]["id"])

        workers = [asyncio.create_task(worker()) for _ in range(16)]
        while len(answered) < servers / 3:  # noqa: ASYNC110 - a set wakes nobody
            await asyncio.sleep(LOOK_SECONDS / 10)
        active = {server for server, status in (await _statuses(client)).items() if status == "ACTIVE"}
        cloud.kill()
        for outcome in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, aiohttp.ClientError):
                raise outcome
    return answered, active


async def _follow(
    compute: str, token: str, answered: set[str], before: set[str], began: float
) -> tuple[dict[str, str], float, float]:
    first = last = math.inf
    states: dict[str, str] = {}
    async with _client(compute, token) as client:
        while time.monotonic() - began < GIVE_UP_SECONDS:
            with contextlib.suppress(aiohttp.ClientError):
                states = {server: status for server, status in (await _statuses(client)).items() if server in answered}
            now = time.monotonic() - began
            if any(status == "ACTIVE" and server not in before for server, status in states.items()):
                first = min(first, now)
            if states.keys() >= answered and set(states.values()) <= {"ACTIVE", "ERROR"}:
                last = now
                break
            await asyncio.sleep(LOOK_SECONDS)
    return states, first, last


def _client(compute: str, token: str) -> aiohttp.ClientSession:
    headers = {"X-Auth-Token": token, "Content-Type": "application/json"}
    return aiohttp.ClientSession(base_url=f"{compute}/", headers=headers, timeout=aiohttp.ClientTimeout(total=30))


async def _statuses(client: aiohttp.ClientSession) -> dict[str, str]:
    """Return the status of every server, page by page."""
    found: dict[str, str] = {}
    marker: dict[str, str] = {}
    while True:
        async with client.get("servers/detail", params={"limit": "1000", **marker}) as answer:
            answer.raise_for_status()
            page = msgspec.json.decode(await answer.read())
        found |= {server["id"]: server["status"] for server in page["servers"]}
        if "servers_links" not in page:
            return found
        marker = {"marker": page["servers"][-1]["id"]}
