"""Volumes that Cinder moves while servers use them: it asks for another volume in the place of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.compute.drivers.fake import FailureRule, FakeDriver
from skep.contracts.eventually import eventually
from skep.database.cell import volumes as cell_volumes
from skep.domain.ids import InstanceUuid
from skep_lab.cinder_twin.store import TwinAttachment, TwinCaller, TwinVolume
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_cinder import NEWEST, BesideCinder, beside_cinder
from tests.functional.neighbours.test_cinder_attachments import attach, detach, is_attached

NEW_TYPE = "faster"
HANGS = FailureRule(operation="swap_volume", hangs=True)
FAILS = FailureRule(operation="swap_volume", error="VolumeNotCopied", message="the other volume cannot be written")


class Moved:
    """A server with a volume that Cinder is about to move."""

    def __init__(self, demo: BesideCinder, server: str, volume: TwinVolume) -> None:
        self.demo = demo
        self.server = server
        self.volume = volume
        self.others: list[TwinVolume] = []
        demo.store.types[NEW_TYPE] = NEW_TYPE
        demo.store.on_move = lambda _old, other, _servers: self.others.append(other)

    @property
    def driver(self) -> FakeDriver:
        """The driver of the host."""
        [driver] = self.demo.beside.cloud.plane.drivers.values()
        assert isinstance(driver, FakeDriver)
        return driver

    @property
    def attachment(self) -> str:
        """By which the server has the volume."""
        [found] = [one.id for one in self.demo.store.attachments.values() if one.volume_id == self.volume.id]
        return found

    async def retype(self, *, version: str = NEWEST) -> httpx.Response:
        """Have Cinder begin to move the volume, and ask for the swap as it does."""
        self.demo.store.retype(self.volume, NEW_TYPE, "on-demand")
        admin = await self.demo.beside.session("admin", "admin")
        path = f"/servers/{self.server}/os-volume_attachments/{self.volume.id}"
        body = {"volumeAttachment": {"volumeId": self.others[-1].id}}
        return await admin.ask("PUT", path, body, version=version)

    async def moves(self, **said: str) -> TwinVolume:
        """Begin, and return the other volume."""
        answer = await self.retype(**said)
        assert (answer.status_code, answer.content) == (202, b"")
        return self.others[-1]

    async def ends(self, status: str) -> None:
        """Wait until Cinder knows what came of it, and the server has one volume as before."""

        async def probe() -> bool:
            return self.volume.migration_status == status

        await eventually(probe, f"the move is {status}")
        await is_attached(self.demo, self.server, self.volume.id)
        assert self.others[-1].id not in self.demo.there()

        async def shown() -> bool:
            return [(one["volumeId"], one["attachment_id"]) for one in await self.listed()] == [
                (self.volume.id, self.attachment)
            ]

        await eventually(shown, "the server shows the attachment that Cinder has")

    async def listed(self) -> list[dict[str, Any]]:
        path = f"/servers/{self.server}/os-volume_attachments"
        found: list[dict[str, Any]] = (await self.demo.compute.ask("GET", path, version=NEWEST)).json()[
            "volumeAttachments"
        ]
        return found

    async def record(self) -> tuple[str, list[tuple[str, str | None]]]:
        """Return the latest action of the server, and its events with their results."""
        path = f"/servers/{self.server}/os-instance-actions"
        [last, *_] = (await self.demo.compute.ask("GET", path, version=NEWEST)).json()["instanceActions"]
        admin = await self.demo.beside.session("admin", "admin")
        shown = (await admin.ask("GET", f"{path}/{last['request_id']}", version=NEWEST)).json()["instanceAction"]
        return last["action"], [(one["event"], one["result"]) for one in shown["events"]]

    async def message(self) -> str:
        """Return why the latest action of the server failed, as its owner reads it."""
        path = f"/servers/{self.server}/os-instance-actions"
        [last, *_] = (await self.demo.compute.ask("GET", path, version=NEWEST)).json()["instanceActions"]
        return str(last["message"])

    async def named_swap(self) -> str | None:
        """Return the volume that is to stand in the place of the server's, as its row says; None: none."""
        unit = partial(cell_volumes.told, uuids=[self.server])
        [cell] = [one for one in self.demo.beside.cloud.plane.databases.cells.values() if await one.read(unit)]
        [volume] = (await cell.read(unit))[InstanceUuid(self.server)].volumes
        return None if volume.swap is None else volume.swap.volume_id

    async def is_copied(self) -> None:
        """Wait until the host has begun to copy."""

        async def probe() -> bool:
            return bool((await self.demo.server(self.server))["OS-EXT-STS:task_state"] == "swapping_volume")

        await eventually(probe, "the volume is being copied")


