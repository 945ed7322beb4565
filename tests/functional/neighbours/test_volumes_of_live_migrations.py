"""Volumes of servers that are migrated live: on both hosts while the guest is copied, and on one after that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skep.compute.drivers.fake import FakeDriver
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession
from skep.domain.ids import InstanceUuid
from skep_lab.cinder_twin.store import SHARED_TYPE
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_cinder import NEWEST, BesideCinder, brought
from tests.support.cloud_beside import cloud_beside
from tests.support.live_migrating import LiveMigrating

NEVER_DONE = FakeFailure(operation="converge")
"""The copying goes on until it is ended."""


def attaches(method: str, path: str) -> bool:
    """Tell whether an attachment is made."""
    return method == "POST" and path.endswith("/attachments")


class Going(LiveMigrating):
    """A server that boots from a volume and has another one, and the admin who moves it."""

    def __init__(self, demo: BesideCinder, admin: ComputeSession) -> None:
        self.demo = demo
        self.admin = admin
        self.volumes = [demo.volume(), demo.volume()]
        demo.store.volumes[self.volumes[0]].bootable = True
        self.uuid = ""

    async def build(self) -> None:
        root, more = self.volumes
        disks = [{**brought(root), "boot_index": 0}, {**brought(more), "boot_index": None}]
        body = {"name": "one", "flavorRef": "1", "networks": "none", "block_device_mapping_v2": disks}
        answer = await self.demo.compute.ask("POST", "/servers", {"server": body}, version=NEWEST)
        assert answer.status_code == 202, answer.text
        self.uuid = str(answer.json()["server"]["id"])
        await self.demo.becomes(self.uuid, "ACTIVE")

    def driver(self, host: str) -> FakeDriver:
        driver = self.demo.beside.cloud.plane.drivers[host]
        assert isinstance(driver, FakeDriver)
        return driver

    def used(self, host: str) -> list[str]:
        """Return the volumes that the guest on a host uses."""
        return sorted(one.volume_id for one in self.driver(host).volumes(InstanceUuid(self.uuid)))

    def on(self, *hosts: str) -> bool:
        """Tell whether the service has each volume in use on these hosts, and on no other."""
        there = self.demo.attached(self.uuid)
        wanted = sorted(("attached", host) for host in hosts)
        in_use = all(self.demo.store.volumes[one].status == "in-use" for one in self.volumes)
        return in_use and {one: sorted(of_it) for one, of_it in there.items()} == dict.fromkeys(self.volumes, wanted)

    async def is_only_on(self, host: str) -> None:
        """Wait until the server and its volumes are on one host, and nothing differs."""
        assert await self.host() == host

        async def only_there() -> bool:
            return self.on(host)

        await eventually(only_there, f"the volumes are on {host} only")
        assert self.used(host) == sorted(self.volumes)
        for other in self.demo.beside.cloud.plane.drivers:
            assert other == host or self.used(other) == []
        await self.no_differences()

    async def no_differences(self) -> None:
        """Wait until nothing differs between databases, hosts and Cinder."""
        url = f"{self.demo.beside.cloud.api_url.removesuffix('/v2.1')}/admin/v1/audit"

        async def none() -> bool:
            found = await self.admin.client.get(url, headers={"X-Auth-Token": self.admin.token})
            assert found.status_code == 200, found.text
            audit = found.json()["audit"]
            return not audit["differences"] and not audit["unread"]

        await eventually(none, "nothing differs")

    async def restart(self) -> None:
        """End the cloud in the middle, and begin it anew."""
        await self.demo.restart()
        self.admin = await self.demo.beside.session("admin", "admin")


@asynccontextmanager
async def going(root: Path, *failures: FakeFailure, connects: bool = True) -> AsyncIterator[Going]:
    async with cloud_beside(root, *failures, volumes=True, hosts=2, attaches=connects) as beside:
        demo = BesideCinder(beside, await beside.session(), await beside.image())
        one = Going(demo, await beside.session("admin", "admin"))
        await one.build()
        yield one


async def test_volumes_are_on_both_hosts_while_the_guest_is_copied(tmp_path: Path) -> None:
    async with going(tmp_path, NEVER_DONE) as one:
        source = await one.host()
        await one.begin()
        target = await one.copying()
        assert one.on(source, target)
        assert (one.used(source), one.used(target)) == (sorted(one.volumes), [])
        await one.no_differences()
        await one.force()
        await one.ends_as("completed")
        await one.is_only_on(target)
        await one.demo.delete(one.uuid)
        await one.demo.left(*one.volumes)


async def test_an_abort_leaves_them_where_they_were(tmp_path: Path) -> None:
    async with going(tmp_path, NEVER_DONE) as one:
        source = await one.host()
        for _ in range(2):
            await one.begin()
            await one.copying()
            await one.end("DELETE")
            await one.ends_as("cancelled")
            await one.is_only_on(source)
        await one.begin()
        target = await one.copying()
        await one.force()
        await one.ends_as("completed")
        await one.is_only_on(target)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("operation", ["await_guest", "copy_guest", "hand_over"])
async def test_a_failure_on_the_way(tmp_path: Path, operation: Any) -> None:
    async with going(tmp_path, FakeFailure(operation=operation, times=1)) as one:
        source = await one.host()
        await one.begin()
        await one.ends_as("failed", "error")
        await one.is_only_on(source)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ends", ["force", "abort", "delete"])
async def test_a_cloud_that_ends_in_the_middle(tmp_path: Path, ends: str) -> None:
    async with going(tmp_path, NEVER_DONE) as one:
        source = await one.host()
        await one.begin()
        await one.copying()
        await one.restart()
        target = await one.copying()
        assert one.on(source, target)
        if ends == "delete":
            await one.demo.delete(one.uuid)
            await one.demo.left(*one.volumes)
            return
        await (one.force() if ends == "force" else one.end("DELETE"))
        await one.ends_as("completed" if ends == "force" else "cancelled")
        await one.is_only_on(target if ends == "force" else source)


async def test_a_target_that_cinder_refuses(tmp_path: Path) -> None:
    """The migration ends before the guest is touched."""
    async with going(tmp_path, NEVER_DONE) as one:
        source = await one.host()
        said = {"badRequest": {"code": 400, "message": "Invalid volume: no path to that host"}}
        await one.demo.beside.cinder.refuse(400, attaches, said)
        await one.begin()
        await one.ends_as("error")
        await one.demo.beside.cinder.heal()
        await one.is_only_on(source)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mishap", [Mishap.ERROR, Mishap.LOST, Mishap.CUT])
async def test_a_cinder_that_does_not_answer_is_waited_for(tmp_path: Path, mishap: Mishap) -> None:
    """What was made and its answer lost goes before it is made anew."""
    async with going(tmp_path, NEVER_DONE) as one:
        source = await one.host()
        await one.demo.beside.cinder.fail(mishap, attaches)
        await one.begin()
        await one.demo.beside.cinder.meeting.wait()
        await one.demo.beside.cinder.heal()
        target = await one.copying()
        assert one.on(source, target)
        await one.force()
        await one.ends_as("completed")
        await one.is_only_on(target)


async def test_an_abort_ends_the_waiting_for_a_cinder_that_is_away(tmp_path: Path) -> None:
    async with going(tmp_path) as one:
        source = await one.host()
        await one.demo.beside.cinder.fail(Mishap.ERROR, attaches)
        await one.begin()
        await one.demo.beside.cinder.meeting.wait()
        await one.end("DELETE")
        await one.ends_as("cancelled")
        await one.demo.beside.cinder.heal()
        await one.is_only_on(source)


async def test_a_volume_of_two_servers_stays_with_the_other(tmp_path: Path) -> None:
    async with going(tmp_path) as one:
        shared = one.demo.volume(volume_type=SHARED_TYPE)

        def has(server: str) -> bool:
            return [status for status, _ in one.demo.attached(server).get(shared, ())] == ["attached"]

        servers = (one.uuid, await one.demo.built())
        for server in servers:
            body, path = {"volumeAttachment": {"volumeId": shared}}, f"/servers/{server}/os-volume_attachments"
            answer = await one.demo.compute.ask("POST", path, body, version=NEWEST)
            assert answer.status_code == 202, answer.text
            await one.demo.becomes(server, "ACTIVE")
            await settled(partial(has, server))
        before = one.demo.attached(servers[1])[shared]
        source = await one.host()
        await one.begin()
        await one.ends_as("completed")
        host = await one.host()
        assert host != source
        await settled(lambda: one.demo.attached(servers[0])[shared] == [("attached", host)])
        assert one.demo.attached(servers[1])[shared] == before


async def test_hosts_that_connect_no_volumes_have_them_follow(tmp_path: Path) -> None:
    """No host is told of any, so that there is nothing for two hosts."""
    async with going(tmp_path, NEVER_DONE, connects=False) as one:
        source = await one.host()
        await one.begin()
        target = await one.copying()
        assert one.on(source)
        await one.force()
        await one.ends_as("completed")
        assert await one.host() == target
        await settled(lambda: one.on(target))


async def settled(condition: Callable[[], bool]) -> None:
    async def probe() -> bool:
        return condition()

    await eventually(probe, "the volumes are where they are to be")
