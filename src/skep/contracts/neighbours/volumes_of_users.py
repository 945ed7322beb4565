"""What must hold of volumes that users name: inherit `VolumesOfUsersContract`, give it `place` and `volumes`."""

from __future__ import annotations

import abc
from typing import Any

import pytest

from skep.contracts.neighbours.volumes import VolumesContractBase
from skep.contracts.neighbours.volumes_world import VolumesWorld, blank, made_of
from skep.domain.block_devices import AskedDevice, BlockDevice
from skep.domain.errors import BadRequest, NotFound
from skep.neighbours.volumes.base import AskedAttachment, AskedVolumes, ChosenVolumes
from skep.neighbours.volumes.proxied import NewSnapshot, NewVolume

ABSENT = "0728a01f-33a5-40b8-b366-c070e4047662"
WHERE = "server.block_device_mapping_v2[{}]"


class VolumesOfUsersContract(VolumesContractBase, abc.ABC):
    """Tests of the port `skep.neighbours.volumes.base.VolumesOfUsers`, where servers may have volumes of any zone."""

    async def test_what_is_no_volume_is_not_looked_at(self, world: VolumesWorld) -> None:
        """It is what it was."""
        local = BlockDevice(source_type="image", uuid=ABSENT, boot_index=0)
        of_image = made_of("image", ABSENT, volume_size=3)
        found = await _chosen(world, local, of_image, blank(), zone="any")
        assert [one.device for one in found.devices] == [local, of_image, blank()]
        assert (found.zone, found.boot) == ("any", None)

    async def test_what_a_user_makes_and_deletes(self, world: VolumesWorld) -> None:
        """It is his project's alone."""
        mine, theirs = world.asking(), world.asking("admin")
        made = await world.volumes.create_volume(NewVolume(size=1, name="mine", metadata={"a": "b"}), *mine)
        assert (made.name, made.size, made.metadata, made.attachments) == ("mine", 1, {"a": "b"}, ())
        await world.becomes(made.id, "available")
        assert made.id in [one.id for one in await world.volumes.list_volumes(*mine)]
        assert made.id not in [one.id for one in await world.volumes.list_volumes(*theirs)]
        assert (await world.volumes.volume(made.id, *mine)).status == "available"
        snapshot = await world.volumes.create_snapshot(NewSnapshot(volume_id=made.id, name="then"), *mine)
        assert (snapshot.volume_id, snapshot.size) == (made.id, 1)
        assert snapshot.id in [one.id for one in await world.volumes.list_snapshots(*mine)]
        with pytest.raises(BadRequest):
            await world.volumes.delete_volume(made.id, *mine)
        for absent in (ABSENT, "x", "../types"):
            with pytest.raises(NotFound):
                await world.volumes.snapshot(absent, *mine)
            with pytest.raises(NotFound):
                await world.volumes.volume(absent, *mine)

    async def test_a_volume_that_a_server_has_tells_it(self, world: VolumesWorld) -> None:
        volume, server = await world.volume(), world.server()
        await world.in_use(server, volume)
        shown = await world.volumes.volume(volume, *world.asking())
        assert [one.server_id for one in shown.attachments] == [server]

    async def test_volumes_and_snapshots_have_sizes(self, world: VolumesWorld) -> None:
        """A volume its own, whatever is said; that of a snapshot may be larger."""
        volume = await world.volume(size=2)
        snapshot = await world.snapshot(volume)
        found = await _chosen(
            world,
            made_of("volume", volume, volume_size=7),
            made_of("snapshot", snapshot),
            made_of("snapshot", snapshot, volume_size=3),
        )
        assert [one.device.volume_size for one in found.devices] == [2, 2, 3]
        await _refused(world, "[0].volume_size", made_of("snapshot", snapshot, volume_size=1))

    @pytest.mark.parametrize("source", ["volume", "snapshot"])
    @pytest.mark.parametrize("absent", [ABSENT, "x", "../types", "a b"])
    async def test_what_is_not_there(self, world: VolumesWorld, source: str, absent: str) -> None:
        """It is refused by its field, also a name that is a path."""
        await _refused(world, "[0].uuid", made_of(source, absent))

    async def test_what_other_projects_have(self, world: VolumesWorld) -> None:
        """It is as if it were not there."""
        theirs = await world.volume(by="admin")
        await _refused(world, "[1].uuid", blank(), made_of("volume", theirs))
        with pytest.raises(NotFound):
            await world.volumes.attachable(AskedAttachment(volume_id=theirs, zone=world.place.zone), *world.asking())

    async def test_a_volume_that_another_server_has(self, world: VolumesWorld) -> None:
        """No server may get it, until it is free."""
        volume = await world.volume()
        [attachment] = await world.reserved(world.server(), volume)
        asked = AskedAttachment(volume_id=volume, zone=world.place.zone)
        await _refused(world, "[0].uuid", made_of("volume", volume))
        with pytest.raises(BadRequest, match=r"volumeAttachment\.volumeId"):
            await world.volumes.attachable(asked, *world.asking())
        await world.volumes.detach([attachment])
        assert len((await _chosen(world, made_of("volume", volume))).devices) == 1
        found = await world.volumes.attachable(asked, *world.asking())
        assert (found.id, found.size, found.multiattach) == (volume, 1, False)

    async def test_a_volume_that_servers_share(self, world: VolumesWorld) -> None:
        """Clients of old microversions do not know of such; others get it while it is in use."""
        volume = await world.volume(volume_type=world.place.shared_type)
        asked = AskedAttachment(volume_id=volume, zone=world.place.zone)
        await world.in_use(world.server(), volume)
        await _refused(world, "[0].uuid", made_of("volume", volume))
        with pytest.raises(BadRequest, match=r"2\.60"):
            await world.volumes.attachable(asked, *world.asking())
        assert len((await _chosen(world, made_of("volume", volume), multiattach=True)).devices) == 1
        newer = AskedAttachment(volume_id=volume, zone=world.place.zone, multiattach=True)
        assert (await world.volumes.attachable(newer, *world.asking())).multiattach

    async def test_types(self, world: VolumesWorld) -> None:
        """One is named by its name or its id."""
        listed = await world.ask("GET", "types")
        shared = next(one for one in listed if one["name"] == world.place.shared_type)
        for name in (shared["name"], shared["id"]):
            found = await _chosen(world, blank(volume_type=name))
            assert found.devices[0].device.volume_type == name
        await _refused(world, "[1].volume_type", blank(), blank(volume_type="moon"))

    async def test_what_servers_boot_from(self, world: VolumesWorld) -> None:
        """Only what is bootable; it keeps what its image said."""
        plain, bootable = await world.volume(), await world.volume(imageRef=world.place.image_id)
        await _refused(world, "[0].uuid", made_of("volume", plain, boot_index=0))
        await _refused(world, "[0].uuid", made_of("snapshot", await world.snapshot(plain), boot_index=0))
        found = await _chosen(world, made_of("volume", bootable, boot_index=0), made_of("volume", plain))
        assert found.boot is not None
        assert not {"image_id", "min_disk", "size"} & set(found.boot.properties)
        snapshot = await world.snapshot(bootable)
        assert (await _chosen(world, made_of("snapshot", snapshot, boot_index=0))).boot == found.boot
        await world.set_bootable(plain)
        made = await _chosen(world, made_of("volume", plain, boot_index=0))
        assert made.boot is not None
        assert (made.boot.properties, made.boot.min_disk, made.boot.min_ram) == ({}, 0, 0)

    async def test_the_field_of_each_form(self, world: VolumesWorld) -> None:
        """The older form has keys of its own, and what an image asks for is told of the image."""
        for where, field in (
            ("server.block_device_mapping[2]", "server.block_device_mapping[2].volume_id"),
            ("server.imageRef", "server.imageRef"),
        ):
            asked = AskedVolumes(devices=(AskedDevice(device=made_of("volume", ABSENT), where=where),))
            with pytest.raises(BadRequest) as refused:
                await world.volumes.choose(asked, *world.asking())
            assert f"attribute {field}. Value" in str(refused.value)


async def _chosen(world: VolumesWorld, *devices: BlockDevice, **said: Any) -> ChosenVolumes:
    asked = tuple(AskedDevice(device=one, where=WHERE.format(index)) for index, one in enumerate(devices))
    return await world.volumes.choose(AskedVolumes(devices=asked, **said), *world.asking())


async def _refused(world: VolumesWorld, field: str, *devices: BlockDevice) -> None:
    with pytest.raises(BadRequest) as refused:
        await _chosen(world, *devices)
    assert f"attribute server.block_device_mapping_v2{field}. Value" in str(refused.value)
