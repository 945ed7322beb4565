"""A cloud for the suite: hosts in one cell, beside a real Keystone and a real Glance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from skep.config import load
from skep.contracts.http_cloud import serving_cloud
from skep.processes.ports import free_port
from skep_lab.neighbours import PASSWORD, REGION, RealNeighbours, real_neighbours, sign_in
from skep_lab.tempest.settings import Surroundings

HOSTS = 4
"""All in one cell, for moves stay in theirs, and the suite takes any host for a target."""
IMAGE_BYTES = b"tempest " * 8192
SECONDS = 60.0
FLAVORS = (("tempest.nano", 64, 1), ("tempest.micro", 128, 2))
"""Name, MiB of memory, GiB of disk."""
SETTINGS = """
[state]
directory = "{directory}"
[api]
port = {port}
[identity]
kind = "keystone"
auth_url = "{auth_url}"
username = "skep"
password = "{password}"
[images]
kind = "glance"
[quota]
instances = 100
cores = 200
ram = 512000
server_groups = 100
[compute.images]
auth_url = "{auth_url}"
username = "skep"
password = "{password}"
store = true
[compute.fake]
spawn_delay = 0.1
destroy_delay = 0.1
power_delay = 0.1
"""


@asynccontextmanager
async def surroundings(work: Path) -> AsyncIterator[Surroundings]:
    """Run a cloud with all that the suite asks for, as long as the block lasts."""
    port = free_port()
    async with real_neighbours(work / "neighbours", f"http://127.0.0.1:{port}/v2.1") as neighbours:
        file = work / "skep.toml"
        file.write_text(
            SETTINGS.format(directory=work / "state", port=port, auth_url=neighbours.auth_url, password=PASSWORD)
        )
        async with serving_cloud(load(file, {}).config, cells=1, hosts=HOSTS) as cloud:
            yield await _furnish(neighbours, cloud.api_url)


async def _furnish(neighbours: RealNeighbours, compute_url: str) -> Surroundings:
    """Make two images and two flavors."""
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as client:
        at = f"{neighbours.auth_url}/"
        async with httpx.AsyncClient(base_url=at, timeout=SECONDS, trust_env=False) as keystone:
            client.headers["X-Auth-Token"] = await sign_in(keystone, "admin", "admin")
        images = [await _image(client, neighbours.glance.url, name) for name in ("tempest-1", "tempest-2")]
        flavors = [await _flavor(client, compute_url, *facts) for facts in FLAVORS]
    return Surroundings(
        auth_url=neighbours.auth_url,
        region=REGION,
        password=PASSWORD,
        images=(images[0], images[1]),
        flavors=(flavors[0], flavors[1]),
        hosts=HOSTS,
    )


async def _image(client: httpx.AsyncClient, url: str, name: str) -> str:
    facts = {"name": name, "visibility": "public", "disk_format": "raw", "container_format": "bare"}
    image = str((await _post(client, f"{url}/v2/images", facts))["id"])
    headers = {"Content-Type": "application/octet-stream"}
    sent = await client.put(f"{url}/v2/images/{image}/file", content=IMAGE_BYTES, headers=headers)
    sent.raise_for_status()
    return image


async def _flavor(client: httpx.AsyncClient, url: str, name: str, ram: int, disk: int) -> str:
    facts = {"name": name, "ram": ram, "vcpus": 1, "disk": disk}
    return str((await _post(client, f"{url}/flavors", {"flavor": facts}))["flavor"]["id"])


async def _post(client: httpx.AsyncClient, url: str, body: Any) -> Any:
    answer = await client.post(url, json=body)
    answer.raise_for_status()
    return answer.json()
