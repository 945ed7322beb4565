"""Filters of Nova's in a whole cloud: what users ask comes to the hosts that have it, and limits hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from skep.config.scheduler import SchedulerSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.placement.settings import DEFAULT_FILTERS

VERSION = "2.96"


class Users:
    """A signed-in administrator who creates small servers."""

    def __init__(self, session: ComputeSession, image: str) -> None:
        self.session = session
        self.image = image

    async def create(self, flavor: str = "1", **hints: Any) -> httpx.Response:
        server = {"name": "one", "flavorRef": flavor, "imageRef": self.image, "networks": "none"}
        body = {"server": server, "os:scheduler_hints": hints}
        return await self.session.ask("POST", "/servers", body, version=VERSION)

    async def settled(self, flavor: str = "1", **hints: Any) -> dict[str, Any]:
        created = await self.create(flavor, **hints)
        assert created.status_code == 202, created.text
        path = f"/servers/{created.json()['server']['id']}"

        async def read() -> Any:
            shown = (await self.session.ask("GET", path, version=VERSION)).json()["server"]
            return shown if shown["status"] in ("ACTIVE", "ERROR") else None

        found: dict[str, Any] = await eventually(read, "the server is settled")
        return found

    async def flavor(self, name: str, extra_specs: dict[str, str]) -> str:
        facts = {"name": name, "id": name, "ram": 64, "vcpus": 1, "disk": 0}
        assert (await self.session.ask("POST", "/flavors", {"flavor": facts})).status_code == 200
        body = {"extra_specs": extra_specs}
        assert (await self.session.ask("POST", f"/flavors/{name}/os-extra_specs", body)).status_code == 200
        return name

    async def hosts(self) -> list[str]:
        found = (await self.session.ask("GET", "/os-hypervisors/detail", version=VERSION)).json()["hypervisors"]
        return sorted(one["service"]["host"] for one in found)


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[Users]:
    chosen = SchedulerSettings(
        enabled_filters=(*DEFAULT_FILTERS, "JsonFilter", "NumInstancesFilter"), max_instances_per_host=2
    )
    config = msgspec.structs.replace(http_config(tmp_path), scheduler=chosen)
    async with serving_cloud(config, cells=1, hosts=3) as cloud, signed_in(cloud) as session:
        found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        yield Users(session, found.json()["images"][0]["id"])


async def test_a_query_names_the_host_and_so_many_servers_are_there(users: Users) -> None:
    first, second, _ = await users.hosts()
    wanted = f'["=", "$host", "{second}"]'
    for _ in range(2):
        server = await users.settled(query=wanted)
        assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", second)
    third = await users.settled(query=wanted)
    assert third["status"] == "ERROR"
    assert "0 left by" in third["fault"]["message"]
    assert "servers per host" in third["fault"]["message"]
    server = await users.settled(query=["in", "$host", first, second])
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", first)
    refused = await users.create(query='["=", "$host"')
    assert (refused.status_code, "os:scheduler_hints.query" in refused.text) == (400, True)


async def test_flavors_ask_for_what_hosts_are(users: Users) -> None:
    fake = await users.flavor(
        "fake", {"capabilities:hypervisor_type": "fake", "capabilities:cpu_info:features": "<in> vmx"}
    )
    assert (await users.settled(fake))["status"] == "ACTIVE"
    arm = await users.flavor("arm", {"capabilities:cpu_info:arch": "aarch64"})
    server = await users.settled(arm)
    assert server["status"] == "ERROR"
    assert "0 left by capabilities (cpu_info:arch aarch64)" in server["fault"]["message"]
