"""Guests of QEMU go from one libvirtd to another as the contract says: with their disks, or on shared storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import Driver
from skep.contracts.live_migrations import LiveMigrationContract
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import Instance
from skep_lab.libvirt_daemons import LibvirtDaemon
from tests.support.agents import instance
from tests.support.libvirt_daemons import DAEMON_PARTS, daemon_driver, two_daemons
from tests.support.libvirt_hosts import raw_disk

pytestmark = [*DAEMON_PARTS, pytest.mark.timeout(600)]

Pair = tuple[LibvirtDaemon, LibvirtDaemon]


@pytest.fixture(scope="module")
def daemons() -> Iterator[Pair]:
    with two_daemons() as pair:
        yield pair


class OnTwoHosts(LiveMigrationContract):
    """What both kinds of storage have in common."""

    def directories(self, daemons: Pair) -> tuple[Path, Path]:
        """Return where each host has the disks of its guests."""
        return daemons[0].root / "own", daemons[1].root / "own"

    @pytest.fixture
    def small(self) -> Instance:
        flavor = msgspec.structs.replace(instance().flavor, memory_mb=64, root_gb=0)
        return msgspec.structs.replace(instance(), uuid=InstanceUuid(new_uuid()), flavor=flavor)

    @pytest.fixture
    async def driver(self, daemons: Pair) -> AsyncIterator[Driver]:
        self.places = self.directories(daemons)
        source, self.other = (daemon_driver(daemon, place) for daemon, place in zip(daemons, self.places, strict=True))
        yield source
        left = [await one.guests() for one in (source, self.other)]
        for one in (source, self.other):
            one.close()
        assert left == [(), ()], "each test removes what it made"
        assert [sorted((place / "guests").iterdir()) for place in self.places] == [[], []]

    def target(self, driver: Driver) -> Driver:  # noqa: ARG002
        return self.other

    def disk(self, driver: Driver, instance: InstanceUuid, attempt: int) -> bytes | None:
        directory = self.places[driver is self.other]
        return raw_disk(directory, directory / "guests" / f"{instance}_{attempt}" / "disk")


class TestDisksAreCopied(OnTwoHosts):
    pass


class TestStorageIsShared(OnTwoHosts):
    def directories(self, daemons: Pair) -> tuple[Path, Path]:
        return daemons[0].root / "shared", daemons[0].root / "shared"
