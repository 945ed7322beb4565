"""Snapshots of volumes that are files: Cinder has the host make or delete them while a server uses the volume."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from skep.compute.drivers.fake import FailureRule, FakeDriver
from skep.compute.drivers.guest_log import VolumeOnPaper
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid, new_uuid
from skep_lab.cinder_twin.store import SHARED_TYPE, TwinSnapshot
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_cinder import NEWEST, BesideCinder, beside_cinder
from tests.functional.neighbours.test_cinder_attachments import attach, detach, is_attached
from tests.functional.neighbours.test_extended_volumes import record

PATH = "/os-assisted-volume-snapshots"


class Assisted:
    """A server with a volume of which Cinder wants snapshots."""

    def __init__(self, demo: BesideCinder, server: str, volume: str) -> None:
        self.demo = demo
        self.server = server
        self.volume = volume

    @property
    def driver(self) -> FakeDriver:
        """The driver of the host."""
        [driver] = self.demo.beside.cloud.plane.drivers.values()
        assert isinstance(driver, FakeDriver)
        return driver

    @property
    def used(self) -> VolumeOnPaper | None:
        """The volume as the record of the guest has it."""
        return self.driver.uses(InstanceUuid(self.server), "/dev/vdb")

    async def ask(self, snapshot: TwinSnapshot) -> httpx.Response:
        """Ask for a snapshot, or for its end, as Cinder does."""
        admin = await self.demo.beside.session("admin", "admin")
        if snapshot.status == "deleting":
            said = json.dumps({"volume_id": snapshot.volume_id, "type": "qcow2", "file_to_merge": None})
            return await admin.ask("DELETE", f"{PATH}/{snapshot.id}?delete_info={said}", version=NEWEST)
        info = {"snapshot_id": snapshot.id, "type": "qcow2", "new_file": f"file.{snapshot.id}", "id": "mine"}
        body = {"snapshot": {"volume_id": snapshot.volume_id, "create_info": info}}
        return await admin.ask("POST", PATH, body, version=NEWEST)

    def begun(self, snapshot_id: str = "") -> TwinSnapshot:
        """Have Cinder begin a snapshot, or the end of one."""
        return self.demo.store.assist(self.demo.store.volumes[self.volume], snapshot_id)

    async def made(self) -> TwinSnapshot:
        """Return a snapshot that was made."""
        snapshot = self.begun()
        answer = await self.ask(snapshot)
        assert (answer.status_code, answer.json()) == (200, {"snapshot": {"id": "mine", "volumeId": self.volume}})
        await self.becomes(snapshot, "available")
        return snapshot

    async def becomes(self, snapshot: TwinSnapshot, status: str) -> None:
        async def probe() -> bool:
            there = self.demo.store.snapshots.get(snapshot.id)
            return ("gone" if there is None else there.status) == status

        await eventually(probe, f"the snapshot is {status}")


@asynccontextmanager
async def assisted(root: Path) -> AsyncIterator[Assisted]:
    async with beside_cinder(root) as demo:
        server, volume = await demo.built(), demo.volume()
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        yield Assisted(demo, server, volume)


async def test_a_snapshot_is_made_and_deleted(tmp_path: Path) -> None:
    """Of a server that runs, and of one that is stopped and locked."""
    async with assisted(tmp_path) as one:
        first = await one.made()
        assert one.used is not None
        assert (one.used.file, one.used.snapshots) == (f"file.{first.id}", (first.id,))
        assert await record(one.demo, one.server) == (
            "volume_snapshot_create",
            [("compute_volume_snapshot_create", "Success")],
        )
        for body in ({"os-stop": None}, {"lock": None}):
            await one.demo.becomes(one.server, "SHUTOFF" if "lock" in body else "ACTIVE")
            assert (await one.demo.compute.ask("POST", f"/servers/{one.server}/action", body)).status_code == 202
        await one.demo.becomes(one.server, "SHUTOFF")
        answer = await one.ask(one.begun(first.id))
        assert (answer.status_code, answer.content) == (204, b"")
        await one.becomes(first, "gone")
        assert one.used is not None
        assert one.used.snapshots == ()
        await one.demo.becomes(one.server, "SHUTOFF")


@pytest.mark.parametrize("deletes", [False, True])
async def test_what_the_host_cannot_do_is_told(tmp_path: Path, deletes: bool) -> None:
    async with assisted(tmp_path) as one:
        snapshot = one.begun((await one.made()).id) if deletes else one.begun()
        operation = "delete_volume_snapshot" if deletes else "create_volume_snapshot"
        one.driver.fail((FailureRule(operation=operation),))
        assert (await one.ask(snapshot)).is_success
        await one.becomes(snapshot, "error_deleting" if deletes else "error")
        await one.demo.becomes(one.server, "ACTIVE")


async def test_a_cloud_that_ends_meanwhile(tmp_path: Path) -> None:
    """While the host makes the snapshot, and before Cinder was told of it."""
    async with assisted(tmp_path) as one:
        one.driver.fail((FailureRule(operation="create_volume_snapshot", hangs=True),))
        snapshot = one.begun()
        assert (await one.ask(snapshot)).status_code == 200
        await one.demo.restart()
        await one.becomes(snapshot, "available")
        await one.demo.becomes(one.server, "ACTIVE")
        await one.demo.beside.cinder.fail(Mishap.ERROR, lambda method, path: method == "POST" and "/snapshots/" in path)
        snapshot = one.begun(snapshot.id)
        assert (await one.ask(snapshot)).status_code == 204
        await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
        await one.demo.restart()
        assert await detach(one.demo, one.server, one.volume) == 409, "Cinder still waits to hear of it"
        await one.demo.beside.cinder.heal()
        await one.becomes(snapshot, "gone")


async def test_a_request_waits_for_the_one_before_it(tmp_path: Path) -> None:
    """Cinder deletes a snapshot as soon as it wants to, whether its server is through with the one before or not."""
    async with assisted(tmp_path) as one:
        first = await one.made()
        one.driver.fail((FailureRule(operation="create_volume_snapshot", hangs=True),))
        second = one.begun()
        assert (await one.ask(second)).status_code == 200
        async with asyncio.TaskGroup() as group:
            deleted = group.create_task(one.ask(one.begun(first.id)))
            await asyncio.wait({deleted}, timeout=1)
            assert not deleted.done(), deleted.result().text
            one.driver.release()
        assert deleted.result().status_code == 204, deleted.result().text
        await one.becomes(second, "available")
        await one.becomes(first, "gone")


async def test_a_detach_waits_for_a_snapshot(tmp_path: Path) -> None:
    """As long as one takes that nothing holds up; Nova lets both run."""
    async with assisted(tmp_path) as one:
        one.driver.fail((FailureRule(operation="create_volume_snapshot", hangs=True),))
        snapshot = one.begun()
        assert (await one.ask(snapshot)).status_code == 200
        async with asyncio.TaskGroup() as group:
            detached = group.create_task(detach(one.demo, one.server, one.volume))
            await asyncio.wait({detached}, timeout=1)
            assert not detached.done()
            one.driver.release()
        assert detached.result() == 202
        await one.becomes(snapshot, "available")


async def test_an_answer_that_is_lost(tmp_path: Path) -> None:
    async with assisted(tmp_path) as one:
        await one.demo.beside.cinder.fail(Mishap.LOST, lambda method, path: method == "POST" and "/snapshots/" in path)
        snapshot = one.begun()
        assert (await one.ask(snapshot)).status_code == 200
        await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
        await one.demo.beside.cinder.heal()
        await one.becomes(snapshot, "available")

        async def free() -> bool:
            return await detach(one.demo, one.server, one.volume) == 202

        await eventually(free, "the volume is not in the hands of Cinder any more")


@pytest.mark.parametrize("deletes", [False, True])
async def test_a_server_that_is_deleted_meanwhile(tmp_path: Path, deletes: bool) -> None:
    """What its host was told of is over with the delete: Cinder hears that it failed, and has the volume back."""
    async with assisted(tmp_path) as one:
        snapshot = one.begun((await one.made()).id) if deletes else one.begun()
        operation, doing = (
            ("delete_volume_snapshot", "deleting_volume_snapshot")
            if deletes
            else ("create_volume_snapshot", "snapshotting_volume")
        )
        one.driver.fail((FailureRule(operation=operation, hangs=True),))
        assert (await one.ask(snapshot)).is_success

        async def begun() -> bool:
            return bool((await one.demo.server(one.server))["OS-EXT-STS:task_state"] == doing)

        await eventually(begun, "the row says what is done to the volume")
        assert (await one.demo.compute.ask("DELETE", f"/servers/{one.server}")).status_code == 204

        async def ends() -> bool:
            answer = await one.demo.compute.ask("GET", f"/servers/{one.server}", version=NEWEST)
            return answer.status_code == 404 or answer.json()["server"]["OS-EXT-STS:task_state"] == "deleting"

        await eventually(ends, "the delete has ended what the host was told of")
        one.driver.release()
        await one.becomes(snapshot, "error_deleting" if deletes else "error")
        await one.demo.left(one.volume)


async def test_a_server_that_is_deleted_before_cinder_was_told(tmp_path: Path) -> None:
    async with assisted(tmp_path) as one:
        await one.demo.beside.cinder.fail(Mishap.ERROR, lambda method, path: method == "POST" and "/snapshots/" in path)
        snapshot = one.begun()
        assert (await one.ask(snapshot)).status_code == 200
        await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
        await one.demo.delete(one.server)
        assert snapshot.status == "creating"
        await one.demo.beside.cinder.heal()
        await one.demo.looked_at(one.server)
        await one.becomes(snapshot, "available")
        await one.demo.left(one.volume)


async def test_what_is_refused(tmp_path: Path) -> None:
    """Volumes that no server has, that several have, of a server under a task; nothing is begun."""
    async with assisted(tmp_path) as one:
        shared, free = one.demo.volume(volume_type=SHARED_TYPE), one.demo.volume()
        for server in (one.server, await one.demo.built()):
            assert (await attach(one.demo, server, shared)).status_code == 202
            await is_attached(one.demo, server, shared)
        for volume in (shared, free):
            assert (await one.ask(one.demo.store.assist(one.demo.store.volumes[volume]))).status_code == 400
        absent = one.begun()
        absent.volume_id = new_uuid()
        assert (await one.ask(absent)).status_code == 400
        admin = await one.demo.beside.session("admin", "admin")
        for query in ("", "?delete_info="):
            nothing = await admin.ask("DELETE", f"{PATH}/{new_uuid()}{query}", version=NEWEST)
            assert nothing.status_code == 400
            assert "delete_info: expected a JSON object with volume_id, got nothing" in nothing.text
        long = await admin.ask("DELETE", f"{PATH}/{'x' * 256}?delete_info={{}}", version=NEWEST)
        assert long.status_code == 400
        assert "snapshot_id" in long.text
        one.driver.fail((FailureRule(operation="reboot", hangs=True),))
        reboot = {"reboot": {"type": "SOFT"}}
        assert (await one.demo.compute.ask("POST", f"/servers/{one.server}/action", reboot)).status_code == 202
        refused = await one.ask(one.begun())
        assert refused.status_code == 409
        assert "while it is in task_state reboot" in refused.text
        one.driver.release()
        await one.demo.becomes(one.server, "ACTIVE")
        assert one.used is None