def ends_a_move(method: str, path: str) -> bool:
    """Tell of a request whether it tells Cinder what came of a move."""
    return method == "POST" and "/volumes/" in path and path.endswith("/action")


@asynccontextmanager
async def moving(root: Path, **said: Any) -> AsyncIterator[Moved]:
    async with beside_cinder(root) as demo:
        server, volume = await demo.built(), demo.volume(**said)
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        yield Moved(demo, server, demo.store.volumes[volume])


@pytest.mark.parametrize("version", ["2.1", "2.85", NEWEST])
async def test_a_volume_is_of_another_type_while_a_server_uses_it(tmp_path: Path, version: str) -> None:
    """It keeps its id, and what becomes of it at the end of its server; the guest uses the other volume."""
    async with moving(tmp_path) as one:
        path = f"/servers/{one.server}/os-volume_attachments/{one.volume.id}"
        said = {"volumeAttachment": {"volumeId": one.volume.id, "delete_on_termination": True}}
        assert (await one.demo.compute.ask("PUT", path, said, version=NEWEST)).status_code == 202
        before = one.attachment
        other = await one.moves(version=version)
        await one.ends("success")
        assert one.volume.volume_type == NEW_TYPE
        assert one.attachment != before
        used = one.driver.uses(InstanceUuid(one.server), "/dev/vdb")
        assert used is not None
        assert (used.volume_id, used.attachment_id) == (other.id, one.attachment)
        assert [it["delete_on_termination"] for it in await one.listed()] == [True]
        assert await one.record() == ("swap_volume", [("compute_swap_volume", "Success")])
        await one.demo.becomes(one.server, "ACTIVE")
        await one.demo.delete(one.server)
        await one.demo.left()


async def test_a_copy_that_fails_leaves_the_server_its_volume(tmp_path: Path) -> None:
    """Cinder is told so, and another try goes well."""
    async with moving(tmp_path) as one:
        before = one.attachment
        one.driver.fail((FAILS,))
        await one.moves()
        await one.ends("error")
        assert (one.attachment, one.volume.volume_type) == (before, "usual")
        assert await one.record() == ("swap_volume", [("compute_swap_volume", "Error")])
        assert (await one.demo.becomes(one.server, "ACTIVE"))["status"] == "ACTIVE"
        one.driver.fail(())
        await one.moves()
        await one.ends("success")
        assert await detach(one.demo, one.server, one.volume.id) == 202
        await one.demo.left(one.volume.id)


async def test_a_cloud_that_ends_while_a_volume_is_copied(tmp_path: Path) -> None:
    """Its host copies again after it has begun anew, and nothing is left of the try before."""
    async with moving(tmp_path) as one:
        one.driver.fail((HANGS,))
        await one.moves()
        await one.is_copied()
        await one.demo.restart()
        await one.ends("success")
        await one.demo.delete(one.server)
        await one.demo.left(one.volume.id)


async def test_a_cloud_that_ends_before_cinder_was_told(tmp_path: Path) -> None:
    async with moving(tmp_path) as one:
        await one.demo.beside.cinder.fail(Mishap.ERROR, ends_a_move)
        await one.moves()
        await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
        await one.demo.restart()
        assert one.volume.migration_status == "migrating"
        assert await detach(one.demo, one.server, one.volume.id) == 409, "the service does not know yet what it has"
        await one.demo.beside.cinder.heal()
        await one.ends("success")


