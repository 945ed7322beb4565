"""Servers whose volumes are those of a Cinder: one that answers, one that fails, one whose answers are lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession
from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api import volume_holders
from skep.database.cell import volumes
from skep.database.cell.tables import instances as rows
from skep.database.engine import T, Unit
from skep.domain.clock import SECOND
from skep.domain.ids import InstanceUuid, new_uuid
from skep.super_conductor import deletes
from skep.telemetry.steps import CrashPoint
from skep_lab.cinder_twin.store import TwinCaller, TwinVolume
from skep_lab.faulty_service import OF_A_CLOUD, Mishap
from tests.functional.neighbours.test_faulty_keystone import unavailable
from tests.support.cloud_beside import CloudBeside, cloud_beside
from tests.support.live_migrating import LIVE

NEWEST = "2.104"

HOST = "cell1-host1"
LIMIT = 0.01
"""Seconds in which volumes of deleted servers are released, where a database is slower."""
WHILE = 4.0
"""Seconds in which volumes have to be made, where that counts."""

Json = dict[str, Any]


class BesideCinder:
    """A user of a cloud beside a Cinder, whose volumes are looked at in the twin itself."""

    def __init__(self, beside: CloudBeside, compute: ComputeSession, image: str) -> None:
        self.beside = beside
        self.compute = compute
        self.image = image
        self.store = beside.volumes
        self.project = beside.behind.first.project_ids["demo"]

    async def restart(self) -> None:
        """End the cloud, and begin it anew."""
        await self.beside.restart()
        self.compute = await self.beside.session()

    def volume(self, **fields: Any) -> str:
        """Make a volume of the user's."""
        self.store.looks = 0
        made = self.store.create_volume(TwinCaller(project_id=self.project), {"size": 1, **fields})
        made.status = "available"
        self.store.looks = 1
        return made.id

    async def asked(self, *devices: Json, **keys: Any) -> httpx.Response:
        """Ask for a server with disks besides that of its image."""
        root = {"source_type": "image", "uuid": self.image, "destination_type": "local", "boot_index": 0}
        server = {
            "name": "one",
            "imageRef": self.image,
            "flavorRef": "1",
            "networks": "none",
            "block_device_mapping_v2": [root, *devices],
            **keys,
        }
        return await self.compute.ask("POST", "/servers", {"server": server}, version=NEWEST)

    async def create(self, *devices: Json, **keys: Any) -> str:
        """Ask for a server that is taken; return its id."""
        answer = await self.asked(*devices, **keys)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["server"]["id"])

    async def server(self, uuid: str) -> Json:
        """Show a server."""
        answer = await self.compute.ask("GET", f"/servers/{uuid}", version=NEWEST)
        assert answer.status_code == 200, answer.text
        shown: Json = answer.json()["server"]
        return shown

    async def becomes(self, uuid: str, status: str) -> Json:
        """Wait until a server is so, and nothing is done to it."""

        async def is_so() -> bool:
            shown = await self.server(uuid)
            return (shown["status"], shown["OS-EXT-STS:task_state"]) == (status, None)

        await eventually(is_so, f"the server is {status}")
        return await self.server(uuid)

    async def built(self, *devices: Json, **keys: Any) -> str:
        """Ask for a server and wait until it is there."""
        uuid = await self.create(*devices, **keys)
        await self.becomes(uuid, "ACTIVE")
        return uuid

    def attached(self, server: str) -> dict[str, list[tuple[str, str]]]:
        """Return status and host of the attachments of a server, by their volumes."""
        found: dict[str, list[tuple[str, str]]] = {}
        for one in self.store.attachments.values():
            if one.instance == server:
                found.setdefault(one.volume_id, []).append((one.status, one.connector.get("host", "")))
        return found

    def there(self) -> dict[str, str]:
        """Return the status of all volumes, as a list of them says it."""
        admin = TwinCaller(project_id="admin", is_admin=True)
        return {one.id: one.status for one in self.store.listed(admin, of_all=True, metadata={})}

    async def left(self, *volumes: str) -> None:
        """Wait until these volumes are all that is left, and nobody has them."""

        async def are_all() -> bool:
            return not self.store.attachments and self.there() == dict.fromkeys(volumes, "available")

        await eventually(are_all, "only what stays is left in Cinder")

    def made_for(self, server: str) -> list[TwinVolume]:
        """Return the volumes that were made for a server."""
        return [one for one in self.store.volumes.values() if one.metadata.get("skep_server") == server]

    async def delete(self, server: str) -> None:
        """Delete a server and wait until it is gone."""
        assert (await self.compute.ask("DELETE", f"/servers/{server}")).status_code == 204

        async def gone() -> bool:
            return (await self.compute.ask("GET", f"/servers/{server}")).status_code == 404

        await eventually(gone, "the server is gone")

    async def looked_at(self, server: str, since: int = 1) -> None:
        """Have a server looked at as it is after a while, when nothing is under way any more.

        `since`: when it was noted; long ago.
        """
        uuid = InstanceUuid(server)

        def unit(connection: Connection) -> None:
            volume_holders.end(connection, [uuid], since)

        await self.beside.cloud.plane.databases.api.write(unit)


