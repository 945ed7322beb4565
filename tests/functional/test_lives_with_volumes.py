"""Lives of servers that boot from a volume, in a whole cloud beside a volume service in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.domain import event_types
from skep.domain.actions import ACTIONS
from skep.domain.errors import Unavailable
from tests.functional.test_event_types import listening
from tests.support.memory_volumes import MemoryVolumes

NEWEST = "2.104"


class Lives:
    """A server that boots from a volume, and what the volume service has of it."""

    images_url = ""

    def __init__(self, volumes: MemoryVolumes, compute: ComputeSession, server: str, image: str) -> None:
        self.volumes = volumes
        self.compute = compute
        self.server = server
        self.image = image

    async def shown(self) -> dict[str, Any]:
        answer = await self.compute.ask("GET", f"/servers/{self.server}", version=NEWEST)
        found: dict[str, Any] = answer.json()["server"]
        return found

    async def image_named(self, name: str) -> dict[str, Any]:
        """Return an image as the image service shows it; empty: there is none."""
        found = await self.compute.client.get(
            f"{self.images_url}/v2/images", params={"name": name}, headers={"X-Auth-Token": self.compute.token}
        )
        return next(iter(found.json()["images"]), {})

    async def act(self, key: str, said: Any = None) -> str:
        """Ask for an action; return its request."""
        answer = await self.compute.ask("POST", f"/servers/{self.server}/action", {key: said}, version="2.92")
        assert answer.is_success, answer.text
        return str(answer.headers["x-openstack-request-id"])

    async def becomes(self, status: str) -> None:
        async def probe() -> bool:
            shown = await self.shown()
            assert status == "ERROR" or shown["status"] != "ERROR", shown
            return shown["status"] == status and shown["OS-EXT-STS:task_state"] is None

        await eventually(probe, f"the server is {status}")

    async def root(self) -> str:
        [one] = (await self.shown())["os-extended-volumes:volumes_attached"]
        return str(one["id"])

    async def connected(self, status: str = "attached") -> None:
        """Wait until the volume is attached once, to the host of the server."""
        root = await self.root()

        async def probe() -> bool:
            host = (await self.shown())["OS-EXT-SRV-ATTR:host"] or ""
            return self.volumes.of(root) == [(self.server, status, host)]

        await eventually(probe, "the volume is where its server is")


@asynccontextmanager
async def living(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lives]:
    volumes = MemoryVolumes()
    monkeypatch.setattr("skep.processes.own_services.NoVolumes", lambda: volumes)
    async with serving_cloud(http_config(root), cells=1, hosts=2) as cloud, signed_in(cloud) as admin:
        listed = await admin.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": admin.token})
        image = listed.json()["images"][0]
        disk = {
            "source_type": "image",
            "destination_type": "volume",
            "uuid": image["id"],
            "volume_size": 1,
            "boot_index": 0,
            "delete_on_termination": True,
        }
        asked = {"name": "one", "flavorRef": "1", "networks": "none", "block_device_mapping_v2": [disk]}
        answer = await admin.ask("POST", "/servers", {"server": asked}, version=NEWEST)
        assert answer.status_code == 202, answer.text
        lives = Lives(volumes, admin, answer.json()["server"]["id"], image["id"])
        lives.images_url = cloud.images_url
        await lives.becomes("ACTIVE")
        await lives.connected()
        yield lives


async def test_a_server_is_shelved_without_an_image_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves its host at once; its volume is kept for it, and is connected where it is unshelved."""
    with listening() as told:
        async with living(tmp_path, monkeypatch) as one:
            root = await one.root()
            request = await one.act("shelve")
            await told.ends(request, event_types.sent(ACTIONS["shelve_offload"]))
            shelved = event_types.sent(ACTIONS["shelve_volume_backed"])
            assert told.of(request)[: len(shelved)] == shelved
            await one.becomes("SHELVED_OFFLOADED")
            await one.connected("reserved")
            assert (await one.shown())["image"] == ""
            await one.act("unshelve")
            await one.becomes("ACTIVE")
            await one.connected()
            assert await one.root() == root


async def test_an_image_of_a_server_names_snapshots_of_its_volumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No host takes part; a server of the image has volumes of the snapshots."""
    with listening() as told:
        async with living(tmp_path, monkeypatch) as one:
            request = await one.act("createImage", {"name": "copy", "metadata": {"mine": "yes"}})
            await told.ends(request, event_types.sent(ACTIONS["snapshot_volume_backed"]))
            [snapshot] = one.volumes.snapshots.values()
            assert (snapshot.volume_id, snapshot.name) == (await one.root(), "snapshot for copy")
            copy = await one.image_named("copy")
            assert (copy["status"], copy["size"], copy["mine"], copy["bdm_v2"]) == ("active", 0, "yes", "True")
            [disk] = json.loads(copy["block_device_mapping"])
            assert (disk["snapshot_id"], disk["boot_index"], copy["root_device_name"]) == (
                snapshot.id,
                0,
                disk["device_name"],
            )
            asked = {"name": "two", "flavorRef": "1", "networks": "none", "imageRef": copy["id"]}
            answer = await one.compute.ask("POST", "/servers", {"server": asked}, version=NEWEST)
            assert answer.status_code == 202, answer.text
            other = Lives(one.volumes, one.compute, answer.json()["server"]["id"], copy["id"])
            await other.becomes("ACTIVE")
            assert await other.root() != await one.root()


async def test_an_image_that_comes_to_nothing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with living(tmp_path, monkeypatch) as one:
        for call in ("create_snapshot",):
            one.volumes.failing[call] = Unavailable("the volume service does not answer")
            body = {"createImage": {"name": "copy"}}
            answer = await one.compute.ask("POST", f"/servers/{one.server}/action", body, version="2.92")
            assert answer.status_code == 503
        assert one.volumes.snapshots == {}
        assert await one.image_named("copy") == {}


async def test_a_volume_goes_where_its_server_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a migration, a resize to a flavor without a larger disk, and back; then it ends with the server."""
    async with living(tmp_path, monkeypatch) as one:
        before = (await one.shown())["OS-EXT-SRV-ATTR:host"]
        await one.act("migrate")
        await one.becomes("VERIFY_RESIZE")
        assert (await one.shown())["OS-EXT-SRV-ATTR:host"] != before
        await one.connected()
        await one.act("revertResize")
        await one.becomes("ACTIVE")
        await one.connected()
        root = await one.root()
        await one.act("rebuild", {"imageRef": one.image})
        await one.becomes("ACTIVE")
        await one.connected()
        answer = await one.compute.ask("DELETE", f"/servers/{one.server}")
        assert answer.status_code == 204

        async def gone() -> bool:
            return root not in one.volumes.volumes and not one.volumes.of(root)

        await eventually(gone, "the volume ends with its server")
