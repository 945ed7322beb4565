"""Volumes on their host: of guests that boot from them, share them, or do not let go of them."""

from __future__ import annotations

import errno
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import Driver, DriverError, MoveDriver, NamedResource, PowerDriver, SuspendDriver
from skep.compute.drivers.volumes import VolumeDriver
from skep.domain.block_devices import BlockDevice
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import Instance, PowerState
from skep.domain.volumes import ConnectedVolume, ServerVolume
from tests.support.agents import instance
from tests.support.libvirt_hosts import PARTS, host_directory, libvirt_driver
from tests.support.noted_bricks import NotedBricks

pytestmark = [*PARTS, pytest.mark.timeout(600)]

PLAN = NamedResource(name="volumes", kind="volumes")


class BrickHost:
    """A host whose volumes are all connected by a library that notes it."""

    def __init__(self, directory: Path) -> None:
        self.bricks = NotedBricks(directory)
        self.driver = self.begun()

    def begun(self) -> Driver:
        """Return the driver of an agent that has just begun."""
        from skep.compute.drivers.libvirt.volume_kinds import VolumeKinds  # it imports what may not be installed
        from skep.compute.drivers.libvirt.volumes import GuestVolumes

        self.driver = driver = libvirt_driver(host_directory(), {"detach_seconds": 1})
        volumes = GuestVolumes("host", driver._disks, VolumeKinds(self.bricks))  # type: ignore[attr-defined]
        driver._volumes = driver._domains._volumes = volumes  # type: ignore[attr-defined]
        return driver

    @property
    def of_volumes(self) -> VolumeDriver:
        assert isinstance(self.driver, VolumeDriver)
        return self.driver

    def connected(self) -> list[str]:
        """Return the volumes that the host has now."""
        there = []
        for what, _, name, *_ in self.bricks.asked:
            if what == "connect" and name not in there:
                there.append(name)
            elif what == "disconnect":
                there.remove(name)
        return there


@asynccontextmanager
async def brick_host() -> AsyncIterator[BrickHost]:
    """Have such a host; a guest that a test has left ends with it."""
    directory = host_directory() / "volumes"
    directory.mkdir(exist_ok=True)
    directory.chmod(0o711)
    host = BrickHost(directory)
    yield host
    for guest in await host.driver.guests():
        await host.driver.destroy(guest.instance)
    host.driver.close()


@pytest.fixture
async def host() -> AsyncIterator[BrickHost]:
    async with brick_host() as host:
        yield host


def volume(name: str, *, boot_index: int | None = None, shared: bool = False) -> ConnectedVolume:
    data = {"name": name, "auth_password": "secret"}
    return ConnectedVolume(
        volume_id=name, attachment_id=f"of-{name}", device="", boot_index=boot_index, driver="iscsi", data=data,
        shared=shared,
    )  # fmt: skip


def server(*, volume_backed: bool = False) -> Instance:
    flavor = msgspec.structs.replace(instance().flavor, memory_mb=64, vcpus=1, root_gb=0)
    has = ServerVolume(id="bdm", volume_id="root", attachment_id="of-root", device="/dev/vda", boot_index=0)
    boots = BlockDevice(source_type="volume", destination_type="volume", uuid="root", boot_index=0)
    return msgspec.structs.replace(
        instance(),
        uuid=InstanceUuid(new_uuid()),
        flavor=flavor,
        vifs=(),
        image=None,
        volumes=(has,) if volume_backed else (),
        block_devices=(boots,) if volume_backed else (),
    )


async def test_a_guest_that_boots_from_a_volume_moves_without_a_root_disk(host: BrickHost) -> None:
    driver, one = host.driver, server(volume_backed=True)
    assert isinstance(driver, MoveDriver)
    assert driver.plan(one, 1) == (PLAN,)
    await driver.prepare(one, 1, PLAN)
    with pytest.raises(DriverError) as raised:
        await driver.spawn(one, 1, one.flavor.resources())
    assert raised.value.error == "VolumesNotConnected"
    await host.of_volumes.connect_volumes(one.uuid, 1, (volume("more"), volume("root", boot_index=0)))
    place = host_directory() / "guests" / f"{one.uuid}_1"
    assert stat.S_IMODE((place / "volumes").stat().st_mode) == 0o600
    assert (place / "volumes").stat().st_uid == 0 or place.stat().st_uid != 0
    assert await driver.spawn(one, 1, one.flavor.resources()) is PowerState.RUNNING
    assert not (place / "disk").exists()
    await driver.put_aside(one.uuid, 1)
    assert host.connected() == []
    kept = await driver.kept(one.uuid, 1)
    assert kept == {}
    await driver.receive(one, 2, kept)
    await host.of_volumes.connect_volumes(one.uuid, 2, (volume("root", boot_index=0),))
    assert await driver.take_up(one, 2, one.flavor.resources(), start=True) is PowerState.RUNNING
    await driver.undo(one.uuid, 1, PLAN)
    assert host.connected() == ["root"]
    assert isinstance(driver, PowerDriver)
    await driver.power_off(one.uuid)
    host.bricks.asked.clear()
    await driver.power_on(one.uuid)
    assert host.bricks.asked == [("connect", "ISCSI", "root")], "the host may have been switched off"
    await driver.destroy(one.uuid)
    await driver.undo(one.uuid, 2, PLAN)
    assert host.connected() == []
    assert not [path for path in (host_directory() / "guests").iterdir() if one.uuid in path.name]


