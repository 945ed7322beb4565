"""Images of servers in a whole cloud: whole or not there, whatever the server is and whatever happens to its host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.compute.drivers.fake import DISKS
from skep.compute.drivers.fake_disks import FakeDisks
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.api import awaited_images
from skep.domain.ids import InstanceUuid, new_uuid
from skep.processes.all_in_one import AllInOneCloud

HANGS = FakeFailure(operation="snapshot", server="hangs*", hangs=True)
FAILS = FakeFailure(operation="snapshot", server="fails*", error="NoSpaceLeft", message="the disk is full")
HOST = "cell1-host1"


class Images:
    """A cloud of one host, and what a user does there."""

    def __init__(self, cloud: AllInOneCloud, session: ComputeSession) -> None:
        self.cloud = cloud
        self.session = session

    async def glance(self, method: str, path: str, **more: Any) -> Any:
        url = f"{self.cloud.images_url}/v2/images{path}"
        return await self.session.client.request(method, url, headers={"X-Auth-Token": self.session.token}, **more)

    async def upload(self, image: bytes, **properties: str) -> str:
        """Store an image and return its id."""
        described = {
            "id": new_uuid(),
            "name": "guest",
            "disk_format": "raw",
            "container_format": "bare",
            **properties,
        }
        assert (await self.glance("POST", "", json=described)).status_code == 201
        headers = {"X-Auth-Token": self.session.token, "Content-Type": "application/octet-stream"}
        url = f"{self.cloud.images_url}/v2/images/{described['id']}/file"
        assert (await self.session.client.put(url, content=image, headers=headers)).status_code == 204
        return described["id"]

    async def all(self) -> dict[str, dict[str, Any]]:
        """Return all images but that of the installation, by name."""
        return {one["name"]: one for one in (await self.glance("GET", "")).json()["images"] if one["name"] != "tiny"}

    async def data(self, image_id: str) -> bytes:
        return bytes((await self.glance("GET", f"/{image_id}/file")).content)

    async def server(self, uuid: str) -> dict[str, Any]:
        shown: dict[str, Any] = (await self.session.ask("GET", f"/servers/{uuid}")).json()["server"]
        return shown

    async def create(self, name: str = "one", image: str | None = None) -> str:
        """Have a server that runs."""
        boots = image or (await self.glance("GET", "?name=tiny")).json()["images"][0]["id"]
        body = {"server": {"name": name, "imageRef": boots, "flavorRef": "1", "networks": "none"}}
        answer = await self.session.ask("POST", "/servers", body, version="2.37")
        assert answer.status_code == 202, answer.text
        uuid = str(answer.json()["server"]["id"])
        await self.calm(uuid, "ACTIVE")
        return uuid

    async def act(self, uuid: str, body: dict[str, Any], version: str = "2.45") -> Any:
        answer = await self.session.ask("POST", f"/servers/{uuid}/action", body, version=version)
        assert answer.status_code == 202, answer.text
        return answer.json() if answer.content else None

    async def image(self, uuid: str, name: str = "of-it") -> str:
        return str((await self.act(uuid, {"createImage": {"name": name}}))["image_id"])

    async def calm(self, uuid: str, status: str) -> None:
        """Wait until nothing is done to a server any more."""

        async def is_so() -> bool:
            server = await self.server(uuid)
            return (server["status"], server["OS-EXT-STS:task_state"]) == (status, None)

        await eventually(is_so, f"the server is {status}")

    async def nothing_awaited(self) -> None:
        async def none() -> bool:
            return not await self.cloud.plane.databases.api.read(awaited_images.read_all)

        await eventually(none, "no image is awaited")

    def disk(self, uuid: str) -> bytes:
        return FakeDisks(self.cloud.directory.host("cell1", HOST) / DISKS).content(InstanceUuid(uuid), 1)

    def left_on_hosts(self) -> list[Path]:
        return list((self.cloud.directory.root / "snapshots").iterdir())

    async def results(self, uuid: str) -> list[tuple[str, str]]:
        """Return event and result of the latest action."""
        path = f"/servers/{uuid}/os-instance-actions"
        newest = (await self.session.ask("GET", path)).json()["instanceActions"][0]["request_id"]
        found = (await self.session.ask("GET", f"{path}/{newest}")).json()["instanceAction"]
        return [(event["event"], event["result"]) for event in found["events"]]


@asynccontextmanager
async def opened(root: Path, *failures: FakeFailure) -> AsyncIterator[Images]:
    async with (
        serving_cloud(http_config(root, failures=failures), cells=1, hosts=1) as cloud,
        signed_in(cloud) as session,
    ):
        yield Images(cloud, session)


@pytest.mark.parametrize(
    ("halt", "status"), [(None, "ACTIVE"), ("os-stop", "SHUTOFF"), ("pause", "PAUSED"), ("suspend", "SUSPENDED")]
)
async def test_an_image_of_a_server_boots_another_one(tmp_path: Path, halt: str | None, status: str) -> None:
    async with opened(tmp_path) as images:
        uuid = await images.create()
        if halt is not None:
            await images.act(uuid, {halt: None})
            await images.calm(uuid, status)
        image_id = await images.image(uuid)
        await images.calm(uuid, status)
        made = (await images.all())["of-it"]
        assert (made["id"], made["status"], made["visibility"]) == (image_id, "active", "private")
        assert (made["image_type"], made["instance_uuid"]) == ("snapshot", uuid)
        assert await images.data(image_id) == images.disk(uuid) != b""
        assert await images.results(uuid) == [("compute_snapshot_instance", "Success")]
        other = await images.create("other", image_id)
        assert images.disk(other) == images.disk(uuid)
        await images.nothing_awaited()
        assert images.left_on_hosts() == []


async def test_before_2_45_a_header_names_the_image(tmp_path: Path) -> None:
    async with opened(tmp_path) as images:
        uuid = await images.create()
        body = {"createImage": {"name": "of-it"}}
        answer = await images.session.ask("POST", f"/servers/{uuid}/action", body, version="2.44")
        assert (answer.status_code, answer.content) == (202, b"")
        await images.calm(uuid, "ACTIVE")
        made = (await images.all())["of-it"]
        assert answer.headers["Location"] == f"{images.cloud.images_url}/images/{made['id']}"


async def test_a_failure_leaves_the_server_and_no_image(tmp_path: Path) -> None:
    async with opened(tmp_path, FAILS) as images:
        uuid = await images.create("fails-1")
        await images.image(uuid)
        await images.calm(uuid, "ACTIVE")
        assert await images.results(uuid) == [("compute_snapshot_instance", "Error")]
        await images.nothing_awaited()
        assert await images.all() == {}
        [guest] = await images.cloud.plane.drivers[HOST].guests()
        assert guest.power_state.name == "RUNNING"


@pytest.mark.parametrize("end", ["delete", "reset"])
async def test_what_ends_the_task_removes_the_image(tmp_path: Path, end: str) -> None:
    async with opened(tmp_path, HANGS) as images:
        uuid = await images.create("hangs-1")
        await images.image(uuid)

        async def begun() -> bool:
            return bool((await images.server(uuid))["OS-EXT-STS:task_state"] == "image_snapshot")

        await eventually(begun, "its host has begun")
        assert (await images.all())["of-it"]["status"] == "queued"
        if end == "delete":
            assert (await images.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        else:
            await images.act(uuid, {"os-resetState": {"state": "active"}})
        await images.nothing_awaited()
        assert await images.all() == {}
        release(images)


def release(images: Images) -> None:
    for driver in images.cloud.plane.drivers.values():
        driver.release()  # type: ignore[attr-defined]


async def test_a_user_may_delete_the_image_that_is_being_made(tmp_path: Path) -> None:
    async with opened(tmp_path, HANGS) as images:
        uuid = await images.create("hangs-1")
        image_id = await images.image(uuid)
        assert (await images.glance("DELETE", f"/{image_id}")).status_code == 204
        release(images)
        await images.calm(uuid, "ACTIVE")
        assert await images.results(uuid) == [("compute_snapshot_instance", "Error")]
        await images.nothing_awaited()
        assert await images.all() == {}


async def test_a_host_that_restarts_makes_it_anew(tmp_path: Path) -> None:
    async with opened(tmp_path, HANGS) as images:
        uuid = await images.create("hangs-1")
        image_id = await images.image(uuid)
        plane = images.cloud.plane
        [cell] = [cell for cell in plane.cells.values() if cell.name == "cell1"]

        async def begun() -> bool:
            return bool((await images.server(uuid))["OS-EXT-STS:task_state"] == "image_snapshot")

        await eventually(begun, "its host has begun")
        await plane.agents.pop(HOST).stop(0)
        plane.drivers.pop(HOST).close()
        await plane.start_agent(cell, HOST)
        release(images)
        await images.calm(uuid, "ACTIVE")
        assert await images.results(uuid) == [("compute_snapshot_instance", "Success")]
        assert await images.data(image_id) == images.disk(uuid)
        await images.nothing_awaited()


async def test_a_host_that_stays_away_has_no_say(tmp_path: Path) -> None:
    config = http_config(tmp_path, failures=(HANGS,))
    config = msgspec.structs.replace(
        config, conductor=msgspec.structs.replace(config.conductor, task_deadline=1.0, resend_seconds=0.1)
    )
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        uuid = await images.create("hangs-1")
        await images.image(uuid)

        async def begun() -> bool:
            return bool((await images.server(uuid))["OS-EXT-STS:task_state"] == "image_snapshot")

        await eventually(begun, "its host has begun")
        await cloud.plane.agents.pop(HOST).stop(0)
        await images.calm(uuid, "ACTIVE")
        assert await images.results(uuid) == [("compute_snapshot_instance", "Error")]
        await images.nothing_awaited()
        assert await images.all() == {}


async def test_backups_rotate(tmp_path: Path) -> None:
    async with opened(tmp_path) as images:
        uuid = await images.create()
        for number in range(3):
            body = {"createBackup": {"name": f"backup-{number}", "backup_type": "daily", "rotation": 2}}
            await images.act(uuid, body)
            await images.calm(uuid, "ACTIVE")
            assert await images.results(uuid) == [("compute_backup_instance", "Success")]
        await images.nothing_awaited()
        found = await images.all()
        assert {name: one["status"] for name, one in found.items()} == {"backup-1": "active", "backup-2": "active"}
        assert await images.data(found["backup-2"]["id"]) == images.disk(uuid)
        await images.act(uuid, {"createBackup": {"name": "none", "backup_type": "daily", "rotation": 0}})
        await images.calm(uuid, "ACTIVE")
        await images.nothing_awaited()
        assert await images.all() == {}
