"""Another service tells of hosts, as docs/namespaces.md explains, and servers go where it says."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from skep.config.scheduler import SchedulerSettings
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.placement.settings import DEFAULT_FILTERS
from skep.processes.all_in_one import AllInOneCloud

EXAMPLE = Path(__file__).parents[3] / "examples" / "volume_states.py"
VERSION = "2.96"


@dataclass
class Volumes:
    """A cloud with the volume filter, and its admin."""

    cloud: AllInOneCloud
    session: ComputeSession
    image: str

    @property
    def admin_url(self) -> str:
        return f"{self.cloud.api_url.removesuffix('/v2.1')}/admin/v1"

    async def admin(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        sent = headers or {"X-Auth-Token": self.session.token}
        return await self.session.client.request(method, f"{self.admin_url}{path}", json=body, headers=sent)

    async def hosts(self) -> list[str]:
        answer = await self.admin("GET", "/host-states?fields=usage.host")
        return sorted(one["usage.host"] for one in answer.json()["host_states"])

    async def tell(self, *hosts: str) -> dict[str, Any]:
        """Run the example."""
        named = [word for host in hosts for word in ("--host", host)]
        command = [sys.executable, str(EXAMPLE), "--url", self.admin_url, "--admin-token", self.session.token, *named]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        known: dict[str, Any] = json.loads(done.stdout)
        return known

    async def create(self, flavor: str = "1", **hints: str) -> httpx.Response:
        server = {"name": "one", "flavorRef": flavor, "imageRef": self.image, "networks": "none"}
        body = {"server": server, **({"os:scheduler_hints": hints} if hints else {})}
        return await self.session.ask("POST", "/servers", body, version=VERSION)

    async def settled(self, created: httpx.Response) -> dict[str, Any]:
        assert created.status_code == 202, created.text
        path = f"/servers/{created.json()['server']['id']}"

        async def read() -> Any:
            shown = (await self.session.ask("GET", path, version=VERSION)).json()["server"]
            return shown if shown["status"] in ("ACTIVE", "ERROR") else None

        found: dict[str, Any] = await eventually(read, "the server is settled")
        return found

    async def flavor(self, name: str, **specs: str) -> str:
        """Make a small flavor with extra specs."""
        facts = {"name": name, "id": name, "ram": 64, "vcpus": 1, "disk": 0}
        assert (await self.session.ask("POST", "/flavors", {"flavor": facts})).status_code == 200
        assert (await self.specs(name, **specs)).status_code == 200
        return name

    async def specs(self, flavor: str, **specs: str) -> httpx.Response:
        body = {"extra_specs": {f"volume:{field}": wanted for field, wanted in specs.items()}}
        return await self.session.ask("POST", f"/flavors/{flavor}/os-extra_specs", body, version=VERSION)


@pytest.fixture
async def volumes(tmp_path: Path) -> AsyncIterator[Volumes]:
    chosen = SchedulerSettings(enabled_filters=(*DEFAULT_FILTERS, "VolumeFilter"))
    config = msgspec.structs.replace(http_config(tmp_path), scheduler=chosen)
    async with serving_cloud(config, cells=1, hosts=3) as cloud, signed_in(cloud) as session:
        found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        yield Volumes(cloud, session, found.json()["images"][0]["id"])


async def test_servers_go_to_where_the_volume_service_says(volumes: Volumes) -> None:
    first, second, third = await volumes.hosts()
    known = await volumes.tell(f"{first}=50:volume-a,volume-b", f"{second}=500:volume-c")
    assert known == {
        first: {"free_gb": 50, "volumes": ["volume-a", "volume-b"]},
        second: {"free_gb": 500, "volumes": ["volume-c"]},
    }
    for volume, host in (("volume-b", first), ("volume-c", second)):
        server = await volumes.settled(await volumes.create(same_host_as_volume=volume))
        assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", host)
    roomy = await volumes.flavor("roomy", free_gb=">= 100")
    server = await volumes.settled(await volumes.create(roomy))
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", second)
    await volumes.tell(f"{third}=1000:", f"{second}=10:volume-c")
    server = await volumes.settled(await volumes.create(roomy))
    assert server["OS-EXT-SRV-ATTR:host"] == third
    huge = await volumes.flavor("huge", free_gb=">= 100000")
    server = await volumes.settled(await volumes.create(huge))
    assert server["status"] == "ERROR"
    assert "0 left by volume:free_gb >= 100000" in server["fault"]["message"]
    nowhere = await volumes.settled(await volumes.create(same_host_as_volume="volume-z"))
    assert "hint same_host_as_volume" in nowhere["fault"]["message"]


async def test_hints_and_extra_specs_are_checked(volumes: Volumes) -> None:
    refused = await volumes.create(same_host_as_volume="")
    assert (refused.status_code, "same_host_as_volume" in refused.text) == (400, True)
    await volumes.flavor("checked", free_gb="5")
    wrong = await volumes.specs("checked", free_gb="plenty")
    assert (wrong.status_code, "volume:free_gb" in wrong.text) == (400, True)


async def test_a_service_notices_a_new_epoch_and_writes_again(volumes: Volumes) -> None:
    first, *_ = await volumes.hosts()
    await volumes.tell(f"{first}=50:volume-a")
    made = (await volumes.admin("POST", "/namespaces/volume/credentials", {})).json()["credential"]
    bearer = {"Authorization": f"Bearer {made['secret']}"}
    before = (await volumes.admin("GET", "/namespaces/volume/states", **bearer)).json()
    assert [one["key"] for one in before["states"]] == [first]
    backend = volumes.cloud.plane.backend
    assert backend is not None
    await backend.begin_epoch(await backend.epoch())

    async def gone() -> bool:
        answer = (await volumes.admin("GET", "/namespaces/volume/states", **bearer)).json()
        return bool(answer.get("epoch") not in (None, before["epoch"]) and not answer["states"])

    await eventually(gone, "the states are gone and the epoch says why")
    assert (await volumes.tell(f"{first}=70:volume-a"))[first]["free_gb"] == 70
    await eventually(lambda: _up(volumes), "hosts are known again")
    server = await volumes.settled(await volumes.create(same_host_as_volume="volume-a"))
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", first)


async def _up(volumes: Volumes) -> bool:
    answer = await volumes.admin("GET", "/host-states?condition=up=true&condition=ready=true")
    return len(answer.json()["host_states"]) == 3