async def test_a_device_that_has_another_name_after_a_boot_of_the_host_is_found(host: BrickHost) -> None:
    """Also by a guest that goes on with its memory, and it is let go of by its new name."""
    one, driver = server(volume_backed=True), host.driver
    await driver.prepare(one, 1, PLAN)
    await host.of_volumes.connect_volumes(one.uuid, 1, (volume("root", boot_index=0),))
    await driver.spawn(one, 1, one.flavor.resources())
    assert isinstance(driver, PowerDriver)
    assert isinstance(driver, SuspendDriver)
    for halt, go_on in ((driver.power_off, driver.power_on), (driver.suspend, driver.resume)):
        await halt(one.uuid)
        host.bricks.boots += 1
        assert await go_on(one.uuid) is PowerState.RUNNING
    await driver.power_off(one.uuid)
    assert await driver.power_on(one.uuid) is PowerState.RUNNING
    await driver.destroy(one.uuid)
    await driver.undo(one.uuid, 1, PLAN)
    assert host.bricks.asked[-1] == ("disconnect", "ISCSI", "root", str(host.bricks.directory / "root2"))


async def test_what_an_agent_has_connected_before_it_died_the_next_one_lets_go_of(host: BrickHost) -> None:
    one = server(volume_backed=True)
    await host.driver.prepare(one, 1, PLAN)
    await host.of_volumes.connect_volumes(one.uuid, 1, (volume("root", boot_index=0),))
    host.driver.close()
    driver = host.begun()
    await driver.destroy(one.uuid, 1)
    for _ in range(2):
        await driver.undo(one.uuid, 1, PLAN)
        assert host.connected() == []


async def test_volumes_of_which_one_cannot_be_connected_are_all_let_go_of(host: BrickHost) -> None:
    one = server()
    host.bricks.failing = "second"
    with pytest.raises(DriverError):
        await host.of_volumes.connect_volumes(one.uuid, 1, (volume("first"), volume("second")))
    assert host.connected() == []
    await host.driver.undo(one.uuid, 1, PLAN)


async def test_a_volume_of_two_guests_is_let_go_of_with_the_last(host: BrickHost) -> None:
    guests, shared = [server(), server()], volume("shared", shared=True)
    for one in guests:
        await host.driver.spawn(one, 1, one.flavor.resources())
        await host.of_volumes.attach_volume(one.uuid, 1, shared)
    await host.driver.destroy(guests[0].uuid)
    assert host.connected() == ["shared"]
    await host.driver.destroy(guests[1].uuid)
    assert host.connected() == []


async def test_a_guest_that_does_not_let_go_keeps_its_volume(host: BrickHost) -> None:
    """One without a system never does; once it is off it need not be asked."""
    one = server()
    await host.driver.spawn(one, 1, one.flavor.resources())
    await host.of_volumes.attach_volume(one.uuid, 1, volume("held"))
    with pytest.raises(DriverError, match="has not let go of volume held") as raised:
        await host.of_volumes.detach_volume(one.uuid, 1, "held")
    assert raised.value.error == "VolumeInUse"
    assert host.connected() == ["held"]
    assert isinstance(host.driver, PowerDriver)
    await host.driver.power_off(one.uuid)
    assert await host.of_volumes.detach_volume(one.uuid, 1, "held") is PowerState.SHUTDOWN
    assert host.connected() == []


async def test_what_the_host_did_not_let_go_of_is_let_go_of_by_a_repeat(host: BrickHost) -> None:
    """Until then the guest is there, and off: nothing of it is forgotten."""
    one, driver = server(), host.driver
    assert isinstance(driver, MoveDriver)
    await driver.spawn(one, 1, one.flavor.resources())
    await host.of_volumes.attach_volume(one.uuid, 1, volume("busy"))
    for removing in (partial(driver.put_aside, one.uuid, 1), partial(driver.destroy, one.uuid)):
        host.bricks.stuck = True
        with pytest.raises(DriverError, match="busy"):
            await removing()
        [guest] = await driver.guests()
        assert guest.power_state is PowerState.SHUTDOWN
        host.bricks.stuck = False
        await removing()
        assert (await driver.guests(), host.connected()) == ((), [])
        await host.of_volumes.connect_volumes(one.uuid, 1, (volume("busy"),))
        if removing.func == driver.put_aside:
            await driver.take_up(one, 1, one.flavor.resources(), start=False)
    await driver.undo(one.uuid, 1, PLAN)
    assert host.connected() == []


async def test_a_full_disk_keeps_no_guest_with_volumes_from_its_end(
    host: BrickHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the host does not let go of are named as before, for a repeat."""
    one, driver = server(), host.driver
    await host.of_volumes.connect_volumes(one.uuid, 1, (volume("first"), volume("second")))
    await driver.spawn(one, 1, one.flavor.resources())
    written = host_directory() / "guests" / f"{one.uuid}_1" / "volumes"
    before = written.read_bytes()

    def full(path: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("skep.compute.drivers.libvirt.volumes.write_whole", full)
    host.bricks.stuck = True
    with pytest.raises(DriverError, match="busy"):
        await driver.destroy(one.uuid)
    assert written.read_bytes() == before
    host.bricks.stuck = False
    await driver.destroy(one.uuid)
    assert (await driver.guests(), host.connected(), written.parent.exists()) == ((), [], False)
