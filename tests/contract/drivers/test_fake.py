from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import Driver
from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.fake import (
    DISKS,
    DRIVES,
    INSIDES,
    RESCUE,
    FailureRule,
    FakeDriver,
    FakeSettings,
)
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.fake_drives import FakeDrives
from skep.compute.drivers.fake_inside import GuestInsides
from skep.compute.drivers.fake_networks import NETWORKS_FILE
from skep.contracts.drivers import DriverContract
from skep.domain.host_networks import HostNetworks
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance


class TestFakeDriver(DriverContract):
    @pytest.fixture
    async def driver(self, tmp_path: Path) -> AsyncIterator[Driver]:
        self.directory = tmp_path
        self.latest = FakeDriver(tmp_path, "host-1", FakeSettings(images=True, networks=True, attaches_interfaces=True))
        yield self.latest
        self.latest.close()
        for directory in (tmp_path, tmp_path / RESCUE):
            assert FakeDisks(directory / DISKS).labels() == (), "each test removes what it made"

    def inside(self, driver: Driver, instance: InstanceUuid) -> GuestContents | None:  # noqa: ARG002
        return GuestInsides(self.directory / INSIDES).read(instance)

    def disk(self, driver: Driver, instance: InstanceUuid, attempt: int) -> bytes | None:  # noqa: ARG002
        return FakeDisks(self.directory / DISKS).content(instance, attempt)

    def config_drive(self, driver: Driver, instance: InstanceUuid, attempt: int) -> dict[str, bytes] | None:  # noqa: ARG002
        return FakeDrives(self.directory / DRIVES).read(instance, attempt)

    def rescue_disk(self, driver: Driver, instance: InstanceUuid, attempt: int) -> bytes | None:  # noqa: ARG002
        try:
            return FakeDisks(self.directory / RESCUE / DISKS).content(instance, attempt)
        except FileNotFoundError:
            return None

    def brought(self, driver: Driver) -> HostNetworks | None:  # noqa: ARG002
        return msgspec.json.decode((self.directory / NETWORKS_FILE).read_bytes(), type=HostNetworks)

    async def restarted(self, driver: Driver) -> Driver:
        driver.close()
        self.latest = FakeDriver(self.directory, "host-1")
        return self.latest

    def volumes_of(self, driver: Driver, instance: InstanceUuid) -> set[str]:  # noqa: ARG002
        return {one.volume_id for one in self.latest.volumes(instance)}

    def interfaces_of(self, driver: Driver, instance: InstanceUuid) -> set[str]:  # noqa: ARG002
        return self.latest.interfaces(instance)

    def hanging(self, driver: Driver, instance: Instance) -> Driver:  # noqa: ARG002
        rule = FailureRule(operation="spawn", server=instance.name, hangs=True)
        self.latest.settings = FakeSettings(failures=(rule,))
        return self.latest
