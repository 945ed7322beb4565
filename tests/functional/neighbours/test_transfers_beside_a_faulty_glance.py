"""Bytes of images between hosts and a Glance that fails: the work goes on when it is back, nothing is half there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skep.compute import image_cache, snapshots
from skep.compute.drivers.fake import DISKS
from skep.compute.drivers.fake_disks import FakeDisks
from skep.config.compute import FakeFailure
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession
from skep.domain.ids import InstanceUuid
from skep.standalone.images.service import EVERYBODY
from skep_lab.faulty_service import Mishap, every
from tests.support.cloud_beside import DATA, CloudBeside, cloud_beside

HANGS = FakeFailure(operation="snapshot", server="hangs*", hangs=True)
HOST = "cell1-host1"


def _stores(method: str, path: str) -> bool:
    return method == "PUT" and path.endswith("/file")


def _fetches(method: str, path: str) -> bool:
    return method == "GET" and path.endswith("/file")


def _of_one(_method: str, path: str) -> bool:
    return "/images/" in path


async def _bytes(beside: CloudBeside, image_id: str) -> bytes:
    _, opened = await beside.behind.images.read(image_id, EVERYBODY)
    assert opened is not None
    with opened:
        return opened.read()


async def _last_action(session: ComputeSession, uuid: str) -> dict[str, Any]:
    path = f"/servers/{uuid}/os-instance-actions"
    newest = (await session.ask("GET", path)).json()["instanceActions"][0]["request_id"]
    found: dict[str, Any] = (await session.ask("GET", f"{path}/{newest}")).json()["instanceAction"]
    return found


async def _begin_an_image(beside: CloudBeside, session: ComputeSession) -> tuple[str, str]:
    """Have an image made of a server whose host goes on when it is told; return both ids."""
    uuid = await beside.request(session, await beside.image(), "hangs-1")
    await beside.calm(session, uuid, "ACTIVE")
    body = {"createImage": {"name": "of-it"}}
    answer = await session.ask("POST", f"/servers/{uuid}/action", body, version="2.45")
    assert answer.status_code == 202, answer.text
    await _in_task(beside, session, uuid, "image_snapshot")
    return uuid, str(answer.json()["image_id"])


async def _in_task(beside: CloudBeside, session: ComputeSession, uuid: str, task: str) -> None:
    async def begun() -> bool:
        return bool((await beside.server(session, uuid))["OS-EXT-STS:task_state"] == task)

    await eventually(begun, f"the server is in {task}")


def _go_on(beside: CloudBeside) -> None:
    for driver in beside.cloud.plane.drivers.values():
        driver.release()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fault", "meets"),
    [(fault, _stores) for fault in Mishap if fault is not Mishap.REFUSES]
    + [(fault, every) for fault in (Mishap.REFUSES, Mishap.SILENT, Mishap.BUSY, Mishap.LIKELY)],
    ids=lambda one: getattr(one, "name", getattr(one, "__name__", "")),
)
async def test_a_snapshot_is_stored_when_glance_is_back(
    tmp_path: Path, fault: Mishap, meets: Callable[[str, str], bool]
) -> None:
    async with cloud_beside(tmp_path, HANGS) as beside:
        session = await beside.session()
        uuid, image_id = await _begin_an_image(beside, session)
        await beside.glance.fail(fault, meets)
        _go_on(beside)
        if fault is Mishap.REFUSES:
            await _in_task(beside, session, uuid, "image_uploading")
        else:
            await asyncio.wait_for(beside.glance.meeting.wait(), PATIENCE)
        await beside.glance.heal()
        await beside.calm(session, uuid, "ACTIVE")
        [event] = (await _last_action(await beside.session("admin", "admin"), uuid))["events"]
        assert (event["event"], event["result"]) == ("compute_snapshot_instance", "Success")
        await beside.nothing_awaited()
        assert await beside.image_status(image_id) == "active"
        assert await _bytes(beside, image_id) == DATA


async def test_a_snapshot_that_glance_does_not_take_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "TRIES", 2)
    async with cloud_beside(tmp_path, HANGS) as beside:
        session, admin = await beside.session(), await beside.session("admin", "admin")
        uuid, image_id = await _begin_an_image(beside, session)
        await beside.glance.fail(Mishap.BUSY)
        _go_on(beside)
        await beside.calm(session, uuid, "ACTIVE")
        action = await _last_action(admin, uuid)
        [event] = action["events"]
        assert (action["message"], event["result"]) == ("ImageUnavailable: the image service answered 503", "Error")
        assert "the image service answered 503" in event["traceback"]
        assert await beside.image_status(image_id) == "queued", "Glance takes no delete either"
        await beside.glance.heal()
        await beside.nothing_awaited()
        assert await beside.images() == ["tiny"]
        assert list((beside.cloud.directory.root / "snapshots").iterdir()) == []


async def _asked(beside: CloudBeside, image_id: str) -> None:
    """Wait until Glance, which fails, was asked about an image and was asked again."""

    async def twice() -> bool:
        return len([one for one in beside.glance.met if image_id in one]) > 1

    await eventually(twice, "Glance is asked in vain, and again")


@pytest.mark.parametrize("refusal", [403, 404, 500])
async def test_an_image_that_glance_left_saving_goes_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    """Neither a proxy that says no for a Glance that is away, nor an end of the cloud, makes it forget the image."""
    monkeypatch.setattr(snapshots, "TRIES", 2)
    async with cloud_beside(tmp_path, HANGS) as beside:
        session = await beside.session()
        uuid, image_id = await _begin_an_image(beside, session)
        await beside.glance.fail(Mishap.CUT, _stores)
        _go_on(beside)
        await asyncio.wait_for(beside.glance.meeting.wait(), PATIENCE)
        await beside.interrupt_image(image_id)
        await beside.glance.refuse(refusal)
        await beside.calm(session, uuid, "ACTIVE")
        [event] = (await _last_action(await beside.session("admin", "admin"), uuid))["events"]
        assert event["result"] == "Error"
        for _ in range(2):
            await beside.glance.refuse(refusal)
            await _asked(beside, image_id)
            assert await beside.image_status(image_id) == "saving"
            await beside.restart()
        await beside.glance.heal()
        await beside.nothing_awaited()
        assert await beside.images() == ["tiny"]


async def test_an_image_that_is_not_found_and_is_listed_is_awaited_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands before Glance says 404 of the image, and Glance is back before it is asked for a list."""
    monkeypatch.setattr(snapshots, "TRIES", 2)
    async with cloud_beside(tmp_path, HANGS) as beside:
        session = await beside.session()
        uuid, image_id = await _begin_an_image(beside, session)
        await beside.glance.fail(Mishap.CUT, _stores)
        _go_on(beside)
        await asyncio.wait_for(beside.glance.meeting.wait(), PATIENCE)
        await beside.interrupt_image(image_id)
        await beside.glance.refuse(404, _of_one)
        await beside.calm(session, uuid, "ACTIVE")
        await beside.glance.refuse(404, _of_one)
        await _asked(beside, image_id)
        assert await beside.image_status(image_id) == "saving"
        await beside.glance.heal()
        await beside.nothing_awaited()
        assert await beside.images() == ["tiny"]


