"""Rescues in a whole cloud: what boots and what stays, whatever the server was and whatever happens to its host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.compute.drivers.fake import DISKS, GUESTS_FILE, RESCUE
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.guest_log import read_events
from skep.config.compute import FakeFailure
from skep.config.sections import RetentionSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain.ids import InstanceUuid
from skep.neighbours.images.tickets import NoTicket
from skep.processes.all_in_one import AllInOneCloud
from tests.functional.servers.test_image_tickets import CONTEXT, stored
from tests.functional.test_images_of_servers import HOST, Images

HANGS = FakeFailure(operation="rescue", server="hangs*", hangs=True)
FAILS = FakeFailure(operation="rescue", server="fails*", error="NoSpaceLeft", message="the disk is full")


def disk(cloud: AllInOneCloud, uuid: str, *under: str) -> bytes:
    return FakeDisks(cloud.directory.host("cell1", HOST).joinpath(*under) / DISKS).content(InstanceUuid(uuid), 1)


def boots(cloud: AllInOneCloud, uuid: str) -> list[bool]:
    """Return of each start of a guest whether it was from a rescue disk."""
    events = read_events(cloud.directory.host("cell1", HOST) / GUESTS_FILE)
    mine = [event for event in events if event.instance == uuid]
    return [event.rescued for event in mine if event.event in ("spawned", "powered_on", "rebooted")]


async def rescue(images: Images, uuid: str, **asked: str) -> Any:
    answer = await images.session.ask("POST", f"/servers/{uuid}/action", {"rescue": asked or None})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("halt", [None, "os-stop"])
async def test_a_rescue_by_an_image_and_its_end(tmp_path: Path, halt: str | None) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        uuid, image = await images.create(), await stored(cloud, session, b"a rescue system")
        if halt is not None:
            await images.act(uuid, {halt: None})
            await images.calm(uuid, "SHUTOFF")
        before = disk(cloud, uuid)
        assert await rescue(images, uuid, rescue_image_ref=image, adminPass="secret") == {"adminPass": "secret"}
        await images.calm(uuid, "RESCUE")
        assert (disk(cloud, uuid), disk(cloud, uuid, RESCUE)) == (before, b"a rescue system")
        assert await images.results(uuid) == [("compute_rescue_instance", "Success")]
        await images.act(uuid, {"unrescue": None})
        await images.calm(uuid, "ACTIVE")
        assert disk(cloud, uuid) == before
        with pytest.raises(FileNotFoundError):
            disk(cloud, uuid, RESCUE)
        assert boots(cloud, uuid) == [False, True, False]


@pytest.mark.parametrize(("halt", "status"), [(None, "ACTIVE"), ("os-stop", "SHUTOFF")])
async def test_a_rescue_that_fails_leaves_the_server_as_it_was(tmp_path: Path, halt: str | None, status: str) -> None:
    config = http_config(tmp_path, failures=[FAILS])
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        uuid = await images.create("fails")
        if halt is not None:
            await images.act(uuid, {halt: None})
            await images.calm(uuid, status)
        before, seen = disk(cloud, uuid), boots(cloud, uuid)
        await rescue(images, uuid)
        await images.calm(uuid, status)
        assert await images.results(uuid) == [("compute_rescue_instance", "Error")]
        assert (disk(cloud, uuid), boots(cloud, uuid)) == (before, seen)


async def test_deletes_of_rescued_servers(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        http_config(tmp_path), retention=RetentionSettings(reclaim_instance_interval=86_400)
    )
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        uuid = await images.create()
        await rescue(images, uuid)
        await images.calm(uuid, "RESCUE")
        assert (await session.ask("DELETE", f"/servers/{uuid}")).status_code == 204

        async def is_soft_deleted() -> bool:
            server = await images.server(uuid)
            return (server["status"], server["OS-EXT-STS:task_state"]) == ("SOFT_DELETED", None)

        await eventually(is_soft_deleted, "the server is SOFT_DELETED")
        await images.act(uuid, {"restore": None})
        await images.calm(uuid, "ACTIVE")
        assert boots(cloud, uuid) == [False, True, False], "it boots from its own disk again"
        await rescue(images, uuid)
        await images.calm(uuid, "RESCUE")
        await images.act(uuid, {"forceDelete": None})
        root = cloud.directory.host("cell1", HOST)

        async def gone() -> bool:
            return not any(FakeDisks(path / DISKS).labels() for path in (root, root / RESCUE))

        await eventually(gone, "no disk is left")


async def test_a_ticket_for_the_image_of_a_rescue_and_for_no_other(tmp_path: Path) -> None:
    config = http_config(tmp_path, failures=[HANGS])
    async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        uuid = await images.create("hangs")
        image, other = [await stored(cloud, session, content) for content in (b"a rescue system", b"another")]
        answer = await session.ask("POST", f"/servers/{uuid}/action", {"rescue": {"rescue_image_ref": image}})
        assert answer.status_code == 200, answer.text
        host = (await images.server(uuid))["OS-EXT-SRV-ATTR:host"]
        task_id = (await session.ask("GET", f"/servers/{uuid}/os-instance-actions")).json()["instanceActions"][0]

        async def ticket(**changed: Any) -> str:
            asked: dict[str, Any] = {
                "instance": uuid,
                "attempt": 1,
                "image": image,
                "host": host,
                "task_id": task_id["request_id"],
                **changed,
            }
            upcalls = cloud.plane.agents[asked.pop("host")]._started.upcalls
            return (await upcalls.ticket(**asked, context=CONTEXT)).ticket

        assert await ticket()
        [another] = [name for name in cloud.plane.agents if name != host]
        for changed in ({"host": another}, {"attempt": 2}, {"image": other}, {"task_id": "req-other"}):
            with pytest.raises(NoTicket, match="does not rescue this server with this image"):
                await ticket(**changed)
        with pytest.raises(NoTicket, match="not requested with this image"):
            await ticket(task_id="")
        for driver in cloud.plane.drivers.values():
            driver.release()  # type: ignore[attr-defined]
        await images.calm(uuid, "RESCUE")
