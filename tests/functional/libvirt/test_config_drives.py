"""A real guest reads a config drive that is a disk with FAT."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import ConfigDriveDriver, ConsoleOutputDriver, ImageDriver
from skep.compute.drivers.libvirt import setup
from skep.contracts.eventually import eventually
from skep.domain.errors import Misconfigured
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.images import Image
from tests.support import tiny_guests
from tests.support.agents import instance
from tests.support.libvirt_hosts import PARTS, host_directory, libvirt_driver
from tests.support.tiny_guests import tiny_image

pytestmark = [
    *PARTS,
    *tiny_guests.PARTS,
    *(pytest.mark.needs_part(part) for part in setup.FAT_PROGRAMS),
    pytest.mark.timeout(300),
]

FAT = {"config_drive_format": "vfat"}
SCRIPT = b"#!/bin/sh\ngrep drive /proc/mounts\ncat /mnt/drive/content/0000\n"


async def test_a_guest_reads_a_disk_with_fat() -> None:
    driver = libvirt_driver(host_directory(), FAT)
    assert isinstance(driver, ImageDriver)
    assert isinstance(driver, ConfigDriveDriver)
    assert isinstance(driver, ConsoleOutputDriver)
    flavor = msgspec.structs.replace(instance().flavor, memory_mb=128, vcpus=1, root_gb=1)
    image = Image(id=new_uuid(), disk_format="qcow2")
    server = msgspec.structs.replace(instance(), uuid=InstanceUuid(new_uuid()), flavor=flavor, vifs=(), image=image)
    for resource in driver.plan(server, 1):
        await driver.prepare_from(server, 1, resource, tiny_image())
    facts = {"hostname": "fat", "uuid": server.uuid}
    files = {
        "openstack/latest/meta_data.json": json.dumps(facts).encode(),
        "openstack/latest/user_data": SCRIPT,
        "content/0000": "a file with é\n".encode(),
    }
    for _ in range(2):
        await driver.write_config_drive(server.uuid, 1, files)
    await driver.spawn(server, 1, flavor.resources())

    async def says() -> bool:
        said = (await driver.console_output(server.uuid, 1 << 16)).decode()
        return "TINY-USER-DATA" in said and "a file with é" in said and "vfat" in said and "host=fat" in said

    await eventually(says, "the guest has read its drive")
    place = host_directory() / "guests" / f"{server.uuid}_1"
    assert {path.name for path in place.iterdir()} >= {"config.img", "config.iso"}
    assert not (place / "config.img.files").exists()
    assert (place / "config.img").stat().st_blocks * 512 < 4 << 20, "what is empty of it takes no room"
    await driver.destroy(server.uuid, 1)
    driver.close()
    assert not place.exists()


def test_a_host_without_the_programs_is_told_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{setup.__name__}.PATH", str(tmp_path))
    with pytest.raises(Misconfigured, match=r"config_drive_format: vfat needs mkfs\.vfat and mcopy"):
        libvirt_driver(host_directory(), FAT)