async def test_an_image_whose_host_dies_with_glance_goes_when_both_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "TRIES", 2)
    async with cloud_beside(tmp_path, HANGS) as beside:
        session = await beside.session()
        uuid, image_id = await _begin_an_image(beside, session)
        await beside.glance.fail(Mishap.SILENT, _stores)
        _go_on(beside)
        await asyncio.wait_for(beside.glance.meeting.wait(), PATIENCE)
        plane = beside.cloud.plane
        [cell] = [cell for cell in plane.cells.values() if cell.name == "cell1"]
        await plane.agents.pop(HOST).stop(0)
        plane.drivers.pop(HOST).close()
        await beside.interrupt_image(image_id)
        await beside.glance.fail(Mishap.BUSY)
        await plane.start_agent(cell, HOST)
        _go_on(beside)
        await beside.calm(session, uuid, "ACTIVE")
        [event] = (await _last_action(await beside.session("admin", "admin"), uuid))["events"]
        assert event["result"] == "Error"
        assert await beside.image_status(image_id) == "saving"
        await beside.glance.heal()
        await beside.nothing_awaited()
        assert await beside.images() == ["tiny"]


async def test_an_image_of_which_glance_kept_a_part_goes_when_it_lets_it_go(tmp_path: Path) -> None:
    async with cloud_beside(tmp_path, HANGS) as beside:
        session = await beside.session()
        uuid, image_id = await _begin_an_image(beside, session)
        await beside.glance.fail(Mishap.LOST, _stores)
        beside.glance.keeps = 1000
        _go_on(beside)
        await asyncio.wait_for(beside.glance.meeting.wait(), PATIENCE)
        await beside.glance.refuse(500, lambda method, _path: method == "DELETE")
        await beside.calm(session, uuid, "ACTIVE")
        action = await _last_action(await beside.session("admin", "admin"), uuid)
        assert action["message"] == f"ImageUnavailable: image {image_id} has 1000 bytes, and {len(DATA)} passed"
        await beside.glance.refuse(500, lambda method, _path: method == "DELETE")
        await _asked(beside, image_id)
        assert await beside.image_status(image_id) == "active"
        await beside.glance.heal()
        await beside.nothing_awaited()
        assert await beside.images() == ["tiny"]


