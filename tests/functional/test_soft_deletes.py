"""Soft deletes in a whole cloud: the guest is stopped and stays, the quota is free, and in the end nothing is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from skep.compute.drivers.base import Guest
from skep.compute.drivers.fake import GUESTS_FILE
from skep.compute.drivers.guest_log import read_events
from skep.config.sections import QuotaSettings, RetentionSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.api import quotas, task_charges
from skep.database.api.tables import quota_charges
from skep.database.cell import instances
from skep.database.engine import Database
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.instances import PowerState
from skep.domain.quotas import UNLIMITED
from skep.processes.all_in_one import AllInOneCloud

FOR_EVER = 86_400


class Keeping:
    """A cloud that keeps deleted servers, and its administrator."""

    def __init__(self, cloud: AllInOneCloud, session: ComputeSession, image: str) -> None:
        self.cloud = cloud
        self.session = session
        self.image = image

    async def create(self) -> InstanceUuid:
        server = {"name": "one", "flavorRef": "1", "imageRef": self.image, "networks": "none"}
        answer = await self.session.ask("POST", "/servers", {"server": server}, version="2.90")
        assert answer.status_code == 202, answer.text
        uuid = InstanceUuid(answer.json()["server"]["id"])
        await self.becomes(uuid, "ACTIVE")
        return uuid

    async def act(self, uuid: str, key: str) -> int:
        return (await self.session.ask("POST", f"/servers/{uuid}/action", {key: None})).status_code

    async def delete(self, uuid: str) -> None:
        assert (await self.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204

    async def becomes(self, uuid: str, status: str) -> None:
        async def probe() -> bool:
            answer = await self.session.ask("GET", f"/servers/{uuid}")
            if answer.status_code == 404:
                return not status
            server = answer.json()["server"]
            return (server["status"], server["OS-EXT-STS:task_state"]) == (status, None)

        await eventually(probe, f"the server is {status or 'gone'}")

    async def uses(self, servers: int) -> None:
        async def probe() -> bool:
            limits = (await self.session.ask("GET", "/limits")).json()["limits"]["absolute"]
            return bool(limits["totalInstancesUsed"] == servers) and not await self.waits()

        await eventually(probe, f"{servers} servers are charged")

    async def waits(self) -> bool:
        return bool(await self.database.read(task_charges.waiting))

    @property
    def database(self) -> Database:
        return self.cloud.plane.databases.api

    async def guests(self) -> list[Guest]:
        return [guest for driver in self.cloud.plane.drivers.values() for guest in await driver.guests()]

    def events(self) -> list[str]:
        """Return what happened to the guests of all hosts, by the files that stand for hypervisors."""
        files = sorted(self.cloud.directory.root.rglob(GUESTS_FILE))
        return [event.event for file in files for event in read_events(file)]


@asynccontextmanager
async def keeping(root: Path, seconds: int, servers: int = 10) -> AsyncIterator[Keeping]:
    config = http_config(root, quota=QuotaSettings(instances=servers))
    config = msgspec.structs.replace(config, retention=RetentionSettings(reclaim_instance_interval=seconds))
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        yield Keeping(cloud, session, images.json()["images"][0]["id"])


async def test_a_deleted_server_is_restored_with_its_guest(tmp_path: Path) -> None:
    async with keeping(tmp_path, FOR_EVER, servers=1) as cloud:
        uuid = await cloud.create()
        await cloud.delete(uuid)
        await cloud.becomes(uuid, "SOFT_DELETED")
        await cloud.uses(0)
        [guest] = await cloud.guests()
        assert (guest.instance, guest.attempt, guest.power_state) == (uuid, 1, PowerState.SHUTDOWN)
        assert await cloud.act(uuid, "restore") == 202
        await cloud.becomes(uuid, "ACTIVE")
        await cloud.uses(1)
        [guest] = await cloud.guests()
        assert (guest.attempt, guest.power_state) == (1, PowerState.RUNNING)
        assert cloud.events() == ["spawn_begun", "spawned", "powered_off", "powered_on"], "it is the guest that was"
        await cloud.delete(uuid)
        await cloud.becomes(uuid, "SOFT_DELETED")
        await cloud.uses(0)
        other = await cloud.create()
        assert await cloud.act(uuid, "restore") == 403
        await cloud.uses(1)
        for one in (uuid, other):
            assert await cloud.act(one, "forceDelete") == 202
            await cloud.becomes(one, "")
        await cloud.uses(0)
        assert await cloud.guests() == []


async def test_what_is_kept_long_enough_is_deleted(tmp_path: Path) -> None:
    async with keeping(tmp_path, 1) as cloud:
        deleted, live = await cloud.create(), await cloud.create()
        await cloud.delete(deleted)
        await cloud.becomes(deleted, "")
        await cloud.becomes(live, "ACTIVE")
        await cloud.uses(1)
        assert [guest.instance for guest in await cloud.guests()] == [live]
        assert cloud.events().count("powered_off") == 1
        assert cloud.events().count("destroyed") == 1
        database = cloud.cloud.plane.databases.cells["cell1"]
        row = await database.read(partial(instances.get, uuid=deleted, deleted=True))
        assert row is not None
        assert row.deleted_at is not None


async def test_a_restore_that_was_charged_and_not_begun_is_given_back(tmp_path: Path) -> None:
    async with keeping(tmp_path, FOR_EVER) as cloud:
        uuid = await cloud.create()
        await cloud.delete(uuid)
        await cloud.becomes(uuid, "SOFT_DELETED")
        await cloud.uses(0)
        database = cloud.cloud.plane.databases.cells["cell1"]
        row = await database.read(partial(instances.get, uuid=uuid))
        assert row is not None
        unlimited = dict.fromkeys(("instances", "cores", "ram"), UNLIMITED)
        charge = partial(task_charges.charge_again, server=row, task_id="req-lost", limits=unlimited)
        await cloud.database.write(partial(charge, now=cloud.cloud.clock.now()))
        assert await cloud.database.read(partial(quotas.used, project=ProjectId(row.project_id))) != {}
        assert await cloud.waits(), "its task may be written the next moment"
        await cloud.database.write(lambda connection: connection.execute(quota_charges.update().values(task_at=1)))
        await cloud.uses(0)
        assert await cloud.act(uuid, "restore") == 202
        await cloud.becomes(uuid, "ACTIVE")
        await cloud.uses(1)
