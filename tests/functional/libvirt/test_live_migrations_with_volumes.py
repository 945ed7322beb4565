"""A guest that counts goes from one libvirtd to another with its volumes, which both hosts have meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.live import Copying
from skep.contracts.live_migrations import remove
from skep.domain.block_devices import BlockDevice
from skep.domain.moves import ABORTED
from skep.domain.volumes import ConnectedVolume, ServerVolume
from skep_lab.crash.counting_guests import COUNTS
from skep_lab.libvirt_daemons import LibvirtDaemon, make_passable
from tests.functional.libvirt.test_live_migrations import HAS, SLOW, Hosts, live, with_a_guest
from tests.support.libvirt_daemons import DAEMON_PARTS, two_daemons
from tests.support.noted_bricks import NotedBricks

pytestmark = [*DAEMON_PARTS, pytest.mark.timeout(600)]

ROOT, MORE = "root", "more"
BOOTS = BlockDevice(source_type="volume", destination_type="volume", uuid=ROOT, boot_index=0)


@pytest.fixture(scope="module")
def daemons() -> Iterator[tuple[LibvirtDaemon, LibvirtDaemon]]:
    with two_daemons() as pair:
        yield pair


class WithVolumes(Hosts):
    """Two hosts, each of which has the same volumes elsewhere; the guest boots from one of them."""

    def __init__(
        self,
        daemons: tuple[LibvirtDaemon, LibvirtDaemon],
        home: Path,
        *,
        shared: bool,
        bricks: bool,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(daemons, home, shared=shared, options=options)
        self.names = (ROOT, MORE)
        volumes = tuple(
            ServerVolume(
                id=name,
                volume_id=name,
                attachment_id=f"of-{name}",
                device=f"/dev/vd{letter}",
                boot_index=0 if name == ROOT else None,
            )
            for name, letter in zip(self.names, "ab", strict=True)
        )
        flavor = msgspec.structs.replace(self.server.flavor, swap_mb=0)
        self.server = msgspec.structs.replace(
            self.server, image=None, flavor=flavor, volumes=volumes, block_devices=(BOOTS,)
        )
        base = daemons[0].root / "volumes" / self.server.uuid
        make_passable(base.parent)
        make_passable(base)
        self.kind = "iscsi" if bricks else "local"
        self.places = [base / "here", base / "there"]
        for place in self.places:
            make_passable(place)
        for name, content in ((ROOT, COUNTS), (MORE, bytes(1 << 20))):
            (self.places[0] / name).write_bytes(content)
            (self.places[1] / name).hardlink_to(self.places[0] / name)
        self.bricks = [NotedBricks(place) for place in self.places]
        if bricks:
            self._use_bricks()

    def _use_bricks(self) -> None:
        from skep.compute.drivers.libvirt.volume_kinds import VolumeKinds  # it imports what may not be installed
        from skep.compute.drivers.libvirt.volumes import GuestVolumes

        for number, driver in enumerate((self.source, self.target)):
            volumes = GuestVolumes(f"host{number}", driver._disks, VolumeKinds(self.bricks[number]))
            driver._volumes = driver._domains._volumes = volumes

    async def connect(self, attempt: int) -> None:
        driver = live(self.source if attempt == 1 else self.target)
        place = self.places[attempt - 1]
        told = [
            ConnectedVolume(
                volume_id=one.volume_id,
                attachment_id=f"{one.attachment_id}-{attempt}",
                device=one.device,
                boot_index=one.boot_index,
                driver=self.kind,
                data={"name": one.volume_id, "device_path": str(place / one.volume_id), "auth_password": "secret"},
            )
            for one in self.server.volumes
        ]
        await driver.connect_volumes(self.server.uuid, attempt, told)

    def has(self, attempt: int) -> None:
        """See that the guest of an attempt has the volumes where its host has them, now and when it starts next."""
        import libvirt

        connection = libvirt.open(self.daemons[attempt - 1].uri)
        try:
            domain = connection.lookupByUUIDString(self.server.uuid)
            for flag in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
                disks = ET.fromstring(domain.XMLDesc(flag)).findall("devices/disk[serial]")
                found = {disk.findtext("serial"): disk.find("source") for disk in disks}
                paths = {name: None if one is None else one.get("file") for name, one in found.items()}
                assert paths == {name: str(self.places[attempt - 1] / name) for name in self.names}
        finally:
            connection.close()

    def noted(self, attempt: int) -> bool:
        """Tell whether the attempt's file of volumes is there."""
        return (self.directories[attempt - 1] / "guests" / f"{self.server.uuid}_{attempt}" / "volumes").exists()

    def connected(self, number: int) -> list[str]:
        """Return the volumes that the library of a host has connected."""
        there: list[str] = []
        for what, _, name, *_ in self.bricks[number].asked:
            if what == "connect" and name not in there:
                there.append(name)
            elif what == "disconnect":
                there.remove(name)
        return sorted(there)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bricks", [False, True], ids=["local", "os-brick"])
