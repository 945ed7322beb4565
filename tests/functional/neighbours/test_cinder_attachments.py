"""Volumes of Cinder that servers get and lose after their build."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import httpx
import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession
from skep.database.api.holders import SETTLE
from skep.database.cell import volumes
from skep.domain.clock import SECOND, Clock
from skep.domain.ids import InstanceUuid
from skep_lab.cinder_twin.store import TwinCaller
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_cinder import HOST, NEWEST, BesideCinder, beside_cinder, blank

SOME = (Mishap.REFUSES, Mishap.ERROR, Mishap.CUT)
"""`test_faulty_volumes.py` tries each fault at each request."""


async def attach(demo: BesideCinder, server: str, volume: str, *, version: str = NEWEST) -> httpx.Response:
    body = {"volumeAttachment": {"volumeId": volume}}
    return await demo.compute.ask("POST", f"/servers/{server}/os-volume_attachments", body, version=version)


async def detach(demo: BesideCinder, server: str, volume: str) -> int:
    answer = await demo.compute.ask("DELETE", f"/servers/{server}/os-volume_attachments/{volume}", version=NEWEST)
    return int(answer.status_code)


async def has(demo: BesideCinder, server: str) -> list[str]:
    """Return the volumes that a server shows."""
    return [one["id"] for one in (await demo.server(server))["os-extended-volumes:volumes_attached"]]


async def is_attached(demo: BesideCinder, server: str, volume: str, host: str = HOST) -> None:
    async def probe() -> bool:
        # It is connected first, and then it is said that this is done.
        is_done = demo.store.volumes[volume].status == "in-use"
        return is_done and demo.attached(server).get(volume) == [("attached", host)]

    await eventually(probe, "the volume is connected to the host")


async def test_a_volume_comes_and_goes(tmp_path: Path) -> None:
    """Also by the answer of before 2.101, which has the name of its disk."""
    async with beside_cinder(tmp_path) as demo:
        server, first, second = await demo.built(), demo.volume(), demo.volume()
        assert (await attach(demo, server, first)).status_code == 202
        answer = await attach(demo, server, second, version="2.1")
        assert answer.status_code == 200, answer.text
        assert answer.json()["volumeAttachment"]["device"] == "/dev/vdc"
        for volume in (first, second):
            await is_attached(demo, server, volume)
        assert await has(demo, server) == [first, second]
        again = await attach(demo, server, first)
        assert again.status_code == 400, again.text
        assert await detach(demo, server, first) == 202
        assert demo.attached(server) == {second: [("attached", HOST)]}
        await demo.delete(server)
        await demo.left(first, second)


async def test_of_two_servers_at_once_one_gets_a_volume(tmp_path: Path) -> None:
    """Cinder decides; nothing is left of the other."""
    async with beside_cinder(tmp_path) as demo:
        servers, volume = [await demo.built() for _ in range(2)], demo.volume()
        answers = await asyncio.gather(*(attach(demo, server, volume) for server in servers))
        assert sorted(one.status_code for one in answers) == [202, 400], [one.text for one in answers]
        winner = servers[[one.status_code for one in answers].index(202)]
        await is_attached(demo, winner, volume)
        assert len(demo.store.attachments) == 1
        assert [len(await has(demo, server)) for server in servers] == [int(one == winner) for one in servers]
        assert await detach(demo, winner, volume) == 202
        await demo.left(volume)


async def test_what_was_made_for_a_server_outlives_it_once_it_is_detached(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        server = await demo.built(blank(delete_on_termination=True), blank(delete_on_termination=True))
        first, second = await has(demo, server)
        assert await detach(demo, server, first) == 202
        await demo.delete(server)
        await demo.left(first)
        assert second not in demo.store.volumes


async def test_a_shelved_server_gets_a_volume_that_follows_it(tmp_path: Path) -> None:
    """It is in use at once, and is connected where the server is unshelved."""
    async with beside_cinder(tmp_path) as demo:
        server, volume, other = await demo.built(), demo.volume(), demo.volume()
        assert (await act(demo.compute, server, "shelve")) == 202
        await demo.becomes(server, "SHELVED_OFFLOADED")
        for one in (volume, other):
            assert (await attach(demo, server, one)).status_code == 202
            assert demo.store.volumes[one].status == "in-use"
        assert await detach(demo, server, other) == 202
        assert demo.store.volumes[other].status == "available"
        assert (await act(demo.compute, server, "unshelve")) == 202
        await demo.becomes(server, "ACTIVE")
        host = (await has_host(demo, server)) or HOST
        # It was so before its guest was started.
        assert demo.attached(server) == {volume: [("attached", host)]}


async def act(compute: ComputeSession, server: str, key: str) -> int:
    answer = await compute.ask("POST", f"/servers/{server}/action", {key: None}, version="2.76")
    return int(answer.status_code)


async def has_host(demo: BesideCinder, server: str) -> str | None:
    admin = await demo.beside.session("admin", "admin")
    shown = (await admin.ask("GET", f"/servers/{server}", version=NEWEST)).json()["server"]
    found: str | None = shown["OS-EXT-SRV-ATTR:host"]
    return found


@pytest.mark.parametrize("fault", SOME, ids=lambda fault: fault.name)
async def test_an_attach_that_cinder_does_not_answer_leaves_nothing(tmp_path: Path, fault: Mishap) -> None:
    """The volume is kept by nobody once a look has come by."""
    async with beside_cinder(tmp_path) as demo:
        server, volume = await demo.built(), demo.volume()
        await demo.beside.cinder.fail(fault, lambda method, _path: method == "POST")
        answer = await attach(demo, server, volume)
        assert answer.status_code in (400, 503), answer.text
        await demo.beside.cinder.heal()
        assert await has(demo, server) == []
        await demo.looked_at(server)
        await demo.left(volume)
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)


async def test_an_attach_whose_answer_is_lost_is_found_again(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        server, volume = await demo.built(), demo.volume()
        posted = lambda method, path: (method, path.endswith("/attachments")) == ("POST", True)  # noqa: E731
        await demo.beside.cinder.fail(Mishap.LOST, posted)
        assert (await attach(demo, server, volume)).status_code == 202
        await demo.beside.cinder.heal()
        await is_attached(demo, server, volume)


async def test_a_detach_that_cinder_does_not_hear_of_changes_nothing(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        server, volume = await demo.built(), demo.volume()
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        await has_it_in_its_row(demo, server)
        await demo.beside.cinder.fail(Mishap.REFUSES)
        assert await detach(demo, server, volume) == 503
        await demo.beside.cinder.heal()
        assert await has(demo, server) == [volume]
        assert demo.attached(server) == {volume: [("attached", HOST)]}
        assert await detach(demo, server, volume) == 202
        await demo.left(volume)


@pytest.mark.parametrize("fault", [Mishap.ERROR, Mishap.CUT], ids=lambda fault: fault.name)
async def test_a_detach_that_cinder_does_not_answer_is_ended_by_a_super_conductor(
    tmp_path: Path, fault: Mishap
) -> None:
    """The row has decided it: nobody else gets the volume until Cinder has let go of it, and then everybody may."""
    async with beside_cinder(tmp_path) as demo:
        server, other, volume = await demo.built(), await demo.built(), demo.volume()
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        await has_it_in_its_row(demo, server)
        await demo.beside.cinder.fail(fault, lambda method, _path: method == "DELETE")
        assert await detach(demo, server, volume) == 202
        assert await has(demo, server) == []
        assert [(one.instance, one.volume_id) for one in demo.store.attachments.values()] == [(server, volume)]
        assert (await attach(demo, other, volume)).status_code == 400
        assert (await act(demo.compute, server, "lock")) == 202
        await demo.beside.cinder.heal()
        await demo.left(volume)
        await loses(demo, server)
        assert (await attach(demo, other, volume)).status_code == 202
        await is_attached(demo, other, volume)
        assert await has(demo, server) == []


async def loses(demo: BesideCinder, server: str) -> None:
    """Wait until the row of a server names no volume."""
    cell = demo.beside.cloud.plane.databases.cells["cell1"]

    async def is_without() -> bool:
        return (await cell.read(partial(volumes.told, uuids=[server])))[InstanceUuid(server)].volumes == ()

    await eventually(is_without, "the row names no volume")


async def test_of_two_detaches_at_once_cinder_refuses_one(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        server, volume = await demo.built(), demo.volume()
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        await has_it_in_its_row(demo, server)
        demo.store.volumes[volume].status = "detaching"
        assert await detach(demo, server, volume) == 400
        demo.store.volumes[volume].status = "in-use"
        assert await detach(demo, server, volume) == 202
        await demo.left(volume)


async def test_a_detach_that_was_left_half_way_is_rolled_back(tmp_path: Path) -> None:
    """By a look, where the process that began it died before the row had decided anything."""
    async with beside_cinder(tmp_path) as demo:
        server, volume = await demo.built(), demo.volume()
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        await has_it_in_its_row(demo, server)
        demo.store.volumes[volume].status = "detaching"

        async def rolled_back() -> bool:
            await demo.looked_at(server, since=Clock().now() - SETTLE - 10 * SECOND)
            return demo.store.volumes[volume].status == "in-use"

        await eventually(rolled_back, "the volume is in use as before")
        assert await has(demo, server) == [volume]


async def test_a_connection_that_was_left_half_way_is_completed(tmp_path: Path) -> None:
    """By a look, where a second process connected the volume again, and died before it had completed that."""
    async with beside_cinder(tmp_path) as demo:
        server, volume = await demo.built(), demo.volume()
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        await has_it_in_its_row(demo, server)
        [attachment] = demo.store.attachments.values()
        skep = TwinCaller(project_id="admin", is_admin=True, is_service=True)
        demo.store.connect(skep, attachment.id, attachment.connector)
        assert demo.attached(server) == {volume: [("attaching", HOST)]}

        async def completed() -> bool:
            await demo.looked_at(server, since=Clock().now() - SETTLE - 10 * SECOND)
            return demo.attached(server) == {volume: [("attached", HOST)]}

        await eventually(completed, "the volume is attached as before")
        assert demo.store.volumes[volume].status == "in-use"


async def has_it_in_its_row(demo: BesideCinder, server: str) -> None:
    """Wait until the row of a server says that its volumes are connected."""
    access = next(one for one in demo.beside.cloud.plane.cell_databases().values() if not one.cell.is_cell0)

    async def connected() -> bool:
        rows = await access.read(partial(volumes.told, uuids=[server]))
        return all(one.host == HOST for one in rows[InstanceUuid(server)].volumes)

    await eventually(connected, "the row says that the volume is connected")


async def test_a_volume_that_is_about_to_follow_its_server_can_be_detached(tmp_path: Path) -> None:
    """Between a move and its connection there Cinder calls it reserved or attaching, and would refuse to begin."""
    async with beside_cinder(tmp_path, hosts=2) as demo:
        server, volume = await demo.built(), demo.volume()
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume, (await has_host(demo, server)) or HOST)
        await demo.beside.cinder.fail(Mishap.ERROR, lambda method, path: method == "POST" and "attachments" in path)
        admin = await demo.beside.session("admin", "admin")
        moved = await admin.ask("POST", f"/servers/{server}/action", {"migrate": None})
        assert moved.status_code == 202, moved.text
        await demo.beside.calm(admin, server, "VERIFY_RESIZE")
        assert (await admin.ask("POST", f"/servers/{server}/action", {"confirmResize": None})).is_success
        await demo.beside.calm(admin, server, "ACTIVE")
        await demo.beside.cinder.meeting.wait()
        demo.store.volumes[volume].status = "attaching"
        assert await detach(demo, server, volume) == 202
        await demo.beside.cinder.heal()

        async def gone() -> bool:
            return await has(demo, server) == [] and demo.attached(server) == {}

        await eventually(gone, "the server has no volume")


async def test_a_volume_is_not_left_with_a_host_that_its_server_did_not_come_to(tmp_path: Path) -> None:
    """Cinder was told of the host, its answer was lost, and the server could not be built there."""
    async with beside_cinder(tmp_path) as demo:
        server, volume = await demo.built(), demo.volume()
        assert (await attach(demo, server, volume)).status_code == 202
        await is_attached(demo, server, volume)
        assert (await act(demo.compute, server, "shelve")) == 202
        await demo.becomes(server, "SHELVED_OFFLOADED")

        async def is_kept() -> bool:
            return demo.attached(server).get(volume) == [("reserved", "")]

        await eventually(is_kept, "the volume is at no host")
        cell = demo.beside.cloud.plane.databases.cells["cell1"]

        async def is_noted() -> bool:
            return not await cell.read(partial(volumes.misplaced, limit=10))

        await eventually(is_noted, "the row says so")
        [kept] = [one.id for one in demo.store.attachments.values() if one.instance == server]
        demo.store.connect(TwinCaller(project_id="admin", is_admin=True, is_service=True), kept, {"host": HOST})
        await cell.write(partial(volumes.loosen, uuid=InstanceUuid(server)))
        await eventually(is_kept, "the volume is at no host again")
        assert demo.store.volumes[volume].status == "reserved"