async def test_a_swap_whose_attachment_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made anew before the server loses the old volume: at no moment others get what the guest uses."""
    async with moving(tmp_path) as one:
        store, kept = one.demo.store, []
        deleted = store.delete_attachment

        def deletes(caller: TwinCaller, attachment_id: str) -> list[TwinAttachment]:
            kept.append([it.status for it in store.attachments.values() if it.volume_id == one.others[-1].id])
            return deleted(caller, attachment_id)

        one.driver.fail((HANGS,))
        await one.moves()
        await one.is_copied()
        [of_other] = [it.id for it in store.attachments.values() if it.volume_id == one.others[-1].id]
        deleted(TwinCaller(project_id="admin", is_admin=True, is_service=True), of_other)
        monkeypatch.setattr(store, "delete_attachment", deletes)
        one.driver.release()
        await one.ends("success")
        assert kept == [["attached"]]
        assert one.attachment != of_other
        await one.demo.looked_at(one.server)
        assert await detach(one.demo, one.server, one.volume.id) == 202
        await one.demo.left(one.volume.id)


NOT_NOW = {
    413: {"overLimit": {"code": 413, "message": "This request is over its limit."}},
    409: {"conflictingRequest": {"code": 409, "message": "Something else is done to the volume."}},
    404: None,
}
"""Refusals of Cinder's which are none by its rules for moves, and a page of what stands before it."""


@pytest.mark.parametrize("status", NOT_NOW)
async def test_what_is_no_rule_of_cinder_s_ends_no_move(tmp_path: Path, status: int) -> None:
    async with moving(tmp_path) as one:
        await one.demo.beside.cinder.refuse(status, ends_a_move, NOT_NOW[status])
        await one.moves()
        await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
        one.demo.beside.cinder.meeting.clear()
        await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
        assert await one.named_swap() == one.others[-1].id
        await one.demo.beside.cinder.heal()
        await one.ends("success")
        assert await one.record() == ("swap_volume", [("compute_swap_volume", "Success")])


async def test_cinder_that_is_just_ending_a_move_is_asked_again(tmp_path: Path) -> None:
    """It refuses meanwhile, and its refusal says nothing of what comes of the move."""
    async with moving(tmp_path) as one:
        said = {"badRequest": {"code": 400, "message": "Invalid volume: Destination volume not mid-migration."}}
        await one.demo.beside.cinder.refuse(400, ends_a_move, said)
        one.driver.fail((HANGS,))
        await one.moves()
        one.volume.migration_status = "completing"
        one.driver.release()
        for _ in range(2):
            await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
            one.demo.beside.cinder.meeting.clear()
        assert await one.named_swap() == one.others[-1].id
        await one.demo.beside.cinder.heal()
        await one.ends("success")


@pytest.mark.parametrize("copied", [True, False])
async def test_a_move_that_cinder_refuses_to_end(tmp_path: Path, copied: bool) -> None:
    """The server keeps what its guest uses, by its only attachment; its action tells an operator of both volumes."""
    async with moving(tmp_path) as one:
        await one.demo.beside.cinder.fail(Mishap.ERROR, ends_a_move)
        one.driver.fail(() if copied else (FAILS,))
        await one.moves()
        await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
        other = one.others[-1]
        other.migration_status = None
        await one.demo.beside.cinder.heal()

        async def is_settled() -> bool:
            return await one.named_swap() is None

        await eventually(is_settled, "the row has no swap any more")
        used = other.id if copied else one.volume.id
        [attachment] = one.demo.store.attachments.values()
        assert (attachment.volume_id, attachment.status) == (used, "attached")
        assert [(it["volumeId"], it["attachment_id"]) for it in await one.listed()] == [(used, attachment.id)]
        record, events = await one.record()
        results = ["Error", "Success" if copied else "Error"]
        assert (record, events) == ("swap_volume", [("compute_swap_volume", result) for result in results])
        message = await one.message()
        assert all(part in message for part in (one.volume.id, other.id, "mid-migration", f"uses volume {used}"))


async def test_answers_that_are_lost(tmp_path: Path) -> None:
    """Whichever it is: to say that the other volume is in use, to release the old one, to end the move."""
    async with moving(tmp_path) as one:
        for number, (method, part) in enumerate((("POST", "/attachments/"), ("DELETE", "/"), ("POST", "/volumes/"))):
            one.demo.store.types[f"{NEW_TYPE}-{number}"] = f"{NEW_TYPE}-{number}"
            one.volume.volume_type = "usual"

            def meets(asked: str, path: str, method: str = method, part: str = part) -> bool:
                return asked == method and part in path and not path.endswith("/attachments")

            await one.demo.beside.cinder.fail(Mishap.LOST, meets)
            await one.moves()
            await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
            await one.demo.beside.cinder.heal()
            await one.ends("success")


