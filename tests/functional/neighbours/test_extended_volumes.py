"""Volumes that Cinder makes larger while servers have them: it says so, and the guests see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.compute.drivers.fake import FailureRule, FakeDriver
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_cinder import NEWEST, BesideCinder, beside_cinder
from tests.functional.neighbours.test_cinder_attachments import attach, is_attached


def driver_of(demo: BesideCinder) -> FakeDriver:
    [driver] = demo.beside.cloud.plane.drivers.values()
    assert isinstance(driver, FakeDriver)
    return driver


def size(demo: BesideCinder, server: str, device: str = "/dev/vdb") -> int | None:
    """Return how large a disk is to the guest, as far as it was told."""
    used = driver_of(demo).uses(InstanceUuid(server), device)
    return None if used is None else used.size


async def has(demo: BesideCinder, *volumes: str) -> str:
    """Return a server that has these volumes."""
    server = await demo.built()
    for volume in volumes:
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
    return server


async def tell(demo: BesideCinder, server: str, *volumes: str) -> None:
    """Say that volumes have grown, as Cinder does."""
    admin = await demo.beside.session("admin", "admin")
    events = [{"name": "volume-extended", "server_uuid": server, "tag": volume} for volume in volumes]
    answer = await admin.ask("POST", "/os-server-external-events", {"events": events}, version=NEWEST)
    assert answer.status_code == 200, answer.text
    assert {one["code"] for one in answer.json()["events"]} == {200}


async def record(demo: BesideCinder, server: str) -> tuple[str, list[tuple[str, Any]]]:
    """Return the latest action of the server, and its events with their results."""
    path = f"/servers/{server}/os-instance-actions"
    [last, *_] = (await demo.compute.ask("GET", path, version=NEWEST)).json()["instanceActions"]
    admin = await demo.beside.session("admin", "admin")
    shown = (await admin.ask("GET", f"{path}/{last['request_id']}", version=NEWEST)).json()["instanceAction"]
    return last["action"], [(one["event"], one["result"]) for one in shown["events"]]


async def test_guests_see_that_volumes_have_grown(tmp_path: Path) -> None:
    """Several by one request, of a server that runs and of one that is stopped and locked."""
    async with beside_cinder(tmp_path) as demo:
        first, second = demo.volume(), demo.volume()
        server = await has(demo, first, second)
        demo.store.volumes[first].size, demo.store.volumes[second].size = 2, 3
        await tell(demo, server, first, second)

        async def seen() -> bool:
            return (size(demo, server), size(demo, server, "/dev/vdc")) == (2, 3)

        await eventually(seen, "the guest sees both")
        await demo.becomes(server, "ACTIVE")
        assert await record(demo, server) == ("extend_volume", [("compute_extend_volume", "Success")])
        for body in ({"os-stop": None}, {"lock": None}):
            assert (await demo.compute.ask("POST", f"/servers/{server}/action", body)).status_code == 202
            await demo.becomes(server, "SHUTOFF")
        demo.store.volumes[first].size = 4
        await tell(demo, server, first)

        async def once_more() -> bool:
            return size(demo, server) == 4

        await eventually(once_more, "the guest has it so")
        await demo.becomes(server, "SHUTOFF")


async def test_a_driver_that_cannot_leaves_the_server_as_it_was(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        volume = demo.volume()
        server = await has(demo, volume)
        driver_of(demo).fail((FailureRule(operation="extend_volume"),))
        await tell(demo, server, volume)

        async def failed() -> bool:
            return await record(demo, server) == ("extend_volume", [("compute_extend_volume", "Error")])

        await eventually(failed, "the action has failed")
        await demo.becomes(server, "ACTIVE")
        assert size(demo, server) is None


async def test_a_cloud_that_ends_before_the_guest_was_told(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        volume = demo.volume()
        server = await has(demo, volume)
        driver_of(demo).fail((FailureRule(operation="extend_volume", hangs=True),))
        demo.store.volumes[volume].size = 2
        await tell(demo, server, volume)
        await demo.restart()

        async def seen() -> bool:
            return size(demo, server) == 2

        await eventually(seen, "the guest sees it")
        await demo.becomes(server, "ACTIVE")


@pytest.mark.parametrize("why", ["another volume", "no size", "a task"])
async def test_what_no_guest_is_told_of_is_a_record(tmp_path: Path, why: str) -> None:
    """Of a volume that the server does not have, or whose size Cinder does not say; or something else is being done."""
    async with beside_cinder(tmp_path) as demo:
        volume, other = demo.volume(), demo.volume()
        server = await has(demo, volume)
        if why == "no size":
            await demo.beside.cinder.fail(Mishap.ERROR, lambda method, _path: method == "GET")
        if why == "a task":
            driver_of(demo).fail((FailureRule(operation="reboot", hangs=True),))
            body = {"reboot": {"type": "SOFT"}}
            assert (await demo.compute.ask("POST", f"/servers/{server}/action", body)).status_code == 202
        await tell(demo, server, other if why == "another volume" else volume)
        assert (await record(demo, server))[0] == "extend_volume"
        driver_of(demo).release()
        await demo.becomes(server, "ACTIVE")
        assert size(demo, server) is None