@asynccontextmanager
async def beside_cinder(root: Path, **settings: Any) -> AsyncIterator[BesideCinder]:
    async with cloud_beside(root, volumes=True, **settings) as beside:
        yield BesideCinder(beside, await beside.session(), await beside.image())


def brought(volume: str, **keys: Any) -> Json:
    """Return the disk that is a volume of the user's."""
    return {"source_type": "volume", "uuid": volume, "destination_type": "volume", **keys}


def blank(**keys: Any) -> Json:
    """Return a disk that is a new volume."""
    return {"source_type": "blank", "destination_type": "volume", "volume_size": 1, **keys}


async def test_a_server_has_the_volumes_of_cinder(tmp_path: Path) -> None:
    """One that is the user's, one that is made for it and goes with it, one that is made and stays."""
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        server = await demo.built(brought(mine), blank(delete_on_termination=True), blank(delete_on_termination=False))
        made = demo.made_for(server)
        assert demo.attached(server) == {one: [("attached", HOST)] for one in (mine, *(one.id for one in made))}
        assert {one.project_id for one in made} == {demo.project}
        await demo.delete(server)
        await demo.left(mine, made[1].id)


async def test_a_volume_of_a_user_that_is_to_go_with_the_server(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        await demo.delete(await demo.built(brought(mine, delete_on_termination=True)))
        await demo.left()


@pytest.mark.parametrize("fault", OF_A_CLOUD, ids=lambda fault: fault.name)
async def test_builds_wait_for_cinder(tmp_path: Path, fault: Mishap) -> None:
    """A create whose volumes cannot be looked up is refused; one that was taken waits, and has its volumes once."""
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        disks = brought(mine), blank(delete_on_termination=True)
        if fault is not Mishap.LOST:
            await demo.beside.cinder.fail(fault)
            unavailable(await demo.asked(*disks), "the volume service")
            await demo.beside.cinder.heal()
        if fault is Mishap.REFUSES:
            return
        await demo.beside.cinder.fail(fault, lambda method, _path: method in ("POST", "PUT"))
        server = await demo.create(*disks)
        await asyncio.wait_for(demo.beside.cinder.meeting.wait(), 60)
        await demo.beside.cinder.heal()
        await demo.becomes(server, "ACTIVE")
        assert [len(one) for one in demo.attached(server).values()] == [1, 1]
        await demo.delete(server)
        await demo.left(mine)


async def test_a_cinder_that_was_away_for_long_has_its_time(tmp_path: Path) -> None:
    """A build waits for it, over more tries than hosts may be tried; then volumes are made from the beginning."""
    async with beside_cinder(tmp_path, volume_seconds=WHILE) as demo:
        await demo.beside.cinder.fail(Mishap.ERROR, lambda method, _path: method == "POST")
        server = InstanceUuid(await demo.create(blank(delete_on_termination=True)))
        api, config = demo.beside.cloud.plane.databases.api, demo.beside.config

        async def has_waited() -> bool:
            mapping = await api.read(partial(mappings.get, instance=server))
            assert mapping is not None
            waited = demo.beside.cloud.clock.now() - mapping.created_at
            return mapping.attempt > config.scheduler.max_attempts and waited > WHILE * SECOND

        await eventually(has_waited, "the build has waited for longer than volumes may take")
        demo.store.looks = 0
        await demo.beside.cinder.heal()

        async def ends() -> str | None:
            status = str((await demo.server(server))["status"])
            return None if status == "BUILD" else status

        assert await eventually(ends, "the build has ended") == "ACTIVE"


async def test_a_build_goes_on_where_a_volume_is_half_connected(tmp_path: Path) -> None:
    """Until its attachment is completed Cinder makes no other of it, not for the next attempt of its server either."""
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        posts = lambda method, path: (method, path.endswith("/action")) == ("POST", True)  # noqa: E731
        await demo.beside.cinder.fail(Mishap.ERROR, posts)
        server = await demo.create(brought(mine))
        await asyncio.wait_for(demo.beside.cinder.meeting.wait(), 60)
        assert demo.attached(server) == {mine: [("attaching", HOST)]}
        await demo.beside.cinder.heal()
        await demo.becomes(server, "ACTIVE")
        assert demo.attached(server) == {mine: [("attached", HOST)]}
        await demo.delete(server)
        await demo.left(mine)


async def test_volumes_that_are_refused(tmp_path: Path) -> None:
    """The server says why; nothing is kept for it, and no claim is held."""
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        demo.store.limits[demo.project] = 1
        server = await demo.create(brought(mine), blank(delete_on_termination=True))
        shown = await demo.becomes(server, "ERROR")
        assert "VolumeLimitExceeded" in shown["fault"]["message"]
        await demo.left(mine)


async def test_a_server_without_a_host_leaves_no_volume(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        admin = await demo.beside.session("admin", "admin")
        flavor = {"id": "odd", "name": "odd", "ram": 64, "vcpus": 1, "disk": 1}
        assert (await admin.ask("POST", "/flavors", {"flavor": flavor})).status_code == 200
        specs = {"extra_specs": {"trait:CUSTOM_NOWHERE": "required"}}
        assert (await admin.ask("POST", "/flavors/odd/os-extra_specs", specs)).status_code == 200
        server = await demo.create(brought(mine), blank(delete_on_termination=True), flavorRef="odd")
        await demo.becomes(server, "ERROR")
        await demo.left(mine)


async def test_a_server_that_is_deleted_while_its_volumes_are_made(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        demo.store.looks = 1000
        mine = demo.volume()
        server = await demo.create(brought(mine), blank(delete_on_termination=True))

        async def begun() -> bool:
            return bool(demo.made_for(server))

        await eventually(begun, "a volume is being made")
        await demo.delete(server)
        for one in demo.made_for(server):
            one.looks = 0
        await demo.looked_at(server)
        await demo.left(mine)


async def test_volumes_follow_their_server(tmp_path: Path) -> None:
    """To the other host of a move, before its guest is there; nobody else gets them in between."""
    async with beside_cinder(tmp_path, hosts=2) as demo:
        mine = demo.volume()
        server = await demo.built(brought(mine))
        [(_, before)] = demo.attached(server)[mine]
        admin = await demo.beside.session("admin", "admin")
        assert (await admin.ask("POST", f"/servers/{server}/action", {"migrate": None})).status_code == 202
        await demo.becomes(server, "VERIFY_RESIZE")

        [(status, after)] = demo.attached(server)[mine]
        assert status == "attached"
        assert after not in ("", before)
        assert (await admin.ask("POST", f"/servers/{server}/action", {"revertResize": None})).status_code == 202
        await demo.becomes(server, "ACTIVE")
        assert demo.attached(server)[mine] == [("attached", before)]
        assert (await admin.ask("POST", f"/servers/{server}/action", LIVE, version="2.30")).status_code == 202
        await demo.becomes(server, "ACTIVE")
        assert demo.attached(server)[mine] == [("attached", after)]
        await demo.delete(server)
        await demo.left(mine)


async def test_a_cinder_that_is_away_holds_up_no_move_for_good(tmp_path: Path) -> None:
    """The guest starts after a while, and its volume follows once Cinder is back."""
    async with beside_cinder(tmp_path, hosts=2, of_conductors={"scheduled_deadline": 4.0}) as demo:
        mine = demo.volume()
        server = await demo.built(brought(mine))
        [(_, before)] = demo.attached(server)[mine]
        await demo.beside.cinder.fail(Mishap.ERROR)
        admin = await demo.beside.session("admin", "admin")
        assert (await admin.ask("POST", f"/servers/{server}/action", {"migrate": None})).status_code == 202
        await demo.becomes(server, "VERIFY_RESIZE")
        assert demo.attached(server)[mine] == [("attached", before)]
        await demo.beside.cinder.heal()

        async def followed() -> bool:
            there = demo.attached(server)[mine]
            return len(there) == 1 and there[0][0] == "attached" and there[0][1] not in ("", before)

        await eventually(followed, "the volume is connected to the other host")
        await demo.delete(server)
        await demo.left(mine)


async def test_what_neither_row_nor_build_knows_is_released(tmp_path: Path) -> None:
    """An attachment whose request had no answer; a volume that was made twice. What is the server's stays."""
    async with beside_cinder(tmp_path) as demo:
        mine, other = demo.volume(), demo.volume()
        server = await demo.built(brought(mine), blank(delete_on_termination=True))
        [made] = demo.made_for(server)
        service = TwinCaller(project_id="admin", is_admin=True, is_service=True)
        demo.store.create_attachment(service, {"volume_uuid": other, "instance_uuid": server})
        late = msgspec.structs.replace(made, id=new_uuid(), metadata={**made.metadata, "skep_volume": ""})
        late.metadata.pop("skep_volume")
        late.status = "available"
        demo.store.volumes[late.id] = late
        await demo.looked_at(server)

        async def released() -> bool:
            return set(demo.attached(server)) == {mine, made.id} and set(demo.there()) == {mine, other, made.id}

        await eventually(released, "what nothing knows is released")
        await demo.delete(server)
        await demo.left(mine, other)


async def test_an_attachment_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        server = await demo.built(brought(mine))
        [attachment] = demo.store.attachments
        service = TwinCaller(project_id="admin", is_admin=True, is_service=True)
        demo.store.delete_attachment(service, attachment)
        await demo.looked_at(server)

        async def again() -> bool:
            return demo.attached(server).get(mine) == [("attached", HOST)]

        await eventually(again, "the volume is attached again")


async def test_a_row_that_went_back_in_time_keeps_the_volume_of_its_guest(tmp_path: Path) -> None:
    """It is told by the audit, and not taken from the guest; with the server it is released."""
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        server = await demo.built(brought(mine))
        [access] = [one for one in demo.beside.cloud.plane.cell_databases().values() if not one.cell.is_cell0]
        await access.write(lambda connection: connection.execute(rows.update().values(**volumes.columns(()))))
        await demo.looked_at(server)
        admin = await demo.beside.session("admin", "admin")
        url = f"{demo.beside.cloud.api_url.removesuffix('/v2.1')}/admin/v1/audit"

        async def told() -> bool:
            answer = await admin.client.get(url, headers={"X-Auth-Token": admin.token})
            return [one["kind"] for one in answer.json()["audit"]["differences"]] == ["volumes_differ"]

        await eventually(told, "the audit tells of it")
        assert demo.attached(server) == {mine: [("attached", HOST)]}
        await demo.delete(server)
        await demo.left(mine)


async def test_a_cloud_that_ends_while_it_builds(tmp_path: Path) -> None:
    async with beside_cinder(tmp_path) as demo:
        mine = [demo.volume() for _ in range(4)]
        servers = [await demo.create(brought(one), blank(delete_on_termination=True)) for one in mine]
        await demo.restart()
        for server in servers:
            await demo.becomes(server, "ACTIVE")
            assert len(demo.attached(server)) == 2
        await asyncio.gather(*(demo.delete(server) for server in servers))
        await demo.left(*mine)


class _Stopped(Exception):
    """What a step raises where a test holds the build."""


@pytest.mark.parametrize("step", ["volumes", "select", "connect", "stage", "map"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_build_that_stopped_goes_on_after_a_restart(tmp_path: Path, step: str, when: str) -> None:
    async with beside_cinder(tmp_path) as demo:

        async def fail_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when:
                raise _Stopped

        demo.beside.cloud.plane.steps.crash_hook = fail_there
        mine = demo.volume()
        server = await demo.create(brought(mine), blank(delete_on_termination=True))
        await demo.restart()
        await demo.becomes(server, "ACTIVE")
        [made] = demo.made_for(server)
        assert demo.attached(server) == {one: [("attached", HOST)] for one in (mine, made.id)}
        await demo.delete(server)
        await demo.left(mine)


async def test_cinder_is_away_while_servers_are_deleted(tmp_path: Path) -> None:
    """They are gone all the same, and their volumes follow."""
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        server = await demo.built(brought(mine), blank(delete_on_termination=True))
        await demo.beside.cinder.fail(Mishap.ERROR)
        await demo.delete(server)
        assert demo.store.attachments
        await demo.beside.cinder.heal()
        await demo.looked_at(server)
        await demo.left(mine)


async def test_what_becomes_of_volumes_is_noted_however_slow_the_database_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is for what Cinder is asked: it ends no note, without which a look would leave the volume."""
    async with beside_cinder(tmp_path) as demo:
        mine = demo.volume()
        server = await demo.built(brought(mine, delete_on_termination=True))
        api = demo.beside.cloud.plane.databases.api
        write = api.write

        async def slow(unit: Unit[T], **limits: Any) -> T:
            since = time.monotonic()

            async def is_late() -> bool:
                return time.monotonic() > since + 10 * LIMIT

            await eventually(is_late, "the limit is over")
            return await write(unit, **limits)

        monkeypatch.setattr(deletes, "RELEASE_SECONDS", LIMIT)
        monkeypatch.setattr(api, "write", slow)
        await demo.beside.cinder.fail(Mishap.ERROR)
        await demo.delete(server)

        async def is_forgotten() -> bool:
            return InstanceUuid(server) in await api.read(partial(mappings.ended_of, instances=[InstanceUuid(server)]))

        await eventually(is_forgotten, "nothing waits for Cinder any more")
        monkeypatch.undo()
        known = await api.read(partial(volume_holders.known, servers=[InstanceUuid(server)]))
        assert known[InstanceUuid(server)].ends.ended == (mine,)
        await demo.beside.cinder.heal()
        await demo.looked_at(server)
        await demo.left()