async def test_a_server_that_is_deleted_while_its_volume_is_copied(tmp_path: Path) -> None:
    """The copying comes to nothing, and Cinder is told so; the volume is free, and as it was."""
    async with moving(tmp_path) as one:
        one.driver.settings = type(one.driver.settings)(copy_delay=3600.0)
        await one.moves()
        await one.is_copied()
        await one.demo.delete(one.server)
        await one.demo.left(one.volume.id)
        assert (one.volume.migration_status, one.volume.volume_type) == ("error", "usual")


async def test_a_server_that_is_deleted_before_cinder_was_told(tmp_path: Path) -> None:
    """Its volume has the content of the other one, where the guest wrote last; what else it had is free before."""
    async with moving(tmp_path) as one:
        beside = one.demo.volume()
        assert (await attach(one.demo, one.server, beside)).status_code == 202
        await is_attached(one.demo, one.server, beside)
        await one.demo.beside.cinder.fail(Mishap.ERROR, ends_a_move)
        await one.moves()
        await asyncio.wait_for(one.demo.beside.cinder.meeting.wait(), 60)
        await one.demo.delete(one.server)

        async def others_are_free() -> bool:
            return one.demo.attached(one.server).keys() == {one.others[-1].id}

        await eventually(others_are_free, "only what Cinder is to be told of is kept")
        assert one.volume.migration_status == "migrating"
        await one.demo.beside.cinder.heal()
        await one.demo.looked_at(one.server)
        await one.demo.left(one.volume.id, beside)
        assert (one.volume.migration_status, one.volume.volume_type) == ("success", NEW_TYPE)


async def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    """A volume that Cinder does not give, one of which it says nothing, a server that is stopped."""
    async with moving(tmp_path) as one:

        def in_error(_old: TwinVolume, other: TwinVolume, _servers: list[str]) -> None:
            other.status = "error"
            one.others.append(other)

        told, one.demo.store.on_move = one.demo.store.on_move, in_error
        refused = await one.retype()
        assert (refused.status_code, "volumeAttachment.volumeId" in refused.text) == (400, True)
        one.demo.store.on_move = told
        one.demo.store.end_move(one.volume, one.others[-1].id, failed=True)
        await one.demo.beside.cinder.fail(
            Mishap.ERROR, lambda method, path: method == "PUT" and "/attachments/" in path
        )
        assert (await one.retype()).status_code == 503
        await one.demo.beside.cinder.heal()
        assert list(one.demo.attached(one.server)) == [one.volume.id]
        for status, action in (("SHUTOFF", "os-stop"), ("ACTIVE", "os-start")):
            answer = await one.demo.compute.ask("POST", f"/servers/{one.server}/action", {action: None})
            assert answer.status_code == 202
            await one.demo.becomes(one.server, status)
            if status == "SHUTOFF":
                one.demo.store.end_move(one.volume, one.others[-1].id, failed=True)
                assert (await one.retype()).status_code == 409
        assert list(one.demo.attached(one.server)) == [one.volume.id]


async def test_nothing_else_is_done_to_a_server_whose_volume_is_copied(tmp_path: Path) -> None:
    async with moving(tmp_path) as one:
        one.driver.fail((HANGS,))
        await one.moves()
        await one.is_copied()
        assert await detach(one.demo, one.server, one.volume.id) == 409
        assert (await attach(one.demo, one.server, one.demo.volume())).status_code == 409
        admin = await one.demo.beside.session("admin", "admin")
        for body in ({"os-resetState": {"state": "active"}}, {"reboot": {"type": "HARD"}}, {"migrate": None}):
            answer = await admin.ask("POST", f"/servers/{one.server}/action", body)
            assert answer.status_code == 409, body
        again = {"volumeAttachment": {"volumeId": one.demo.volume()}}
        path = f"/servers/{one.server}/os-volume_attachments/{one.volume.id}"
        assert (await admin.ask("PUT", path, again, version=NEWEST)).status_code == 409
        await one.demo.looked_at(one.server)
        one.driver.release()
        await one.ends("success")
