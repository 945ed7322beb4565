"""`skep bench reads`: how soon one process answers a mix of reads, with many servers of many projects in it."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import msgspec

from skep.cli.benchmarks.build_load import make_network
from skep.cli.benchmarks.process import CloudProcess, children_on_one_core, cloud_process
from skep.cli.benchmarks.settled import Filling, first_server, roomy_config
from skep.domain.errors import Unavailable

KNOWN_SERVERS = 20
"""Of each project, which are asked for by their ids."""
WARM_SECONDS = 3.0
"""Asked before the counting begins."""
CONNECTIONS = 100
"""At once; requests beyond them wait."""
SEED = 14

MIX: Mapping[str, int] = {
    "GET /servers/{id}": 40,
    "GET /servers": 15,
    "GET /servers/detail?limit=20": 15,
    "GET /servers/detail": 5,
    "GET /servers/detail?status=ACTIVE&sort_key=display_name": 2,
    "GET /servers/{id}/os-instance-actions": 8,
    "GET /flavors/detail": 5,
    "GET /limits": 5,
    "GET /os-keypairs": 3,
    "GET /os-server-groups": 2,
}
"""What is asked, by its share of a hundred."""


class ReadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to; times in milliseconds, from when a request was due."""

    servers: int
    projects: int
    ports: int
    """Of each server."""
    rate: float
    requests: int
    failed: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    slowest_ms: float
    p99_ms_of: dict[str, float]
    """By what was asked."""
    cpu_ms_per_request: float
    client_cpu_ms_per_request: float = 0.0
    """What asking took. Where it is much of what the cloud takes, the times are in part those of the client."""


@dataclass
class _Project:
    headers: dict[str, str]
    servers: list[str]


@dataclass
class _Came:
    took: dict[str, list[float]] = field(default_factory=dict)
    failed: int = 0
    client_cpu: float = 0.0
    """Seconds of processor that asking took."""


def run(
    *,
    servers: int,
    projects: int,
    ports: int,
    hosts: int,
    cells: int,
    rate: float,
    seconds: float,
    one_core: bool = False,
) -> ReadFigures:
    """Fill a cloud with running servers of many projects, start it, and ask it at an even rate.

    Servers with ports are copies of one that has them, as their rows keep them: nothing else is read of addresses.
    Raises Unavailable where they have another number of addresses.
    """
    per_cell = math.ceil(hosts / cells)
    each = math.ceil(servers / (per_cell * cells))
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        root = Path(name)
        config = roomy_config(root, each, networks=ports > 0)
        with cloud_process(root, config, cells=cells, hosts=per_cell) as cloud:
            compute, token = cloud.wait_ready(per_cell * cells)
            networks = asyncio.run(_make_networks(cloud, token, ports))
            template = asyncio.run(first_server(cloud, compute, token, networks))
            ids = asyncio.run(_make_projects(cloud, token, projects))
        filled = Filling(root / "state", template, ids).fill(servers)
        with ExitStack() as stack:
            with children_on_one_core(wanted=one_core):
                cloud = stack.enter_context(cloud_process(root, config, cells=cells, hosts=per_cell))
            compute, token = cloud.wait_ready(per_cell * cells)
            came, cpu = asyncio.run(_measure(cloud, compute, token, ids, rate, seconds, ports))
    return _figures(came, cpu, servers=filled, projects=projects, ports=ports, rate=rate)


async def _make_networks(cloud: CloudProcess, token: str, count: int) -> list[str]:
    """Make the networks on which each server has a port; return their ids."""
    async with aiohttp.ClientSession(headers={"X-Auth-Token": token}) as client:
        return [await make_network(client, cloud, number) for number in range(count)]


async def _make_projects(cloud: CloudProcess, token: str, count: int) -> list[str]:
    """Make projects in which the admin has the role `member`; return their ids."""
    async with httpx.AsyncClient(base_url=cloud.identity_url, headers={"X-Auth-Token": token}, timeout=60) as client:
        mine = await _good(client, "GET", "/auth/tokens", headers={"X-Subject-Token": token})
        roles = (await _good(client, "GET", "/roles"))["roles"]
        member = next(role["id"] for role in roles if role["name"] == "member")
        made = []
        for number in range(count):
            body = {"project": {"name": f"reads-{number}", "domain_id": "default"}}
            made.append((await _good(client, "POST", "/projects", json=body))["project"]["id"])
            await _good(client, "PUT", f"/projects/{made[-1]}/users/{mine['token']['user']['id']}/roles/{member}")
    return made


