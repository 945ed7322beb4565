"""Servers that are asked for with volumes, and what is done to servers that boot from one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skep.database import Connection
from skep.database.api import build_requests
from skep.database.cell import builds, tables
from skep.database.cell import volumes as cell_volumes
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import Instance
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import DISK_GB
from skep.domain.volumes import ServerVolume
from skep.neighbours.volumes.base import BootVolume, WantedAttachments
from skep_lab.compute_api.servers import CELL1, IMAGE, LARGE, SAVING, ServersUnderTest, servers_under_test
from tests.support.memory_volumes import MemoryVolumes

NEWEST = 104


@pytest.fixture
def volumes() -> MemoryVolumes:
    return MemoryVolumes()


@pytest.fixture
async def cloud(tmp_path: Path, volumes: MemoryVolumes) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, volumes=volumes) as opened:
        yield opened


def of_image(image: str = IMAGE, size: int = 1, **said: Any) -> dict[str, Any]:
    """Return a disk that is made of an image and booted."""
    device = {"source_type": "image", "destination_type": "volume", "uuid": image, "volume_size": size, "boot_index": 0}
    return {**device, **said}


def of_volume(volume_id: str, **said: Any) -> dict[str, Any]:
    return {"source_type": "volume", "destination_type": "volume", "uuid": volume_id, **said}


def blank(**said: Any) -> dict[str, Any]:
    return {"source_type": "blank", "destination_type": "volume", "volume_size": 2, **said}


def body(*disks: dict[str, Any], **said: Any) -> dict[str, Any]:
    server = {"name": "one", "flavorRef": "1", "networks": "none", "imageRef": "", **said}
    return {"server": {**server, "block_device_mapping_v2": list(disks)}}


async def created(cloud: ServersUnderTest, *disks: dict[str, Any], **said: Any) -> str:
    answer = await cloud.good("POST", "/servers", body(*disks, **said), version=NEWEST)
    return str(answer["server"]["id"])


async def refused(cloud: ServersUnderTest, *disks: dict[str, Any], **said: Any) -> str:
    status, message = await cloud.bad("POST", "/servers", body(*disks, **said), version=NEWEST)
    assert status == 400, message
    return message


async def stored(cloud: ServersUnderTest, server: str) -> tuple[Instance, RequestSpec]:
    """Return what was asked for, and what placement is told."""
    [taken] = [one for one in await cloud.take() if one.instance.uuid == server]
    kept = await cloud.database.read(partial(build_requests.spec_of, instance=InstanceUuid(server)))
    assert kept == taken.spec
    return taken.instance, taken.spec


async def built(cloud: ServersUnderTest, *disks: dict[str, Any], **said: Any) -> str:
    server = await created(cloud, *disks, **said)
    await cloud.build(server)
    return server


async def test_a_server_of_a_volume_that_is_made_of_an_image(cloud: ServersUnderTest) -> None:
    """It has no image and no disk on its host; placement knows what the image says."""
    server = await created(cloud, of_image(tag="boot"), blank(delete_on_termination=True))
    shown = (await cloud.good("GET", f"/servers/{server}", version=NEWEST, token="admin"))["server"]
    assert shown["image"] == ""
    assert shown["OS-EXT-SRV-ATTR:root_device_name"] == "/dev/vda"
    instance, spec = await stored(cloud, server)
    assert instance.image is None
    assert [(one.device_name, one.tag) for one in instance.block_devices] == [("/dev/vda", "boot"), ("/dev/vdb", None)]
    assert spec.image is not None
    assert (spec.image.id, spec.image.properties) == (IMAGE, {"hw_rng_model": "virtio"})
    assert spec.boot_from_volume
    assert DISK_GB not in spec.resources()


async def test_a_server_of_a_volume_that_is_there(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """What the volume keeps of its image counts as its properties."""
    volumes.kept = BootVolume(properties={"img_config_drive": "mandatory", "hw_rng_model": "x"}, min_disk=3, min_ram=64)
    root, data = volumes.new_volume(size=3), volumes.new_volume()
    server = await created(cloud, of_volume(data, device_name="vdc"), of_volume(root, boot_index=0))
    instance, spec = await stored(cloud, server)
    assert [(one.uuid, one.device_name) for one in instance.block_devices] == [
        (root, "/dev/vda"),
        (data, "/dev/vdc"),
    ]
    assert spec.image is not None
    assert (spec.image.id, spec.image.properties) == ("", volumes.kept.properties)
    assert instance.config_drive


async def test_a_server_of_an_image_with_volumes_beside_it(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    data = volumes.new_volume()
    root = {"source_type": "image", "destination_type": "local", "uuid": IMAGE, "boot_index": 0}
    server = await created(cloud, root, of_volume(data), imageRef=IMAGE, flavorRef="2")
    instance, spec = await stored(cloud, server)
    assert instance.image is not None
    assert (instance.image.id, spec.boot_from_volume) == (IMAGE, False)
    assert len({one.device_name for one in instance.block_devices}) == 4, "root, volume, ephemeral, swap"
    plain, _ = await stored(cloud, await cloud.create())
    assert [one.device_name for one in plain.block_devices] == [None], "without volumes nothing is named"


async def test_a_flavor_without_a_disk_is_for_everybody_then(cloud: ServersUnderTest) -> None:
    message = await cloud.bad("POST", "/servers", body(imageRef=IMAGE, flavorRef="3"), version=NEWEST)
    assert message[0] == 403
    await created(cloud, of_image(), flavorRef="3")


async def test_what_does_not_fit(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """Each error names the field."""
    v2 = "server.block_device_mapping_v2[0]"
    small = await refused(cloud, of_image(), of_image(LARGE, size=99, boot_index=1))
    assert "server.block_device_mapping_v2[1].volume_size" in small
    assert "server.flavorRef" in await refused(cloud, of_image(LARGE, size=100))
    assert "server.imageRef" in await refused(cloud, of_image(SAVING))
    assert "server.imageRef" in await refused(cloud, of_image(new_uuid()))
    second = of_image(new_uuid(), boot_index=1)
    assert "server.block_device_mapping_v2[1].uuid" in await refused(cloud, of_image(), second)
    assert f"{v2}.uuid" in await refused(cloud, of_volume(new_uuid(), boot_index=0))
    root = volumes.new_volume(size=2)
    volumes.kept = BootVolume(min_disk=3)
    assert f"{v2}.volume_size" in await refused(cloud, of_volume(root, boot_index=0))
    volumes.kept = BootVolume(min_ram=4096)
    assert "server.flavorRef" in await refused(cloud, of_volume(root, boot_index=0))
    volumes.kept = BootVolume(properties={"img_config_drive": "perhaps"})
    assert "img_config_drive" in await refused(cloud, of_volume(root, boot_index=0))
    local = {"source_type": "blank", "destination_type": "local", "boot_index": 0}
    assert "server.imageRef" in await refused(cloud, local, flavorRef="2")
    swap = {"source_type": "blank", "destination_type": "local", "guest_format": "swap", "volume_size": 1, "tag": "s"}
    assert "].tag" in await refused(cloud, of_image(), swap, flavorRef="2")


async def test_servers_are_where_their_volumes_are(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    volumes.zone = "east"
    instance, spec = await stored(cloud, await created(cloud, of_volume(volumes.new_volume(), boot_index=0)))
    assert (spec.availability_zone, instance.pinned_availability_zone) == ("east", "east")
    volumes.zone = "nowhere"
    assert "availability_zone" in await refused(cloud, of_volume(volumes.new_volume(), boot_index=0))


async def test_a_resize_looks_at_no_disk(cloud: ServersUnderTest) -> None:
    """The volume stays as large as it is."""
    server = await built(cloud, of_image(), flavorRef="1")
    plain = await cloud.create()
    await cloud.build(plain)
    resize = {"resize": {"flavorRef": "3"}}
    assert (await cloud.bad("POST", f"/servers/{plain}/action", resize))[0] == 400
    await cloud.good("POST", f"/servers/{server}/action", resize)
    row = await cloud.services.cells[CELL1].read(partial(builds.work, uuid=InstanceUuid(server)))
    assert row is not None
    assert row.spec.boot_from_volume


async def act(cloud: ServersUnderTest, server: str, key: str, said: Any = None, **more: Any) -> tuple[int, str]:
    answer = await cloud.ask("POST", f"/servers/{server}/action", {key: said}, **more)
    message = "" if answer.is_success else next(iter(answer.json().values()))["message"]
    return answer.status_code, message


async def test_no_backup_is_made_of_a_volume(cloud: ServersUnderTest) -> None:
    server = await built(cloud, of_image())
    status, message = await act(cloud, server, "createBackup", {"name": "one", "backup_type": "daily", "rotation": 1})
    assert status == 400
    assert "volume" in message


async def test_it_is_rescued_since_2_87(cloud: ServersUnderTest) -> None:
    server = await built(cloud, of_image())
    assert (await act(cloud, server, "rescue", {"rescue_image_ref": IMAGE}, version=86))[0] == 400
    assert (await act(cloud, server, "rescue", version=87))[0] == 400, "it has no image to rescue it from"
    assert (await act(cloud, server, "rescue", {"rescue_image_ref": IMAGE}, version=87))[0] == 200


async def test_a_rebuild_leaves_the_volume_alone(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """Until 2.92, with the image that the volume was made of."""
    server = await built(cloud, of_image())
    other = await built(cloud, of_volume(volumes.new_volume(), boot_index=0))
    assert (await act(cloud, other, "rebuild", {"imageRef": IMAGE}, version=92))[0] == 400
    answer = await cloud.good("POST", f"/servers/{server}/action", {"rebuild": {"imageRef": IMAGE}}, version=92)
    assert answer["server"]["image"] == ""


async def test_a_rebuild_fills_the_volume_since_2_93(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    """With any image that fits. A volume that is not in use yet has to be first."""
    server, root = await built(cloud, of_image()), volumes.new_volume()
    assert (await act(cloud, server, "rebuild", {"imageRef": IMAGE}, version=93))[0] == 409, "it has no volume yet"
    await has_root(cloud, server, root)
    status, message = await act(cloud, server, "rebuild", {"imageRef": IMAGE}, version=93)
    assert (status, "in-use" in message) == (400, True)
    wanted = WantedAttachments(instance=InstanceUuid(server), volume_ids=(root,))
    await volumes.reserve([wanted])
    answer = await cloud.good("POST", f"/servers/{server}/action", {"rebuild": {"imageRef": IMAGE}}, version=93)
    assert answer["server"]["image"] == ""
    cell = cloud.services.cells[CELL1]
    [step] = await cell.read(lambda connection: connection.execute(tables.migrations.select()).all())
    assert step.step == "reimage_prepare"


async def has_root(cloud: ServersUnderTest, server: str, volume_id: str) -> None:
    """Write that a server boots from a volume."""
    root = ServerVolume(id=new_uuid(), volume_id=volume_id, attachment_id=new_uuid(), device="/dev/vda", boot_index=0)

    def unit(connection: Connection) -> None:
        mine = tables.instances.update().where(tables.instances.c.uuid == server)
        connection.execute(mine.values(**cell_volumes.columns((root,))))

    await cloud.services.cells[CELL1].write(unit)
