"""The driver `libvirt` keeps the contract, with real guests of QEMU."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.compute.drivers.base import Driver
from skep.contracts.drivers import DriverContract
from skep.domain.ids import InstanceUuid
from tests.support.libvirt_hosts import PARTS, host_directory, libvirt_driver, raw_disk

pytestmark = [*PARTS, pytest.mark.timeout(600)]


@pytest.fixture
def host() -> Path:
    return host_directory()


class TestLibvirtDriver(DriverContract):
    @pytest.fixture
    async def driver(self, host: Path) -> AsyncIterator[Driver]:
        self.directory = host
        self.latest = libvirt_driver(host)
        yield self.latest
        for guest in await self.latest.guests():
            await self.latest.destroy(guest.instance)
        self.latest.close()
        assert sorted((host / "guests").iterdir()) == [], "each test removes what it made"
        assert sorted((host / "bases").iterdir()) == [], "bytes of images go with the last guest"

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