async def _measure(
    cloud: CloudProcess, compute: str, token: str, ids: list[str], rate: float, seconds: float, ports: int
) -> tuple[_Came, float]:
    """Ask for some seconds; return what came and the seconds of processor that the cloud took meanwhile."""
    async with httpx.AsyncClient(base_url=compute, timeout=60) as client:
        projects = [await _project(cloud, client, token, one) for one in ids]
    # A client that costs little: a slow one would measure itself.
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        await _ask(session, compute, projects, rate, WARM_SECONDS)
        cpu, own = cloud.cpu_seconds(), time.process_time()
        came = await _ask(session, compute, projects, rate, seconds)
        came.client_cpu = time.process_time() - own
        spent = cloud.cpu_seconds() - cpu
        for one in projects:
            await _check_addresses(session, compute, one, ports)
        return came, spent


async def _check_addresses(session: aiohttp.ClientSession, compute: str, project: _Project, ports: int) -> None:
    """Raise Unavailable where the servers of a project have another number of addresses."""
    async with session.get(f"{compute}/servers/detail?limit=20", headers=project.headers) as answer:
        answer.raise_for_status()
        listed = (await answer.json())["servers"]
    counts = {sum(len(of_network) for of_network in one["addresses"].values()) for one in listed}
    if counts != {ports}:
        raise Unavailable(f"servers have {sorted(counts)} addresses, not {ports}")


async def _project(cloud: CloudProcess, client: httpx.AsyncClient, token: str, project: str) -> _Project:
    """Get a token for a project, and the ids of some servers in it."""
    identity = {"methods": ["token"], "token": {"id": token}}
    body = {"auth": {"identity": identity, "scope": {"project": {"id": project}}}}
    answer = await client.post(f"{cloud.identity_url}/auth/tokens", json=body)
    headers = {"X-Auth-Token": answer.raise_for_status().headers["X-Subject-Token"]}
    found = await _good(client, "GET", f"/servers?limit={KNOWN_SERVERS}", headers=headers)
    return _Project(headers, [server["id"] for server in found["servers"]])


async def _ask(
    session: aiohttp.ClientSession, compute: str, projects: list[_Project], rate: float, seconds: float
) -> _Came:
    """Send requests when they are due, whether those before are answered or not."""
    dice = random.Random(SEED)  # noqa: S311 - which request comes next is no secret
    came = _Came()
    began = time.perf_counter()
    asked: list[asyncio.Task[None]] = []
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        what = dice.choices(list(MIX), list(MIX.values()))[0]
        project = dice.choice(projects)
        path = what.removeprefix("GET ").replace("{id}", dice.choice(project.servers))
        asked.append(asyncio.create_task(_one(session, project.headers, what, f"{compute}{path}", due, came)))
    await asyncio.gather(*asked)
    return came


async def _one(
    session: aiohttp.ClientSession, headers: dict[str, str], what: str, url: str, due: float, came: _Came
) -> None:
    try:
        async with session.get(url, headers=headers) as answer:
            await answer.read()
            good = answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        good = False
    came.failed += not good
    came.took.setdefault(what, []).append((time.perf_counter() - due) * 1000)


async def _good(client: httpx.AsyncClient, method: str, url: str, **more: Any) -> Any:
    answer = (await client.request(method, url, **more)).raise_for_status()
    return answer.json() if answer.content else None


def _figures(came: _Came, cpu: float, *, servers: int, projects: int, ports: int, rate: float) -> ReadFigures:
    everything = [one for took in came.took.values() for one in took]
    return ReadFigures(
        servers=servers,
        projects=projects,
        ports=ports,
        rate=rate,
        requests=len(everything),
        failed=came.failed,
        p50_ms=_part(everything, 50),
        p90_ms=_part(everything, 90),
        p99_ms=_part(everything, 99),
        slowest_ms=round(max(everything), 1),
        p99_ms_of={what: _part(came.took[what], 99) for what in MIX if what in came.took},
        cpu_ms_per_request=round(cpu * 1000 / len(everything), 2),
        client_cpu_ms_per_request=round(came.client_cpu * 1000 / len(everything), 2),
    )


def _part(values: list[float], percent: int) -> float:
    """Return the value below which so many percent are."""
    if len(values) == 1:
        return round(values[0], 1)
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 1)
