"""Mediated devices of guests, made and removed by a twin of libvirt; what there is of them, read by libvirt itself.

No device of a real machine was tried.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bricks import OsBricks
from skep.compute.drivers.libvirt.disks import GuestDisks
from skep.compute.drivers.libvirt.mediated_devices import read_parent, read_uuid
from skep.compute.drivers.libvirt.options import MediatedDevices, Options
from skep.compute.drivers.libvirt.volume_kinds import VolumeKinds
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import PowerState
from skep.domain.providers import Allocation, ProviderShare
from tests.support.agents import instance
from tests.support.libvirt_hosts import PARTS
from tests.support.node_devices import LARGE, OTHERS, ROOM, SMALL, NodeDevices, node_xml

pytestmark = [*PARTS]

ONE = InstanceUuid(new_uuid())
OFFERED = (MediatedDevices(type=LARGE, address="0000:81:*"), MediatedDevices(type=SMALL))


class Host:
    """A host with two cards, and an agent that may die."""

    def __init__(self, directory: Path) -> None:
        self.devices = NodeDevices()
        self.directory = directory
        self.begin()

    def begin(self) -> None:
        """Have an agent that remembers nothing."""
        from skep.compute.drivers.libvirt.mediated_guests import GuestMediated

        connection: Any = self.devices
        self.disks = GuestDisks(self.directory, None)
        self.guests = GuestMediated(connection, self.disks, OFFERED)

    def room(self) -> dict[str, int]:
        """Return how many the host says that it has of each card."""
        return {one.name: inventory.total for one in self.guests.providers() for inventory in one.inventory.values()}

    def names(self) -> tuple[str, str]:
        small, large = self.room()
        return small, large

    def made(self) -> list[tuple[str, str]]:
        return sorted(self.devices.parts.values())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def given(shares: Mapping[str, int]) -> Allocation:
    return Allocation(
        providers=tuple(ProviderShare(provider=name, resources={"VGPU": count}) for name, count in shares.items())
    )


def test_a_host_has_as_many_whatever_guests_have_of_them(host: Host) -> None:
    small, large = host.names()
    assert host.room() == {small: 4, large: 2}
    host.guests.make(ONE, 1, given({small: 2, large: 1}))
    assert host.made() == [("pci_0000_06_00_0", SMALL)] * 2 + [("pci_0000_81_00_0", LARGE)]
    assert host.room() == {small: 4, large: 2}
    host.guests.let_go(ONE, 1)
    assert host.made() == []
    assert host.room() == {small: 4, large: 2}


def test_those_of_others_are_neither_offered_nor_touched(host: Host) -> None:
    small, large = host.names()
    host.devices.parts[OTHERS] = ("pci_0000_06_00_0", SMALL)
    assert host.room() == {small: 3, large: 2}
    host.guests.make(ONE, 1, given({small: 3}))
    assert host.room() == {small: 3, large: 2}
    host.guests.let_go(ONE, 1)
    assert [*host.devices.parts] == [OTHERS]


def test_a_repeated_call_makes_no_more_and_removes_what_there_is(host: Host) -> None:
    small, _ = host.names()
    for _ in range(2):
        host.guests.make(ONE, 1, given({small: 2}))
        host.begin()
    assert sorted(host.guests.uuids(ONE, 1)) == sorted(host.devices.parts)
    assert len(host.devices.parts) == 2
    host.guests.make(ONE, 2, given({small: 1}))
    for _ in range(2):
        host.guests.let_go(ONE, 1)
    assert host.guests.uuids(ONE, 1) == ()
    assert [*host.devices.parts] == [*host.guests.uuids(ONE, 2)], "another attempt keeps its own"


def test_an_agent_that_died_between_two_devices_leaves_none(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    small, _ = host.names()
    makes = host.devices.nodeDeviceCreateXML
    calls = iter((True, False))

    def dies(described: str, flags: int) -> None:
        if not next(calls):
            raise KeyboardInterrupt
        makes(described, flags)

    monkeypatch.setattr(host.devices, "nodeDeviceCreateXML", dies)
    with pytest.raises(KeyboardInterrupt):
        host.guests.make(ONE, 1, given({small: 2}))
    monkeypatch.undo()
    host.begin()
    assert len(host.devices.parts) == 1
    assert host.room()[small] == 4
    host.guests.let_go(ONE, 1)
    assert host.made() == []
    host.guests.make(ONE, 1, given({small: 2}))
    assert len(host.devices.parts) == 2


def test_a_guest_has_them_again_after_its_host_was_switched_off(host: Host) -> None:
    small, large = host.names()
    host.guests.make(ONE, 1, given({small: 1}))
    before = host.guests.uuids(ONE, 1)
    host.devices.parts.clear()
    assert host.room() == {small: 4, large: 2}
    host.guests.again(ONE, 1)
    assert (*host.devices.parts,) == before
    host.guests.again(ONE, 2)
    assert len(host.devices.parts) == 1


def test_what_the_host_offers_no_more_is_named(host: Host) -> None:
    with pytest.raises(DriverError, match="offers no mdev-0000:07") as raised:
        host.guests.make(ONE, 1, given({"mdev-0000:07:00.0-nvidia-222-00000000": 1}))
    assert raised.value.error == "MediatedDevicesUnavailable"
    host.guests.make(ONE, 1, None)
    assert host.made() == []


def test_they_are_counted_right_while_others_come_and_go(host: Host) -> None:
    small, large = host.names()

    def comes_and_goes(_number: int) -> None:
        mine = InstanceUuid(new_uuid())
        for attempt in range(20):
            host.guests.make(mine, attempt, given({small: 1}))
            host.guests.let_go(mine, attempt)

    with ThreadPoolExecutor(3) as pool:
        ends = [pool.submit(comes_and_goes, number) for number in range(3)]
        while not all(one.done() for one in ends):
            assert host.room() == {small: 4, large: 2}
        for one in ends:
            one.result()


class GuestsOfNothing(NodeDevices):
    """A connection to libvirt's test driver, whose guests are made of nothing; node devices are the twin's."""

    def __init__(self) -> None:
        import libvirt

        super().__init__()
        libvirt.registerErrorHandler(lambda *_: None, None)
        self.changed = threading.Condition()
        self.opened = libvirt.open("test:///default")

    def defineXML(self, described: str) -> Any:  # noqa: N802 - libvirt's name
        """Define a guest of a kind that the test driver has."""
        plain = described.replace('type="kvm"', 'type="test"').replace('arch="x86_64" machine="pc"', 'arch="i686"')
        return self.opened.defineXML(plain)

    def close(self) -> None:
        """Let go of libvirt."""
        self.opened.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.opened, name)


async def test_a_guest_has_its_devices_as_long_as_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import libvirt

    from skep.compute.drivers.libvirt import domains
    from skep.compute.drivers.libvirt.driver import LibvirtDriver
    from skep.compute.drivers.libvirt.mediated_guests import GuestMediated
    from skep.compute.drivers.libvirt.volumes import GuestVolumes

    monkeypatch.setattr(
        domains, "UNDEFINE", libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    )  # the test driver knows no others
    connection: Any = GuestsOfNothing()
    disks = GuestDisks(tmp_path, None)
    volumes = GuestVolumes("host", disks, VolumeKinds(OsBricks("host", tmp_path)))
    options = Options(virt_type="kvm", uri="test:///default", mediated_devices=OFFERED, shutdown_seconds=0)
    driver = LibvirtDriver("host", connection, disks, volumes, options, tmp_path)
    one = msgspec.structs.replace(instance(), uuid=ONE, vifs=(), image=None)
    allocation = given({GuestMediated(connection, disks, OFFERED).providers()[0].name: 1})
    resources = {"VCPU": 1, "MEMORY_MB": 64}

    def devices(attempt: int) -> list[str]:
        """Return what the guest of an attempt has in libvirt; it is there."""
        [made] = connection.parts
        described = connection.lookupByUUIDString(ONE).XMLDesc()
        found = ET.fromstring(described).findall("devices/hostdev[@type='mdev']/source/address")
        assert [element.get("uuid") for element in found] == [made]
        assert (tmp_path / "guests" / f"{ONE}_{attempt}" / "mediated").exists()
        return [made]

    try:
        await driver.spawn(one, 1, resources, allocation)
        first = devices(1)
        assert await driver.spawn(one, 1, resources, allocation) is PowerState.RUNNING
        await driver.power_off(ONE)
        assert devices(1) == first
        connection.parts.clear()
        assert await driver.power_on(ONE) is PowerState.RUNNING
        assert devices(1) == first
        await driver.put_aside(ONE, 1)
        assert not connection.parts
        await driver.take_up(one, 1, resources, allocation, start=True)
        assert devices(1) != first
        await driver.destroy(ONE, 1)
        assert not connection.parts
        await driver.spawn(one, 2, resources, allocation)
        libvirt_guest = connection.lookupByUUIDString(ONE)
        libvirt_guest.destroy()
        libvirt_guest.undefine()
        [root] = driver.plan(one, 2)
        await driver.undo(ONE, 2, root)
        assert not connection.parts, "an attempt that is undone leaves none"
    finally:
        driver.close()


@pytest.mark.parametrize(
    "share",
    [
        ProviderShare(provider="mdev-0000:06:00.0-nvidia-222-00000000", resources={"VGPU": 1}),
        ProviderShare(provider="nics", resources={"CUSTOM_NIC": 1}, devices=("0000:81:02.1",)),
    ],
    ids=["mediated", "PCI"],
)
async def test_a_guest_with_devices_does_not_come_live(tmp_path: Path, share: ProviderShare) -> None:
    from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver
    from skep.compute.drivers.libvirt.volumes import GuestVolumes

    disks = GuestDisks(tmp_path, None)
    volumes = GuestVolumes("host", disks, VolumeKinds(OsBricks("host", tmp_path)))
    options = Options(virt_type="kvm", uri="test:///default")
    driver = LiveMigratingLibvirtDriver("host", GuestsOfNothing(), disks, volumes, options, tmp_path)
    one = msgspec.structs.replace(instance(), vifs=(), image=None)
    with pytest.raises(DriverError, match="devices do not go to another host") as raised:
        await driver.await_guest(one, 2, {}, Allocation(providers=(share,)), tmp_path)
    assert raised.value.error == "MigrationPreCheckError"
    driver.close()


def test_libvirt_reads_the_samples_as_the_driver_does(tmp_path: Path) -> None:
    import libvirt

    (tmp_path / "node.xml").write_text(node_xml())
    connection = libvirt.open(f"test://{tmp_path}/node.xml")
    cards = connection.listAllDevices(libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES)
    found = [read_parent(one.XMLDesc(0)) for one in cards]
    types = {one.address: one.types for one in found if one is not None}
    assert types == {"0000:06:00.0": ROOM, "0000:81:00.0": ROOM}
    parts = connection.listAllDevices(libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV)
    assert [read_uuid(one.XMLDesc(0)) for one in parts] == [OTHERS]
    connection.close()