@pytest.mark.parametrize(
    "fault", [fault for fault in Mishap if fault is not Mishap.REFUSES], ids=lambda fault: fault.name
)
async def test_a_server_is_built_when_glance_gives_the_bytes_again(tmp_path: Path, fault: Mishap) -> None:
    async with cloud_beside(tmp_path) as beside:
        session = await beside.session()
        image_id = await beside.image()
        await beside.glance.fail(fault, _fetches)
        uuid = await beside.request(session, image_id)
        await asyncio.wait_for(beside.glance.meeting.wait(), PATIENCE)
        await beside.glance.heal()
        await beside.calm(session, uuid, "ACTIVE")
        assert len(beside.glance.met) == 1
        assert _disk(beside, uuid) == DATA


async def test_a_server_whose_image_stays_away_says_why_and_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "TRIES", 2)
    async with cloud_beside(tmp_path) as beside:
        session = await beside.session()
        image_id = await beside.image()
        await beside.glance.fail(Mishap.BUSY, _fetches)
        uuid = await beside.request(session, image_id)
        await beside.calm(session, uuid, "ERROR")
        assert "the image service answered 503" in (await beside.server(session, uuid))["fault"]["message"]
        [driver] = beside.cloud.plane.drivers.values()
        assert list(await driver.guests()) == []
        await beside.glance.heal()
        again = await beside.request(session, image_id, "again")
        await beside.calm(session, again, "ACTIVE")


@pytest.mark.parametrize("action", ["rebuild", "rescue"])
async def test_an_action_whose_image_stays_away_leaves_the_server_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(image_cache, "TRIES", 2)
    async with cloud_beside(tmp_path) as beside:
        session, admin = await beside.session(), await beside.session("admin", "admin")
        uuid = await beside.request(session, await beside.image())
        await beside.calm(session, uuid, "ACTIVE")
        other = await beside.image("other")
        body = {"rebuild": {"imageRef": other}} if action == "rebuild" else {"rescue": {"rescue_image_ref": other}}
        await beside.glance.fail(Mishap.BUSY, _fetches)
        answer = await session.ask("POST", f"/servers/{uuid}/action", body)
        assert answer.is_success, answer.text
        await beside.calm(session, uuid, "ACTIVE")
        said = await _last_action(admin, uuid)
        assert said["action"] == action
        assert said["message"] == f"ImageUnavailable: Image {other}: the image service answered 503"
        for event in said["events"]:
            assert event["result"] == "Error"
            assert "the image service answered 503" in event["traceback"]
        assert _disk(beside, uuid) == DATA
        await beside.glance.heal()
        assert (await session.ask("POST", f"/servers/{uuid}/action", body)).is_success
        await beside.calm(session, uuid, "ACTIVE" if action == "rebuild" else "RESCUE")


def _disk(beside: CloudBeside, uuid: str) -> bytes:
    return FakeDisks(beside.cloud.directory.host("cell1", HOST) / DISKS).content(InstanceUuid(uuid), 1)
