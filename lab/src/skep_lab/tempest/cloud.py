"""Clouds for the suite: hosts in one cell, beside real services of others, or beside Skep's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import msgspec

from skep.config import load
from skep.config.sections import QuotaSettings
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.ports import free_port
from skep.processes.seeds import passwords_in
from skep.processes.supervisor.cloud import SupervisedCloud
from skep_lab.neighbours.all_services import all_neighbours
from skep_lab.neighbours.identity_and_images import RealNeighbours, real_neighbours, sign_in
from skep_lab.neighbours.programs import PASSWORD, REGION
from skep_lab.neighbours.volumes import MULTIATTACH
from skep_lab.tempest.settings import Surroundings

Pair = tuple[str, str]
HOSTS = 4
"""All in one cell, for moves stay in theirs, and the suite takes any host for a target."""
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Furniture:
    """What the suite finds in a cloud: two images with the same bytes, two flavors."""

    image: bytes
    properties: Mapping[str, str]
    """Of the images."""
    flavors: tuple[tuple[str, int, int], ...]
    """Name, MiB of memory, GiB of disk."""


PLAIN = Furniture(b"tempest " * 8192, {"disk_format": "raw"}, (("tempest.nano", 64, 1), ("tempest.micro", 128, 2)))
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
plugs = true
spawn_delay = 0.1
destroy_delay = 0.1
power_delay = 0.1
"""


WITH_NETWORKS_AND_VOLUMES = """
[networks]
kind = "neutron"
endpoint = "{networks}"
[volumes]
kind = "cinder"
endpoint = "{volumes}"
"""


OWN_QUOTA = QuotaSettings(instances=100, cores=200, ram=512_000, server_groups=100)


@asynccontextmanager
async def bare_surroundings(work: Path) -> AsyncIterator[Surroundings]:
    """Run a cloud beside Keystone and Glance, with all that the suite asks for, as long as the block lasts."""
    port = free_port()
    async with (
        real_neighbours(work / "neighbours", f"http://127.0.0.1:{port}/v2.1") as neighbours,
        _cloud(work, port, neighbours) as cloud,
    ):
        yield await _furnish(neighbours, cloud.api_url)


@asynccontextmanager
async def surroundings(work: Path) -> AsyncIterator[Surroundings]:
    """Run a cloud beside Keystone, Glance, Neutron and Cinder as long as the block lasts."""
    port = free_port()
    async with all_neighbours(work / "neighbours", f"http://127.0.0.1:{port}/v2.1") as four:
        more = WITH_NETWORKS_AND_VOLUMES.format(networks=four.neutron.url, volumes=four.cinder.url)
        async with _cloud(work, port, four.first, more) as cloud:
            furnished = await _furnish(four.first, cloud.api_url)
            yield replace(furnished, external_network=four.external_network, multiattach_type=MULTIATTACH)


@asynccontextmanager
async def _cloud(work: Path, port: int, neighbours: RealNeighbours, more: str = "") -> AsyncIterator[AllInOneCloud]:
    file = work / "skep.toml"
    known = {"directory": work / "state", "port": port, "auth_url": neighbours.auth_url, "password": PASSWORD}
    file.write_text(SETTINGS.format(**known) + more)
    async with serving_cloud(load(file, {}).config, cells=1, hosts=HOSTS) as cloud:
        yield cloud


async def _furnish(neighbours: RealNeighbours, compute_url: str) -> Surroundings:
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as client:
        at = f"{neighbours.auth_url}/"
        async with httpx.AsyncClient(base_url=at, timeout=SECONDS, trust_env=False) as keystone:
            client.headers["X-Auth-Token"] = await sign_in(keystone, "admin", "admin")
        images, flavors = await _made(client, neighbours.glance.url, compute_url, PLAIN)
    return Surroundings(
        auth_url=neighbours.auth_url, region=REGION, password=PASSWORD, images=images, flavors=flavors, hosts=HOSTS
    )


@asynccontextmanager
async def own_surroundings(work: Path) -> AsyncIterator[Surroundings]:
    """Run a cloud with identity, images and networks of its own, as long as the block lasts."""
    config = http_config(work, quota=OWN_QUOTA)
    networks = msgspec.structs.replace(config.networks, quota_security_group=100, quota_router=100)
    config = msgspec.structs.replace(config, networks=networks)
    async with (
        serving_cloud(config, cells=1, hosts=HOSTS) as cloud,
        furnished(cloud, PLAIN, hosts=HOSTS) as found,
    ):
        yield found


@asynccontextmanager
async def furnished(
    cloud: AllInOneCloud | SupervisedCloud, furniture: Furniture, *, hosts: int
) -> AsyncIterator[Surroundings]:
    """Have furniture in a cloud with services of its own, as its administrator, as long as the block lasts."""
    async with (
        signed_in(cloud, "admin", "admin") as admin,
        httpx.AsyncClient(timeout=SECONDS, trust_env=False, headers={"X-Auth-Token": admin.token}) as client,
    ):
        images, flavors = await _made(client, cloud.images_url, cloud.api_url, furniture)
        outside = await client.get(f"{cloud.networks_url}/v2.0/networks", params={"router:external": "true"})
        yield Surroundings(
            auth_url=cloud.identity_url,
            region=REGION,
            password=passwords_in(cloud.clouds_yaml)["admin"],
            images=images,
            flavors=flavors,
            hosts=hosts,
            external_network=outside.json()["networks"][0]["id"],
        )


async def _made(
    client: httpx.AsyncClient, images_url: str, compute_url: str, furniture: Furniture
) -> tuple[Pair, Pair]:
    """Make two images and two flavors."""
    first, second = [await _image(client, images_url, name, furniture) for name in ("tempest-1", "tempest-2")]
    small, large = [await _flavor(client, compute_url, *facts) for facts in furniture.flavors]
    return (first, second), (small, large)


async def _image(client: httpx.AsyncClient, url: str, name: str, furniture: Furniture) -> str:
    facts = {"name": name, "visibility": "public", "container_format": "bare", **furniture.properties}
    image = str((await _post(client, f"{url}/v2/images", facts))["id"])
    headers = {"Content-Type": "application/octet-stream"}
    sent = await client.put(f"{url}/v2/images/{image}/file", content=furniture.image, headers=headers)
    sent.raise_for_status()
    return image


async def _flavor(client: httpx.AsyncClient, url: str, name: str, ram: int, disk: int) -> str:
    facts = {"name": name, "ram": ram, "vcpus": 1, "disk": disk}
    return str((await _post(client, f"{url}/flavors", {"flavor": facts}))["flavor"]["id"])


async def _post(client: httpx.AsyncClient, url: str, body: Any) -> Any:
    answer = await client.post(url, json=body)
    answer.raise_for_status()
    return answer.json()
