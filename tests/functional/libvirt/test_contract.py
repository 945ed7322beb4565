"""The driver `libvirt` keeps the contract, with real guests of QEMU."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.base import Driver
from skep.contracts.drivers import DriverContract
from skep.domain.ids import InstanceUuid
from skep.domain.volumes import ConnectedVolume
from tests.support.libvirt_hosts import PARTS, connection_in, host_directory, libvirt_driver, raw_disk

pytestmark = [*PARTS, pytest.mark.timeout(600)]


@pytest.fixture
def host() -> Path:
    return host_directory()


class TestLibvirtDriver(DriverContract):
    @pytest.fixture
    async def driver(self, host: Path) -> AsyncIterator[Driver]:
        self.directory = host
        self.latest = libvirt_driver(host)
        self.volumes = host / "volumes"
        self.volumes.mkdir(mode=0o711, exist_ok=True)
        yield self.latest
        for guest in await self.latest.guests():
            await self.latest.destroy(guest.instance)
        self.latest.close()
        assert sorted((host / "guests").iterdir()) == [], "each test removes what it made"
        assert sorted((host / "bases").iterdir()) == [], "bytes of images go with the last guest"
        shutil.rmtree(self.volumes)

    def connection(self, number: int) -> ConnectedVolume:
        file = self.volumes / str(number)
        with file.open("ab") as made:
            made.truncate(1 << 20)
        connected = super().connection(number)
        return msgspec.structs.replace(connected, driver="local", data={"device_path": str(file)})

    def new_file(self, volume: ConnectedVolume, name: str) -> None:
        below = Path(volume.data["device_path"])
        made = self.volumes / name
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", below, "-F", "raw", made], check=True)

    def volumes_of(self, driver: Driver, instance: InstanceUuid) -> set[str]:  # noqa: ARG002
        import libvirt

        there = connection_in(self.directory).listAllDomains()
        domain = next((one for one in there if one.UUIDString() == instance), None)
        if domain is None:
            return set()
        kept, now = (domain.XMLDesc(flag) for flag in (libvirt.VIR_DOMAIN_XML_INACTIVE, 0))
        found = [{disk.text or "" for disk in ET.fromstring(xml).findall("devices/disk/serial")} for xml in (kept, now)]
        assert found[0] == found[1]
        return found[0]

    def disk(self, driver: Driver, instance: InstanceUuid, attempt: int) -> bytes | None:  # noqa: ARG002
        path = self.directory / "guests" / f"{instance}_{attempt}" / "disk"
        return raw_disk(self.directory, path) if path.exists() else None

    def config_drive(self, driver: Driver, instance: InstanceUuid, attempt: int) -> dict[str, bytes] | None:  # noqa: ARG002
        from skep.compute.drivers.libvirt.drives import read_drive  # it imports what may not be installed

        path = self.directory / "guests" / f"{instance}_{attempt}" / "config.iso"
        return read_drive(path) if path.exists() else None

    async def restarted(self, driver: Driver) -> Driver:
        driver.close()
        self.latest = libvirt_driver(self.directory)
        return self.latest

    def rescue_disk(self, driver: Driver, instance: InstanceUuid, attempt: int) -> bytes | None:  # noqa: ARG002
        path = self.directory / "guests" / f"{instance}_{attempt}" / "rescue"
        if not path.exists():
            return None
        return raw_disk(self.directory, path).rstrip(b"\0")  # it has whole sectors