@pytest.mark.parametrize("shared", [False, True], ids=["own disks", "shared storage"])
async def test_a_guest_goes_on_over_the_volume_that_it_boots_from(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path, shared: bool, bricks: bool
) -> None:
    """It counts on, with the paths of the target; the source has let go of all before the target goes on."""
    two = WithVolumes(daemons, tmp_path, shared=shared, bricks=bricks, options={})
    async with with_a_guest(two):
        two.has(1)
        assert (two.noted(1), two.noted(2)) == (True, True)
        if bricks:
            assert [two.connected(number) for number in (0, 1)] == [sorted(two.names)] * 2
        for _ in range(2):
            await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
            await two.source.hand_over(two.server.uuid, 1, two.place)
        assert (two.noted(1), two.noted(2)) == (False, True)
        if bricks:
            assert [two.connected(number) for number in (0, 1)] == [[], sorted(two.names)]
        await two.went()
        two.has(2)
    assert (two.connected(0), two.connected(1)) == ([], [])


async def test_a_guest_that_has_come_outlives_a_late_order_to_await_it(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> None:
    """The target is told of the volumes once more; the guest is nowhere else by then."""
    two = WithVolumes(daemons, tmp_path, shared=False, bricks=True, options={})
    async with with_a_guest(two):
        await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
        await two.source.hand_over(two.server.uuid, 1, two.place)
        await two.connect(2)
        await two.target.await_guest(two.server, 2, HAS, None, two.place)
        assert two.connected(1) == sorted(two.names)
        await two.went()
        two.has(2)


async def test_an_abort_leaves_the_volumes_where_they_were(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> None:
    two = WithVolumes(daemons, tmp_path, shared=False, bricks=True, options=SLOW)
    async with with_a_guest(two):
        copying = Copying()
        going = await two.copied(copying)
        copying.wish("abort")
        with pytest.raises(DriverError) as raised:
            await going
        assert raised.value.error == ABORTED
        await two.goes_on_here()
        two.has(1)
        assert [two.connected(number) for number in (0, 1)] == [sorted(two.names), []]
    assert (two.connected(0), two.connected(1)) == ([], [])


async def test_a_target_without_the_volumes_is_refused_by_name(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> None:
    """Where it was told of none, and where it was told of others than the guest has."""
    two = WithVolumes(daemons, tmp_path, shared=False, bricks=True, options={})
    async with with_a_guest(two):
        await two.target.connect_volumes(two.server.uuid, 2, ())
        with pytest.raises(DriverError) as raised:
            await two.target.await_guest(two.server, 2, HAS, None, two.place)
        assert raised.value.error == "VolumesNotConnected"
        two.server, whole = msgspec.structs.replace(two.server, volumes=two.server.volumes[:1]), two.server
        await two.connect(2)
        await two.target.await_guest(two.server, 2, HAS, None, two.place)
        two.server = whole
        with pytest.raises(DriverError, match="volumes: ") as raised:
            await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
        assert raised.value.error == "MigrationPreCheckError"
        await two.goes_on_here()


async def test_a_source_that_cannot_let_go_does_so_when_it_is_undone(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> None:
    two = WithVolumes(daemons, tmp_path, shared=False, bricks=True, options={})
    async with with_a_guest(two):
        two.bricks[0].stuck = True
        await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
        await two.source.hand_over(two.server.uuid, 1, two.place)
        assert two.connected(0) == sorted(two.names)
        with pytest.raises(DriverError):
            await remove(two.source, two.server, 1)
        two.bricks[0].stuck = False
        await two.went()
        assert two.connected(0) == []
