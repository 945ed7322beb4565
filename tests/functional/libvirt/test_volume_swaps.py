"""Another volume comes into the place of one while its guest runs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from skep.compute.drivers.base import DriverError, PauseDriver, PowerDriver
from skep.compute.drivers.live import Copying
from skep.compute.drivers.volumes import SWAP_ABORTED, OtherVolumeDriver, VolumeExtendDriver, VolumeSwapDriver
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import PowerState
from skep.domain.volumes import ExtendedVolume, SwapVolume
from skep_lab.crash.counting_guests import COUNTS, counted
from tests.functional.libvirt.test_volumes_of_hosts import BrickHost, brick_host, server, volume
from tests.support.libvirt_hosts import PARTS, connection_in, host_directory, other_directory

pytestmark = [*PARTS, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
MIB = 1 << 20
SWAP = SwapVolume(
    device="/dev/vdb", old_volume_id="old", old_attachment_id="of-old", new_volume_id="new", new_attachment_id="of-new"
)


@contextmanager
def nothing_left(directory: Path) -> Iterator[None]:
    """End what a test that fails has left of guests."""
    try:
        yield
    finally:
        for process in (directory / "libvirt" / "run" / "qemu").glob("instance-*.pid"):
            os.kill(int(process.read_text()), signal.SIGKILL)


def test_a_guest_counts_on_over_another_volume_though_its_agent_was_killed() -> None:
    """The next agent goes on with the copy; then nothing of the old volume is needed."""
    uuid, size = new_uuid(), 20 * MIB
    with other_directory() as directory, nothing_left(directory):
        program = [sys.executable, "-m", "tests.support.libvirt_agent"]
        swap, old, new = [*program, "swap", str(directory), uuid], directory / "old", directory / "new"
        old.write_bytes(COUNTS + os.urandom(size - len(COUNTS)))
        new.write_bytes(bytes(size))

        def count() -> int:
            return counted((directory / "guests" / f"{uuid}_7" / "console.log").read_bytes())

        async def counts_on() -> None:
            before = count()

            async def further() -> bool:
                return count() > before + 3

            await eventually(further, "the guest counts on")

        with subprocess.Popen(swap, cwd=ROOT, stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"copying\n"
            agent.kill()
        [note] = (directory / "libvirt" / "run" / "qemu").glob("instance-*.xml")
        assert "<mirror" in note.read_text(), "QEMU copies without an agent"
        asyncio.run(counts_on())
        done = subprocess.run(swap, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
        assert done.stdout.splitlines() == ["copying", "RUNNING"]
        assert new.read_bytes() == old.read_bytes()
        old.write_bytes(bytes(size))
        asyncio.run(counts_on())
        adopt = [*program, "adopt", str(directory)]
        found = subprocess.run(adopt, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
        assert found.stdout.splitlines() == [f"{uuid} 7 RUNNING True", "SHUTDOWN", "0"]


@pytest.fixture
async def host() -> AsyncIterator[BrickHost]:
    async with brick_host() as host:
        yield host


async def swapped(host: BrickHost, guest: InstanceUuid, copying: Copying | None = None) -> PowerState:
    """Have a guest use the other volume."""
    driver = host.driver
    assert isinstance(driver, OtherVolumeDriver)
    assert isinstance(driver, VolumeSwapDriver)
    await driver.connect_other(guest, 1, SWAP, volume("new"))
    return await driver.swap_volume(guest, SWAP, copying or Copying(SWAP_ABORTED))


async def with_volume(host: BrickHost) -> InstanceUuid:
    one = server()
    await host.driver.spawn(one, 1, one.flavor.resources())
    await host.of_volumes.attach_volume(one.uuid, 1, volume("old"))
    return one.uuid


def sources(guest: InstanceUuid) -> list[dict[str, str]]:
    """Return where the guest has its volumes, by their serial numbers: now, and when it starts next."""
    import libvirt

    domain = connection_in(host_directory()).lookupByUUIDString(guest)
    found = []
    for flag in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        disks = ET.fromstring(domain.XMLDesc(flag)).findall("devices/disk[serial]")
        of = ((disk.findtext("serial", ""), disk.find("source")) for disk in disks)
        found.append({serial: "" if source is None else source.get("file", "") for serial, source in of})
    return found


async def test_the_other_volume_is_the_guests_from_then_on(host: BrickHost) -> None:
    """Also of one that is paused. It has the id of the old one in the guest, and may be known by either."""
    uuid, driver = await with_volume(host), host.driver
    assert isinstance(driver, PowerDriver)
    assert isinstance(driver, PauseDriver)
    assert isinstance(driver, VolumeExtendDriver)
    (host.bricks.directory / "new").write_bytes(bytes(2 * MIB))
    await driver.pause(uuid)
    assert await swapped(host, uuid) is PowerState.PAUSED
    assert host.connected() == ["new"]
    assert sources(uuid) == 2 * [{"old": str(host.bricks.directory / "new")}]
    assert host.bricks.asked[-1][2:] == ("old", str(host.bricks.directory / "old"))
    await driver.power_off(uuid)
    await driver.power_on(uuid)
    assert host.bricks.asked[-1] == ("connect", "ISCSI", "new")
    grown = ExtendedVolume(device="/dev/vdb", volume_id="new", attachment_id="of-new", size=1)
    assert await driver.extend_volume(uuid, (grown,)) is PowerState.RUNNING
    assert host.bricks.asked[-1] == ("extend", "ISCSI", "new")
    with pytest.raises(DriverError, match="the guest has volume new as old"):
        await host.of_volumes.attach_volume(uuid, 1, volume("old"))
    await driver.power_off(uuid)
    await host.of_volumes.detach_volume(uuid, 1, "new")
    assert (host.connected(), sources(uuid)) == ([], 2 * [{}])


async def test_what_comes_to_nothing_leaves_the_old_volume(host: BrickHost) -> None:
    """Of a guest that is off, where the other one is not reached, and after an abort."""
    uuid, copying = await with_volume(host), Copying(SWAP_ABORTED)
    assert isinstance(host.driver, PowerDriver)

    async def comes_to_nothing(error: str) -> None:
        with pytest.raises(DriverError) as raised:
            await swapped(host, uuid, copying)
        assert raised.value.error == error
        assert host.connected() == ["old"]
        assert sources(uuid) == 2 * [{"old": str(host.bricks.directory / "old")}]

    (host.bricks.directory / "old").write_bytes(os.urandom(MIB))
    going = asyncio.create_task(comes_to_nothing(SWAP_ABORTED))

    async def begun() -> bool:
        return ("connect", "ISCSI", "new") in host.bricks.asked

    await eventually(begun, "the other volume is connected")
    copying.wish("abort")
    await going
    copying = Copying(SWAP_ABORTED)
    host.bricks.failing = "new"
    await comes_to_nothing("VolumeUnavailable")
    host.bricks.failing = ""
    await host.driver.power_off(uuid)
    await comes_to_nothing("InstanceNotRunning")


async def test_what_was_not_let_go_of_goes_when_the_guest_starts(host: BrickHost) -> None:
    """It uses the other one all the same, also where its agent died before it had written that down."""
    uuid, driver = await with_volume(host), host.driver
    assert isinstance(driver, PowerDriver)
    assert isinstance(driver, OtherVolumeDriver)
    await driver.connect_other(uuid, 1, SWAP, volume("new"))
    written = host_directory() / "guests" / f"{uuid}_1" / "volumes"
    before = written.read_bytes()
    host.bricks.stuck = True
    assert await swapped(host, uuid) is PowerState.RUNNING
    assert host.connected() == ["old", "new"]
    host.bricks.stuck = False
    written.write_bytes(before)
    await driver.power_off(uuid)
    await driver.power_on(uuid)
    assert host.connected() == ["new"]
    assert sources(uuid) == 2 * [{"old": str(host.bricks.directory / "new")}]


async def test_a_device_with_the_name_of_the_old_one_is_not_taken_for_a_copy(host: BrickHost) -> None:
    """The host was switched off amid the copying, and gives its devices other names."""
    uuid, driver = await with_volume(host), host.driver
    assert isinstance(driver, PowerDriver)
    assert isinstance(driver, OtherVolumeDriver)
    await driver.connect_other(uuid, 1, SWAP, volume("new"))
    await driver.power_off(uuid)
    host.bricks.names = {"new": "old"}
    with pytest.raises(DriverError) as raised:
        await swapped(host, uuid)
    assert raised.value.error == "InstanceNotRunning"
    assert host.connected() == ["old"]
    assert sources(uuid) == 2 * [{"old": str(host.bricks.directory / "old")}]


async def test_while_libvirt_is_away_nothing_is_said_of_a_swap(
    host: BrickHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = await with_volume(host)
    (host.bricks.directory / "old").write_bytes(os.urandom(MIB))
    connection = host.driver._connection  # type: ignore[attr-defined]
    get, away = connection.get, [False] * 4

    def cut(*_told: object) -> bool:
        away[:] = [True] * 4
        raise DriverError("HypervisorUnavailable", "the connection was cut")

    def answer() -> object:
        if any(away) and away.pop():
            raise DriverError("HypervisorUnavailable", "libvirt is away")
        return get()

    monkeypatch.setattr(connection, "get", answer)
    monkeypatch.setattr(host.driver, "_is_swap_copied", cut)
    with pytest.raises(DriverError, match="was cut"):
        await swapped(host, uuid)
    assert away == []
    assert host.connected() == ["old"], "nothing is copied to the other one any more"
    assert sources(uuid) == 2 * [{"old": str(host.bricks.directory / "old")}]
