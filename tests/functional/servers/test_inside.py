"""Pinned CPUs, pages and devices as users ask for them: by flavors; what contradicts itself is refused with its key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.compute import FakeDevicesSettings
from skep.config.pci import PciAlias, PciSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in

VERSION = "2.96"
PINNED = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2", "hw:mem_page_size": "large"}


class Users:
    """A signed-in administrator."""

    def __init__(self, session: ComputeSession, image: str) -> None:
        self.session = session
        self.image = image

    async def flavor(self, name: str, extra_specs: dict[str, str]) -> None:
        facts = {"name": name, "id": name, "ram": 64, "vcpus": 2, "disk": 0}
        assert (await self.session.ask("POST", "/flavors", {"flavor": facts})).status_code == 200
        body = {"extra_specs": extra_specs}
        assert (await self.session.ask("POST", f"/flavors/{name}/os-extra_specs", body)).status_code == 200

    async def create(self, flavor: str) -> Any:
        server = {"name": "one", "flavorRef": flavor, "imageRef": self.image, "networks": "none"}
        return await self.session.ask("POST", "/servers", {"server": server}, version=VERSION)

    async def settled(self, flavor: str) -> dict[str, Any]:
        created = await self.create(flavor)
        assert created.status_code == 202, created.text
        path = f"/servers/{created.json()['server']['id']}"

        async def read() -> Any:
            shown = (await self.session.ask("GET", path, version=VERSION)).json()["server"]
            return shown if shown["status"] in ("ACTIVE", "ERROR") else None

        found: dict[str, Any] = await eventually(read, "the server is settled")
        return found


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[Users]:
    config = http_config(tmp_path)
    gpus = FakeDevicesSettings(count=1, vendor_id="10de", product_id="1eb8")
    fake = msgspec.structs.replace(
        config.compute.fake, numa_cells=2, dedicated_cpus=8, huge_pages_mb=1024, devices=(gpus,)
    )
    compute = msgspec.structs.replace(config.compute, fake=fake)
    alias = PciAlias(name="gpu", vendor_id="10de", product_id="1eb8", numa_policy="required")
    config = msgspec.structs.replace(config, compute=compute, pci=PciSettings(alias=(alias,)))
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        yield Users(session, found.json()["images"][0]["id"])


async def test_flavors_get_what_they_ask_for_until_it_is_gone(users: Users) -> None:
    await users.flavor("gpu", {**PINNED, "pci_passthrough:alias": "gpu:1"})
    first = await users.settled("gpu")
    assert first["status"] == "ACTIVE"
    second = await users.settled("gpu")
    assert second["status"] == "ERROR"
    assert "0 left by capacity" in second["fault"]["message"]
    await users.flavor("plain", PINNED)
    assert (await users.settled("plain"))["status"] == "ACTIVE"


@pytest.mark.parametrize(
    ("specs", "key"),
    [
        ({"hw:cpu_policy": "dedicated", "resources:VCPU": "2"}, "resources:VCPU"),
        ({"hw:cpu_thread_policy": "require"}, "hw:cpu_thread_policy"),
        ({"hw:numa_nodes": "3"}, "hw:numa_nodes"),
        ({"pci_passthrough:alias": "tpu:1"}, "pci_passthrough:alias"),
        ({"resources1:NO_SUCH_CLASS": "1"}, "resources1:NO_SUCH_CLASS"),
        ({"trait:NO_SUCH_TRAIT": "required"}, "trait:NO_SUCH_TRAIT"),
        ({"trait:any_of": "CUSTOM_A,nothing"}, "trait:any_of"),
        ({"resources1:VGPU": "1", "group_policy": "apart"}, "group_policy"),
    ],
)
async def test_what_cannot_be_is_refused_with_its_key(users: Users, specs: dict[str, str], key: str) -> None:
    await users.flavor("bad", specs)
    refused = await users.create("bad")
    assert refused.status_code == 400
    assert key in refused.json()["badRequest"]["message"]
