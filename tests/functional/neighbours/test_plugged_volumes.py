"""Volumes that hosts connect themselves: servers that are there get and lose them by what their host does."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from skep.compute.drivers.fake import FailureRule, FakeDriver
from skep.contracts.eventually import eventually
from skep.database.cell.tables import instances as rows
from skep.domain import event_types
from skep.domain.actions import ACTIONS
from skep.domain.errors import Forbidden
from skep.domain.ids import CellUuid, InstanceUuid, new_uuid
from skep.messages.to_super_conductor import ReadConnections
from skep.super_conductor.connections import Connections
from skep.super_conductor.volumes import VolumesOfServers
from tests.functional.neighbours.test_cinder import HOST, NEWEST, BesideCinder, beside_cinder, brought
from tests.functional.neighbours.test_cinder_attachments import attach, detach, has, is_attached
from tests.functional.test_event_types import Told, listening
from tests.functional.test_fences import fence, fenced, start_agent

REFUSES = FailureRule(operation="attach_volume", error="VolumeNotSupported", message="no such storage here")
KEEPS = FailureRule(operation="detach_volume", error="VolumeInUse", message="the guest uses it", times=1)
HANGS = FailureRule(operation="attach_volume", hangs=True)


def driver_of(demo: BesideCinder) -> FakeDriver:
    [driver] = demo.beside.cloud.plane.drivers.values()
    assert isinstance(driver, FakeDriver)
    return driver


def used(demo: BesideCinder, server: str) -> list[tuple[str, str]]:
    """Return the volumes that the guest of a server has, with the names of their disks."""
    return [(one.volume_id, one.device) for one in driver_of(demo).volumes(InstanceUuid(server))]


async def is_free(demo: BesideCinder, server: str, volume: str) -> None:
    async def probe() -> bool:
        return demo.store.volumes[volume].status == "available" and volume not in await has(demo, server)

    await eventually(probe, "the volume is free")


async def latest(demo: BesideCinder, server: str) -> str:
    """Return the request of the latest action of the server."""
    path = f"/servers/{server}/os-instance-actions"
    [last, *_] = (await demo.compute.ask("GET", path, version=NEWEST)).json()["instanceActions"]
    return str(last["request_id"])


async def record(demo: BesideCinder, server: str) -> tuple[str, str | None]:
    """Return the latest action of the server, and its result."""
    path = f"/servers/{server}/os-instance-actions/{await latest(demo, server)}"
    admin = await demo.beside.session("admin", "admin")
    shown = (await admin.ask("GET", path, version=NEWEST)).json()["instanceAction"]
    [event] = shown["events"]
    return shown["action"], event["result"]


async def test_a_guest_gets_volumes_one_after_another_and_loses_them(tmp_path: Path) -> None:
    """That of its build, and two more; each is in use once the guest has it, and free once it has it no more."""
    with listening() as told:
        await lives_with_volumes(tmp_path, told)


async def lives_with_volumes(root: Path, told: Told) -> None:
    async with beside_cinder(root, attaches=True) as demo:
        built, first, second = demo.volume(), demo.volume(), demo.volume()
        server = await demo.built(brought(built))
        assert used(demo, server) == [(built, "/dev/vdb")]
        answers = [await attach(demo, server, volume) for volume in (first, second)]
        assert [one.status_code for one in answers] == [202, 202]
        await is_attached(demo, server, second)
        request = answers[-1].headers["x-openstack-request-id"]
        await told.becomes(request, event_types.sent(ACTIONS["plug_volume"]), "plug_volume")
        assert used(demo, server) == [(built, "/dev/vdb"), (first, "/dev/vdc"), (second, "/dev/vdd")]
        assert await has(demo, server) == [built, first, second]
        assert await detach(demo, server, first) == 202
        assert await detach(demo, server, built) == 202
        for volume in (first, built):
            await is_free(demo, server, volume)
        assert used(demo, server) == [(second, "/dev/vdd")]
        assert await record(demo, server) == ("detach_volume", "Success")
        wanted = event_types.sent(ACTIONS["unplug_volume"])
        await told.becomes(await latest(demo, server), wanted, "unplug_volume")
        await demo.delete(server)
        await demo.left(built, first, second)


async def test_a_volume_that_the_host_cannot_connect_is_left_to_others(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path, attaches=True) as demo:
        server, volume = await demo.built(), demo.volume()
        driver_of(demo).fail((REFUSES,))
        assert (await attach(demo, server, volume)).status_code == 202
        await is_free(demo, server, volume)
        assert await record(demo, server) == ("attach_volume", "Error")
        assert (await demo.server(server))["status"] == "ACTIVE"
        driver_of(demo).fail(())
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        await demo.delete(server)
        await demo.left(volume)


async def test_a_volume_of_which_the_guest_does_not_let_go_stays(tmp_path: Path) -> None:
    """It is in use as before, and may be detached again."""
    async with beside_cinder(tmp_path, attaches=True) as demo:
        volume = demo.volume()
        server = await demo.built(brought(volume))
        driver_of(demo).fail((KEEPS,))
        assert await detach(demo, server, volume) == 202

        async def stays() -> bool:
            return await record(demo, server) == ("detach_volume", "Error")

        await eventually(stays, "the host could not take it")
        await is_attached(demo, server, volume)
        assert await has(demo, server) == [volume]
        assert used(demo, server) == [(volume, "/dev/vdb")]
        assert await detach(demo, server, volume) == 202
        await is_free(demo, server, volume)


async def test_an_attach_that_hangs_goes_with_its_server(tmp_path: Path) -> None:
    """Meanwhile no other volume comes: that one is refused after a while, and left to others."""
    async with beside_cinder(tmp_path, attaches=True) as demo:
        server, volume = await demo.built(), demo.volume()
        driver_of(demo).fail((HANGS,))
        assert (await attach(demo, server, volume)).status_code == 202

        async def waits() -> bool:
            return bool((await demo.server(server))["OS-EXT-STS:task_state"] == "attaching_volume")

        await eventually(waits, "the host is at it")
        assert demo.store.volumes[volume].status == "attaching"
        answer = await demo.compute.ask("DELETE", f"/servers/{server}", version=NEWEST)
        assert answer.status_code == 204
        driver_of(demo).release()
        await demo.left(volume)


async def test_a_cloud_that_ends_while_a_guest_gets_a_volume(tmp_path: Path) -> None:
    """Its host begins again, and the guest has the volume once."""
    async with beside_cinder(tmp_path, attaches=True) as demo:
        server, volume = await demo.built(), demo.volume()
        driver_of(demo).fail((HANGS,))
        assert (await attach(demo, server, volume)).status_code == 202
        await demo.restart()
        await is_attached(demo, server, volume)
        assert used(demo, server) == [(volume, "/dev/vdb")]
        await demo.delete(server)
        await demo.left(volume)


async def has_begun(demo: BesideCinder, server: str) -> None:
    """Wait until the host of a server was let begin what is done to it."""
    cell = demo.beside.cloud.plane.databases.cells["cell1"]
    asked = sa.select(rows.c.uuid).where(rows.c.uuid == server, rows.c.acted_id == rows.c.task_id)

    async def probe() -> bool:
        return bool(await cell.read(lambda connection: connection.scalar(asked)))

    await eventually(probe, "the host has begun")


async def cut_off(demo: BesideCinder, server: str) -> str:
    """Have a guest that gets a volume be on a host that is fenced meanwhile; return the volume."""
    volume, cloud = demo.volume(), demo.beside.cloud
    driver_of(demo).fail((HANGS,))
    assert (await attach(demo, server, volume)).status_code == 202
    await has_begun(demo, server)
    await cloud.plane.agents.pop(HOST).stop(0)
    cloud.plane.drivers.pop(HOST).close()
    await fence(cloud, HOST)
    return volume


async def test_a_fence_that_is_withdrawn_leaves_a_guest_the_volume_that_it_was_getting(tmp_path: Path) -> None:
    """Until its host is heard it alone knows whether the guest has the volume, so no other server may get it."""
    async with beside_cinder(tmp_path, attaches=True) as demo:
        server = await demo.built()
        volume = await cut_off(demo, server)
        plane = demo.beside.cloud.plane
        [conductor], above = plane._cell_conductors, plane._super_conductor
        assert above is not None
        await conductor._fences._run()
        await VolumesOfServers(above._parts).follow()
        assert (await demo.server(server))["OS-EXT-STS:task_state"] == "attaching_volume"
        assert demo.attached(server) == {volume: [("attaching", HOST)]}
        assert [one.in_effect for one in await fenced(demo.beside.cloud)] == [False]
        await start_agent(demo.beside.cloud, HOST)
        await is_attached(demo, server, volume)
        assert await fenced(demo.beside.cloud) == []
        assert await has(demo, server) == [volume]
        assert used(demo, server) == [(volume, "/dev/vdb")]
        assert await record(demo, server) == ("attach_volume", "Success")


async def test_a_fence_that_takes_effect_leaves_a_volume_to_others_that_a_guest_was_getting(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path, attaches=True, of_conductors={"fence_grace_seconds": 0.0}) as demo:
        server = await demo.built()
        volume = await cut_off(demo, server)
        await demo.becomes(server, "ERROR")
        await is_free(demo, server, volume)
        assert await record(demo, server) == ("attach_volume", "Error")
        await demo.delete(server)
        await demo.left(volume)


async def test_a_host_hears_only_of_volumes_that_are_connected_to_it(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path, attaches=True) as demo:
        volume = demo.volume()
        server = InstanceUuid(await demo.built(brought(volume)))
        plane = demo.beside.cloud.plane
        conductor = plane._super_conductor
        assert conductor is not None
        [cell] = (uuid for uuid, one in plane.cells.items() if not one.is_cell0)
        connections = Connections(conductor._parts)
        asked = ReadConnections(cell=cell, instance=server, attempt=1, host=HOST)
        [attachment] = [one.id for one in demo.store.attachments.values()]
        for good in (asked, msgspec.structs.replace(asked, attachments=(attachment,))):
            told = (await connections.read(cell, good, None)).sealed
            assert told is not None
            assert b"secret" not in told
        for said, reason in (
            ({"host": "host-of-others"}, "has no attempt"),
            ({"attempt": 2}, "has no attempt"),
            ({"instance": InstanceUuid(new_uuid())}, "has no attempt"),
            ({"attachments": (attachment, new_uuid())}, "no volume by an attachment"),
        ):
            answer = await connections.read(cell, msgspec.structs.replace(asked, **said), None)
            assert (answer.sealed, reason in answer.reason) == (None, True), answer.reason
        with pytest.raises(Forbidden):
            await connections.read(CellUuid(new_uuid()), asked, None)
        demo.store.attachments[attachment].connector = {}
        demo.store.attachments[attachment].status = "reserved"
        answer = await connections.read(cell, asked, None)
        assert (answer.sealed, "connected to no host" in answer.reason) == (None, True)


async def test_volumes_are_connected_wherever_the_guest_is_made(tmp_path: Path) -> None:
    """Rebuilt, moved and back, shelved and back: its host hears of them each time, and no other host has them."""
    async with beside_cinder(tmp_path, attaches=True, hosts=2) as demo:
        built, later = demo.volume(), demo.volume()
        server = await demo.built(brought(built))
        assert (await attach(demo, server, later)).status_code == 202
        await is_attached(demo, server, later, await where(demo, server))
        admin = await demo.beside.session("admin", "admin")
        drivers = demo.beside.cloud.plane.drivers

        async def does(key: str, status: str, told: object = None) -> None:
            answer = await admin.ask("POST", f"/servers/{server}/action", {key: told}, version="2.76")
            assert answer.is_success, answer.text
            await demo.becomes(server, status)
            host = await where(demo, server)
            has = {name: driver.volumes(InstanceUuid(server)) for name, driver in drivers.items()}  # type: ignore[attr-defined]
            found = {name: sorted(one.volume_id for one in some) for name, some in has.items() if some}
            assert found == ({host: sorted((built, later))} if host else {}), key
            if host:
                for volume in (built, later):
                    await is_attached(demo, server, volume, host)

        await does("rebuild", "ACTIVE", {"imageRef": demo.image})
        await does("migrate", "VERIFY_RESIZE")
        await does("confirmResize", "ACTIVE")
        await does("resize", "VERIFY_RESIZE", {"flavorRef": "2"})
        await does("revertResize", "ACTIVE")
        await does("shelve", "SHELVED_OFFLOADED")
        await does("unshelve", "ACTIVE")
        await demo.delete(server)
        await demo.left(built, later)


async def where(demo: BesideCinder, server: str) -> str:
    """Return the host of a server; empty: none."""
    admin = await demo.beside.session("admin", "admin")
    shown = (await admin.ask("GET", f"/servers/{server}", version=NEWEST)).json()["server"]
    return shown["OS-EXT-SRV-ATTR:host"] or ""
