"""Volumes and interfaces of servers by the real `openstack` client, beside a Cinder and a Neutron."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from tests.support.cloud_beside import CloudBeside, cloud_beside
from tests.support.openstack import openstack, openstack_quiet, refusal

CREATE = "server create --flavor m1.tiny --nic none --wait"
NEWEST = "--os-compute-api-version 2.100"


class ByClient:
    """A user of a cloud beside a Cinder and a Neutron."""

    def __init__(self, beside: CloudBeside, yaml: Path) -> None:
        self.beside = beside
        self.yaml = yaml

    async def run(self, *commands: str) -> None:
        """Run commands, whatever they print."""
        for command in commands:
            await openstack_quiet(self.yaml, *command.split(), cloud="skep-demo")

    async def asked(self, command: str) -> Any:
        """Run a command and return its answer."""
        return await openstack(self.yaml, *command.split(), cloud="skep-demo")

    async def refused(self, command: str) -> str:
        """Run a command that has to fail and return what it said."""
        return await refusal(self.yaml, *command.split(), cloud="skep-demo")

    async def disks(self, server: str) -> list[tuple[str, bool]]:
        """Return the volumes of a server: device, and whether it goes with the server."""
        listed = await self.asked(f"server volume list {server}")
        return [(one["Device"], one["Delete On Termination?"]) for one in listed]

    async def statuses(self) -> dict[str, str]:
        """Return the statuses of the volumes that have a name, by that."""
        return {one["Name"]: one["Status"] for one in await self.asked("volume list") if one["Name"]}

    async def left(self, *wanted: tuple[str, str]) -> None:
        """Wait until these volumes are all that there are: name and status, in order."""

        async def are() -> bool:
            return sorted((one["Name"], one["Status"]) for one in await self.asked("volume list")) == [*wanted]

        await eventually(are, f"what is left is {wanted}")

    async def becomes(self, **wanted: str) -> None:
        """Wait until the volumes that have a name are so."""

        async def are() -> bool:
            return await self.statuses() == wanted

        await eventually(are, f"the volumes are {wanted}")

    async def bootable(self, *names: str) -> None:
        """Make volumes that a server can boot from."""
        for name in names:
            await self.run(f"volume create --image tiny --size 1 {name}")
        await self.becomes(**dict.fromkeys(names, "available"))


@pytest.fixture
async def user(tmp_path: Path) -> AsyncIterator[ByClient]:
    """A user of a cloud with an image `tiny`."""
    async with cloud_beside(tmp_path, networks=True, volumes=True) as beside:
        await beside.image()
        yield ByClient(beside, beside.for_clients(tmp_path))


async def test_servers_boot_from_volumes(user: ByClient) -> None:
    """Each by another option: a new volume of an image, one that is there, a new one of a snapshot."""
    await user.bootable("root")
    await user.run("volume snapshot create --volume root shot")
    for name, options in {
        "stays": "--image tiny --boot-from-volume 2",
        "goes": "--image tiny --boot-from-volume 2 --delete-on-termination",
        "brought": "--volume root",
        "copied": "--snapshot shot",
    }.items():
        shown = await user.asked(f"{CREATE} {options} {name}")
        assert (shown["status"], shown["image"]) == ("ACTIVE", "N/A (booted from volume)"), name
        assert await user.disks(name) == [("/dev/vda", name == "goes")]
    sizes = sorted((one["Size"], one["Status"]) for one in await user.asked("volume list"))
    assert sizes == [(1, "in-use"), (1, "in-use"), (2, "in-use"), (2, "in-use")]
    await user.run("server delete --wait stays goes brought copied")
    await user.left(("", "available"), ("", "available"), ("root", "available"))


async def test_a_name_of_no_volume_makes_no_server(user: ByClient) -> None:
    assert "No Volume found for absent" in await user.refused(f"{CREATE} --volume absent one")
    assert "No Snapshot found for absent" in await user.refused(f"{CREATE} --snapshot absent one")
    await user.run("volume create --size 1 plain")
    await user.becomes(plain="available")
    assert "a volume that is bootable" in await user.refused(f"{CREATE} --volume plain one")
    assert await user.asked("server list") == []


async def test_disks_besides_that_of_the_image(user: ByClient) -> None:
    """Blank ones, copies of images and snapshots, volumes that are there; in the long form and in the old one."""
    await user.bootable("mine", "other")
    await user.run("volume snapshot create --volume mine shot")
    [image] = [one["ID"] for one in await user.asked("image list")]
    ids = {one["Name"]: one["ID"] for one in await user.asked("volume list")}
    [shot] = [one["ID"] for one in await user.asked("volume snapshot list")]
    new = "destination_type=volume,volume_size=2,delete_on_termination=true"
    devices = (
        f"source_type=volume,uuid={ids['mine']},tag=data",
        f"source_type=blank,{new}",
        f"source_type=image,uuid={image},{new}",
        f"source_type=snapshot,uuid={shot},{new},device_type=disk,disk_bus=virtio",
    )
    options = " ".join(f"--block-device {one}" for one in devices)
    shown = await user.asked(f"{CREATE} {NEWEST} --image tiny {options} many")
    assert shown["image"].startswith("tiny")
    assert await user.disks("many") == [(f"/dev/vd{letter}", letter != "b") for letter in "bcde"]
    tags = {one["Volume ID"]: one["Tag"] for one in await user.asked(f"server volume list {NEWEST} many")}
    assert tags[ids["mine"]] == "data"
    await user.run(f"{CREATE} --image tiny --block-device-mapping vdd=other:volume::true old")
    assert await user.disks("old") == [("/dev/vdd", True)]
    await user.run(f"{CREATE} --image tiny --block-device-mapping vdb={shot}:snapshot:3:true older")
    assert await user.disks("older") == [("/dev/vdb", True)]
    await user.run("server delete --wait many old older")
    await user.left(("mine", "available"))


async def test_a_server_boots_from_what_a_block_device_says(user: ByClient) -> None:
    await user.bootable("root")
    ids = {one["Name"]: one["ID"] for one in await user.asked("volume list")}
    root = f"--block-device uuid={ids['root']},source_type=volume,boot_index=0,delete_on_termination=true"
    shown = await user.asked(f"{CREATE} {root} one")
    assert shown["image"] == "N/A (booted from volume)"
    assert await user.disks("one") == [("/dev/vda", True)]
    assert "volume_type" in await user.refused(
        f"{CREATE} {NEWEST} --image tiny --block-device destination_type=volume,volume_size=1,volume_type=absent two"
    )
    await user.run("server delete --wait one")
    await user.left()


async def test_swap_and_ephemeral_disks(user: ByClient) -> None:
    await openstack_quiet(
        user.yaml, *"flavor create --ram 64 --vcpus 1 --disk 1 --swap 64 --ephemeral 2 odd".split(), cloud="skep"
    )
    create = CREATE.replace("m1.tiny", "odd")
    await user.run(f"{create} --image tiny --swap 64 --ephemeral size=1,format=ext4 --ephemeral size=1 one")
    assert await user.disks("one") == []
    assert "wap" in await user.refused(f"{create} --image tiny --swap 65 two")
    assert "phemeral" in await user.refused(f"{create} --image tiny --ephemeral size=3 two")


async def test_volumes_of_a_server_that_is_there(user: ByClient) -> None:
    await user.run(*(f"volume create --size 1 {name}" for name in ("one", "two", "three")))
    await user.becomes(one="available", two="available", three="available")
    await user.run(f"{CREATE} --image tiny has")
    added = await user.asked("server add volume --device /dev/vdf has one")
    assert added["Device"] == "/dev/vdf"
    await user.run(
        f"server add volume {NEWEST} --tag data --enable-delete-on-termination has two",
        f"server add volume {NEWEST} --disable-delete-on-termination has three",
    )
    assert await user.disks("has") == [("/dev/vdf", False), ("/dev/vdb", True), ("/dev/vdc", False)]
    shown = await user.asked("server show has")
    assert [one["delete_on_termination"] for one in shown["volumes_attached"]] == [False, True, False]
    await user.becomes(one="in-use", two="in-use", three="in-use")
    assert "a volume that the server does not have" in await user.refused("server add volume has one")
    await user.run(
        f"server volume set {NEWEST} has one --delete-on-termination",
        f"server volume update {NEWEST} has two --preserve-on-termination",
    )
    assert [goes for _device, goes in await user.disks("has")] == [True, False, False]
    await user.run("server remove volume has two")
    await user.becomes(one="in-use", two="available", three="in-use")
    assert await user.disks("has") == [("/dev/vdf", True), ("/dev/vdc", False)]
    assert "not attached" in (await user.refused("server remove volume has two")).lower()
    await user.run("server delete --wait has")
    await user.left(("three", "available"), ("two", "available"))
