"""Shelved servers in a whole cloud: nothing is lost of them, whatever fails and whoever dies on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.compute.drivers.base import Guest
from skep.compute.drivers.fake import DISKS, GUESTS_FILE
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.guest_log import read_events
from skep.config.compute import FakeFailure
from skep.config.sections import QuotaSettings, RetentionSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.api import awaited_images
from skep.database.cell import attempts, fences, instances
from skep.domain.ids import InstanceUuid
from skep.processes.all_in_one import AllInOneCloud
from skep.telemetry.notifier import Notification

CONTENT = b"what the user wrote"
HANGS = FakeFailure(operation="snapshot", server="hangs*", hangs=True)
FAILS = FakeFailure(operation="snapshot", server="fails*", error="NoSpaceLeft", message="the disk is full")


class Shelving:
    """A cloud, and what a user does there."""

    def __init__(self, cloud: AllInOneCloud, session: ComputeSession) -> None:
        self.cloud = cloud
        self.session = session

    async def glance(self, method: str, path: str) -> Any:
        url = f"{self.cloud.images_url}/v2/images{path}"
        return await self.session.client.request(method, url, headers={"X-Auth-Token": self.session.token})

    async def images(self) -> dict[str, dict[str, Any]]:
        """Return all images but that of the installation, by name."""
        return {one["name"]: one for one in (await self.glance("GET", "")).json()["images"] if one["name"] != "tiny"}

    async def server(self, uuid: str) -> dict[str, Any]:
        answer = await self.session.ask("GET", f"/servers/{uuid}")
        return dict(answer.json()["server"]) if answer.status_code == 200 else {}

    async def create(self, name: str = "one", **more: Any) -> InstanceUuid:
        image = (await self.glance("GET", "?name=tiny")).json()["images"][0]["id"]
        body = {"server": {"name": name, "imageRef": image, "flavorRef": "1", "networks": "none"}, **more}
        answer = await self.session.ask("POST", "/servers", body, version="2.37")
        assert answer.status_code == 202, answer.text
        uuid = InstanceUuid(answer.json()["server"]["id"])
        await self.calm(uuid, "ACTIVE")
        return uuid

    async def ask(self, uuid: str, key: str, asked: Any = None, version: str = "2.91") -> int:
        answer = await self.session.ask("POST", f"/servers/{uuid}/action", {key: asked}, version=version)
        return answer.status_code

    async def act(self, uuid: str, key: str, asked: Any = None) -> None:
        assert await self.ask(uuid, key, asked) == 202

    async def calm(self, uuid: str, status: str) -> dict[str, Any]:
        """Wait until nothing is done to a server any more."""

        async def is_so() -> bool:
            server = await self.server(uuid)
            if not status or not server:
                return not status and not server
            return (server["status"], server["OS-EXT-STS:task_state"]) == (status, None)

        await eventually(is_so, f"the server is {status or 'gone'}")
        return await self.server(uuid)

    async def under(self, uuid: str, task: str) -> None:
        async def is_so() -> bool:
            return (await self.server(uuid)).get("OS-EXT-STS:task_state") == task

        await eventually(is_so, f"the server is {task}")

    async def nothing_awaited(self) -> None:
        async def none() -> bool:
            return not await self.cloud.plane.databases.api.read(awaited_images.read_all)

        await eventually(none, "no image is awaited")

    async def no_images(self) -> None:
        """Wait until no image of a server is left.

        A deleted server is gone for its user before the level above its cell knows, which has its image deleted then.
        """

        async def none() -> bool:
            return not await self.images()

        await eventually(none, "no image is left")
        await self.nothing_awaited()

    async def holds(self, servers: int) -> None:
        """Wait until the hosts have so many guests, and the cell as many open attempts."""

        async def is_so() -> bool:
            return len(await self.guests()) == servers

        await eventually(is_so, f"the hosts have {servers} guests")

    async def guests(self) -> list[Guest]:
        return [guest for driver in self.cloud.plane.drivers.values() for guest in await driver.guests()]

    async def events(self, uuid: str) -> list[tuple[str, str]]:
        """Return the events of all actions of a server but its create, oldest first."""
        path = f"/servers/{uuid}/os-instance-actions"
        found: list[tuple[str, str]] = []
        for one in reversed((await self.session.ask("GET", path)).json()["instanceActions"][:-1]):
            shown = (await self.session.ask("GET", f"{path}/{one['request_id']}")).json()["instanceAction"]
            found += [(event["event"], event["result"]) for event in reversed(shown["events"])]
        return found

    def host_of(self, server: dict[str, Any]) -> str:
        return str(server["OS-EXT-SRV-ATTR:host"])

    def disks(self, host: str) -> FakeDisks:
        return FakeDisks(self.cloud.directory.host(host.partition("-")[0], host) / DISKS)

    def write(self, host: str, uuid: InstanceUuid, attempt: int = 1) -> None:
        """Write to the disk of a guest, as its user does."""
        path = self.disks(host).path(uuid, attempt)
        path.unlink()
        path.write_bytes(CONTENT)

    def powered(self, uuid: str) -> list[str]:
        files = sorted(self.cloud.directory.root.rglob(GUESTS_FILE))
        return [event.event for file in files for event in read_events(file) if event.instance == uuid]

    @property
    def cell(self) -> Any:
        return self.cloud.plane.databases.cells["cell1"]

    async def row(self, uuid: InstanceUuid) -> Any:
        return await self.cell.read(partial(instances.get, uuid=uuid, deleted=True))


@asynccontextmanager
async def opened(
    root: Path,
    *failures: FakeFailure,
    offload: int = 0,
    hosts: int = 2,
    cells: int = 1,
    max_cells: int = 2,
    policy: str = "",
    **conductor: Any,
) -> AsyncIterator[Shelving]:
    """Open a cloud; `policy`: the text of its policy file."""
    rules = root / "policy.yaml"
    rules.write_text(policy)
    config = http_config(root, failures=failures, quota=QuotaSettings(instances=2))
    config = msgspec.structs.replace(
        config,
        retention=RetentionSettings(shelved_offload_time=offload),
        conductor=msgspec.structs.replace(config.conductor, **conductor),
        scheduler=msgspec.structs.replace(config.scheduler, max_cells=max_cells),
        api=msgspec.structs.replace(config.api, policy_file=str(rules)) if policy else config.api,
    )
    async with serving_cloud(config, cells=cells, hosts=hosts) as cloud, signed_in(cloud) as session:
        yield Shelving(cloud, session)


@pytest.mark.parametrize(
    ("halt", "status"), [(None, "ACTIVE"), ("os-stop", "SHUTOFF"), ("pause", "PAUSED"), ("suspend", "SUSPENDED")]
)
async def test_a_server_is_shelved_and_comes_back_with_its_content(
    tmp_path: Path, halt: str | None, status: str
) -> None:
    async with opened(tmp_path) as cloud:
        uuid = await cloud.create()
        cloud.write(cloud.host_of(await cloud.server(uuid)), uuid)
        if halt is not None:
            await cloud.act(uuid, halt)
            await cloud.calm(uuid, status)
        await cloud.act(uuid, "shelve")
        shelved = await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert (shelved["OS-EXT-SRV-ATTR:host"], shelved["OS-EXT-STS:vm_state"]) == (None, "shelved_offloaded")
        image = (await cloud.images())["one-shelved"]
        assert (image["status"], image["visibility"], image["image_type"]) == ("active", "private", "snapshot")
        assert (await cloud.glance("GET", f"/{image['id']}/file")).content == CONTENT
        await cloud.holds(0)
        await cloud.nothing_awaited()
        assert (await cloud.session.ask("GET", "/limits")).json()["limits"]["absolute"]["totalInstancesUsed"] == 1
        await cloud.act(uuid, "unshelve")
        server = await cloud.calm(uuid, "ACTIVE")
        row = await cloud.row(uuid)
        assert cloud.disks(cloud.host_of(server)).content(uuid, row.attempt) == CONTENT
        assert row.shelved is None
        [guest] = await cloud.guests()
        assert (guest.attempt, guest.power_state.name) == (row.attempt, "RUNNING")
        await cloud.nothing_awaited()
        assert await cloud.images() == {}
        assert (await cloud.events(uuid))[-3:] == [
            ("compute_shelve_instance", "Success"),
            ("compute_shelve_offload_instance", "Success"),
            ("compute_unshelve_instance", "Success"),
        ]


async def test_a_server_that_stays_on_its_host_is_started_there(tmp_path: Path) -> None:
    async with opened(tmp_path, offload=-1) as cloud:
        uuid = await cloud.create()
        await cloud.act(uuid, "shelve")
        shelved = await cloud.calm(uuid, "SHELVED")
        assert shelved["OS-EXT-STS:power_state"] == 4
        [guest] = await cloud.guests()
        assert (guest.attempt, guest.power_state.name) == (1, "SHUTDOWN")
        assert await cloud.ask(uuid, "unshelve", {"availability_zone": "nova"}) == 409
        assert await cloud.ask(uuid, "os-start") == 409
        await cloud.nothing_awaited()
        assert list(await cloud.images()) == ["one-shelved"]
        await cloud.act(uuid, "unshelve")
        await cloud.calm(uuid, "ACTIVE")
        assert cloud.powered(uuid) == ["spawn_begun", "spawned", "powered_off", "powered_on"]
        await cloud.nothing_awaited()
        assert await cloud.images() == {}
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED")
        await cloud.act(uuid, "shelveOffload")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        await cloud.holds(0)
        assert await cloud.ask(uuid, "shelveOffload") == 409
        assert await cloud.ask(uuid, "shelve") == 409


async def test_a_server_leaves_its_host_when_its_time_is_over(tmp_path: Path) -> None:
    async with opened(tmp_path, offload=1) as cloud:
        uuid = await cloud.create()
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        await cloud.holds(0)
        assert await cloud.events(uuid) == [
            ("compute_shelve_instance", "Success"),
            ("compute_shelve_offload_instance", "Success"),
        ]


@pytest.mark.parametrize(("halt", "status"), [(None, "ACTIVE"), ("os-stop", "SHUTOFF"), ("pause", "PAUSED")])
async def test_a_shelve_that_fails_leaves_the_server_as_it_was(tmp_path: Path, halt: str | None, status: str) -> None:
    async with opened(tmp_path, FAILS) as cloud:
        uuid = await cloud.create("fails-1")
        if halt is not None:
            await cloud.act(uuid, halt)
            await cloud.calm(uuid, status)
        [before] = await cloud.guests()
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, status)
        assert (await cloud.events(uuid))[-1] == ("compute_shelve_instance", "Error")
        assert await cloud.guests() == [before]
        await cloud.nothing_awaited()
        assert await cloud.images() == {}
        row = await cloud.row(uuid)
        assert (row.shelved, row.attempt) == (None, 1)


async def test_a_host_that_restarts_shelves_anew(tmp_path: Path) -> None:
    async with opened(tmp_path, HANGS, hosts=1) as cloud:
        uuid = await cloud.create("hangs-1")
        cloud.write("cell1-host1", uuid)
        await cloud.act(uuid, "shelve")
        await cloud.under(uuid, "shelving_image_pending_upload")
        await restart_agent(cloud, "cell1-host1")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        image = (await cloud.images())["hangs-1-shelved"]
        assert (await cloud.glance("GET", f"/{image['id']}/file")).content == CONTENT
        await cloud.holds(0)


async def restart_agent(cloud: Shelving, host: str) -> None:
    plane = cloud.cloud.plane
    [cell] = [cell for cell in plane.cells.values() if cell.name == "cell1"]
    await plane.agents.pop(host).stop(0)
    release(cloud)
    plane.drivers.pop(host).close()
    await plane.start_agent(cell, host)
    release(cloud)


def release(cloud: Shelving) -> None:
    for driver in cloud.cloud.plane.drivers.values():
        driver.release()  # type: ignore[attr-defined]


@pytest.mark.parametrize("when", ["shelving", "shelved", "offloaded", "unshelving"])
async def test_a_delete_leaves_nothing(tmp_path: Path, when: str) -> None:
    failures = [HANGS] if when == "shelving" else []
    async with opened(tmp_path, *failures, offload=-1 if when == "shelved" else 0) as cloud:
        uuid = await cloud.create("hangs-1")
        await cloud.act(uuid, "shelve")
        if when == "shelving":
            await cloud.under(uuid, "shelving_image_pending_upload")
        else:
            await cloud.calm(uuid, "SHELVED" if when == "shelved" else "SHELVED_OFFLOADED")
            await cloud.nothing_awaited()
        if when == "unshelving":
            await cloud.act(uuid, "unshelve")
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        release(cloud)
        await cloud.calm(uuid, "")
        await cloud.holds(0)
        await cloud.no_images()
        row = await cloud.row(uuid)
        assert [one for one in await cloud.cell.read(partial(attempts.history, instance=uuid)) if one.open] == []
        assert row.deleted_at is not None


async def test_no_host_leaves_it_offloaded(tmp_path: Path) -> None:
    async with opened(tmp_path) as cloud:
        uuid = await cloud.create()
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        for driver in cloud.cloud.plane.drivers:
            body = {"binary": "nova-compute", "host": driver}
            assert (await cloud.session.ask("PUT", "/os-services/disable", body)).status_code == 200
        await cloud.act(uuid, "unshelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert (await cloud.events(uuid))[-1] == ("compute_unshelve_instance", "Error")
        row = await cloud.row(uuid)
        assert row.shelved.image is None
        assert row.launched_at is not None
        await cloud.nothing_awaited()
        assert list(await cloud.images()) == ["one-shelved"]
        for driver in cloud.cloud.plane.drivers:
            body = {"binary": "nova-compute", "host": driver}
            assert (await cloud.session.ask("PUT", "/os-services/enable", body)).status_code == 200
        await cloud.act(uuid, "unshelve")
        await cloud.calm(uuid, "ACTIVE")


async def test_it_goes_to_the_zone_that_is_named_and_stays_there(tmp_path: Path) -> None:
    async with opened(tmp_path, hosts=2) as cloud:
        uuid = await cloud.create()
        body = {"aggregate": {"name": "east", "availability_zone": "east"}}
        made = await cloud.session.ask("POST", "/os-aggregates", body)
        there = cloud.host_of(await cloud.calm(uuid, "ACTIVE"))
        east = next(host for host in cloud.cloud.plane.drivers if host != there)
        path = f"/os-aggregates/{made.json()['aggregate']['id']}/action"
        added = await cloud.session.ask("POST", path, {"add_host": {"host": east}})
        assert added.status_code == 200
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert await cloud.ask(uuid, "unshelve", {"availability_zone": "east"}, version="2.77") == 202
        server = await cloud.calm(uuid, "ACTIVE")
        assert cloud.host_of(server) == east
        assert (await cloud.row(uuid)).pinned_availability_zone == "east"


async def test_what_is_told_of_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as cloud:
        uuid = await cloud.create()
        process, heard = cloud.cloud.plane.process, list[Notification]()
        process.notifier._sinks = (*process.notifier._sinks, heard.append)
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        await cloud.act(uuid, "unshelve")
        await cloud.calm(uuid, "ACTIVE")

        async def told() -> bool:
            return bool(heard) and heard[-1].event_type == "instance.unshelve.end"

        await eventually(told, "the end is told")
        assert [one.event_type for one in heard if one.event_type.startswith("instance.")] == [
            f"instance.{what}.{when}" for what in ("shelve", "shelve_offload", "unshelve") for when in ("start", "end")
        ]
        for name in ("shelve", "shelve_offload", "unshelve_offloaded"):
            assert process.metrics.actions.labels(name, "ok")._value.get() == 1


async def test_a_fence_leaves_what_was_shelved_in_its_image(tmp_path: Path) -> None:
    async with opened(tmp_path, offload=-1, fence_grace_seconds=0.5) as cloud:
        uuid = await cloud.create()
        host = cloud.host_of(await cloud.server(uuid))
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED")
        plane = cloud.cloud.plane
        await plane.agents.pop(host).stop(0)
        node = (await cloud.row(uuid)).node
        await cloud.cell.write(partial(fences.mark, node=node, now=1, due_at=2))
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        await cloud.act(uuid, "unshelve")
        server = await cloud.calm(uuid, "ACTIVE")
        assert cloud.host_of(server) != host


async def test_a_silent_host_keeps_nobody_from_unshelving(tmp_path: Path) -> None:
    async with opened(tmp_path, offload=-1, task_deadline=1.0) as cloud:
        uuid = await cloud.create()
        host = cloud.host_of(await cloud.server(uuid))
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED")
        plane = cloud.cloud.plane
        await plane.agents.pop(host).stop(0)
        await cloud.act(uuid, "shelveOffload")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        [left] = [one for one in await cloud.cell.read(partial(attempts.history, instance=uuid)) if one.open]
        assert (left.attempt, left.host) == (1, host), "it is undone when the host is heard"
        plane.drivers.pop(host).close()
        [cell] = [cell for cell in plane.cells.values() if cell.name == "cell1"]
        await plane.start_agent(cell, host)
        await cloud.holds(0)


async def test_it_goes_to_the_host_that_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path, hosts=3) as cloud:
        uuid = await cloud.create()
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert await cloud.ask(uuid, "unshelve", {"host": "nowhere"}) == 400
        assert await cloud.ask(uuid, "unshelve", {"availability_zone": "nowhere"}) == 400
        assert await cloud.ask(uuid, "unshelve", {"zone": "nova"}) == 400
        assert await cloud.ask(uuid, "unshelve", {}, version="2.77") == 400
        assert await cloud.ask(uuid, "unshelve", {"host": "cell1-host3"}, version="2.77") == 400
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        await cloud.act(uuid, "unshelve", {"host": "cell1-host3"})
        assert cloud.host_of(await cloud.calm(uuid, "ACTIVE")) == "cell1-host3"


@pytest.mark.parametrize(("error", "status"), [("SpawnFailed", "ACTIVE"), ("BuildAbortException", "SHELVED_OFFLOADED")])
async def test_a_host_that_fails_leaves_the_next_its_turn(tmp_path: Path, error: str, status: str) -> None:
    failure = FakeFailure(operation="spawn", server="late*", error=error, message="no", host="cell1-host[12]")
    async with opened(tmp_path, failure, hosts=3) as cloud:
        uuid = await cloud.create()
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        renamed = await cloud.session.ask("PUT", f"/servers/{uuid}", {"server": {"name": "late-1"}})
        assert renamed.status_code == 200
        if status == "SHELVED_OFFLOADED":
            await cloud.act(uuid, "unshelve", {"host": "cell1-host1"})
        else:
            await cloud.act(uuid, "unshelve")
        await cloud.calm(uuid, status)
        await cloud.holds(1 if status == "ACTIVE" else 0)
        await cloud.nothing_awaited()
        assert len(await cloud.images()) == (0 if status == "ACTIVE" else 1)


LATE = FakeFailure(operation="spawn", server="late*", hangs=True)


async def spawning(cloud: Shelving) -> tuple[InstanceUuid, str]:
    """Have a server that is being unshelved, and whose spawn hangs; return it and its host."""
    uuid = await cloud.create()
    cloud.write(cloud.host_of(await cloud.server(uuid)), uuid)
    await cloud.act(uuid, "shelve")
    await cloud.calm(uuid, "SHELVED_OFFLOADED")
    await cloud.session.ask("PUT", f"/servers/{uuid}", {"server": {"name": "late-1"}})
    await cloud.act(uuid, "unshelve")
    await cloud.under(uuid, "spawning")
    shown = await cloud.server(uuid)
    assert (shown["status"], shown["OS-EXT-STS:vm_state"]) == ("SHELVED_OFFLOADED", "shelved_offloaded")
    return uuid, cloud.host_of(shown)


async def test_a_host_that_restarts_goes_on_unshelving(tmp_path: Path) -> None:
    async with opened(tmp_path, LATE) as cloud:
        uuid, host = await spawning(cloud)
        await restart_agent(cloud, host)
        server = await cloud.calm(uuid, "ACTIVE")
        row = await cloud.row(uuid)
        assert cloud.disks(cloud.host_of(server)).content(uuid, row.attempt) == CONTENT
        assert len(await cloud.guests()) == 1
        await cloud.nothing_awaited()
        assert await cloud.images() == {}


async def test_a_host_that_is_silent_past_the_point_of_no_return_is_waited_for(tmp_path: Path) -> None:
    async with opened(tmp_path, LATE, spawning_deadline=1.0) as cloud:
        uuid, host = await spawning(cloud)
        await cloud.cloud.plane.agents.pop(host).stop(0)
        await cloud.calm(uuid, "ERROR")
        assert await cloud.ask(uuid, "os-resetState", {"state": "active"}) == 409
        assert len(await cloud.images()) == 1
        plane = cloud.cloud.plane
        plane.drivers.pop(host).close()
        [cell] = [cell for cell in plane.cells.values() if cell.name == "cell1"]
        await plane.start_agent(cell, host)
        release(cloud)
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert (await cloud.events(uuid))[-1] == ("compute_unshelve_instance", "Error")
        await cloud.holds(0)
        await cloud.nothing_awaited()
        assert len(await cloud.images()) == 1


async def test_a_fence_past_the_point_of_no_return_leaves_it_offloaded(tmp_path: Path) -> None:
    async with opened(tmp_path, LATE, spawning_deadline=1.0, fence_grace_seconds=0.5) as cloud:
        uuid, host = await spawning(cloud)
        await cloud.cloud.plane.agents.pop(host).stop(0)
        await cloud.calm(uuid, "ERROR")
        node = (await cloud.row(uuid)).node
        await cloud.cell.write(partial(fences.mark, node=node, now=1, due_at=2))
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert (await cloud.events(uuid))[-1] == ("compute_unshelve_instance", "Error")
        await cloud.session.ask("PUT", f"/servers/{uuid}", {"server": {"name": "one"}})
        await cloud.act(uuid, "unshelve")
        assert cloud.host_of(await cloud.calm(uuid, "ACTIVE")) != host
        release(cloud)


async def test_a_delete_past_the_point_of_no_return_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, LATE) as cloud:
        uuid, _ = await spawning(cloud)
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        release(cloud)
        await cloud.calm(uuid, "")
        await cloud.holds(0)
        await cloud.no_images()


async def test_an_image_that_is_gone_is_said_before_anything_begins(tmp_path: Path) -> None:
    async with opened(tmp_path) as cloud:
        uuid = await cloud.create()
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        image = (await cloud.images())["one-shelved"]
        assert (await cloud.glance("DELETE", f"/{image['id']}")).status_code == 204
        assert await cloud.ask(uuid, "unshelve") == 409
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
