"""Snapshots of volumes that are files, of a guest that writes how often it has booted."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.compute.drivers.base import Driver, DriverError, PowerDriver
from skep.compute.drivers.volumes import AssistedSnapshotDriver, VolumeDriver
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.volumes import AssistSnapshot, ConnectedVolume
from skep_lab.crash.libvirt_walk import COUNT, COUNTS_BOOTS
from tests.functional.libvirt.test_volumes_of_hosts import server
from tests.support.libvirt_hosts import PARTS, host_directory, libvirt_driver, raw_disk

pytestmark = [*PARTS, pytest.mark.timeout(600)]


class VolumeOfFiles:
    """A guest that boots from a volume, whose files a volume service makes."""

    def __init__(self) -> None:
        self.directory = host_directory() / "volumes"
        self.directory.mkdir(exist_ok=True)
        self.directory.chmod(0o711)
        self.file("root").write_bytes(COUNTS_BOOTS)
        self.server: Instance = server(volume_backed=True)
        self.driver: Driver = libvirt_driver(host_directory())

    @property
    def uuid(self) -> InstanceUuid:
        return self.server.uuid

    @property
    def of_snapshots(self) -> AssistedSnapshotDriver:
        assert isinstance(self.driver, AssistedSnapshotDriver)
        return self.driver

    @property
    def of_power(self) -> PowerDriver:
        assert isinstance(self.driver, PowerDriver)
        return self.driver

    def file(self, name: str) -> Path:
        return self.directory / name

    async def boots(self) -> None:
        assert isinstance(self.driver, VolumeDriver)
        root = ConnectedVolume(
            volume_id="root",
            attachment_id="of-root",
            device="/dev/vda",
            boot_index=0,
            driver="local",
            data={"device_path": str(self.file("root"))},
        )
        await self.driver.connect_volumes(self.uuid, 1, (root,))
        await self.driver.spawn(self.server, 1, self.server.flavor.resources())

    def over(self, below: str, name: str) -> None:
        """Make the file of a snapshot, as the volume service does."""
        kind = "raw" if below == "root" else "qcow2"
        make = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", below, "-F", kind, name]
        subprocess.run(make, check=True, cwd=self.directory)

    async def has_booted(self, times: int, name: str) -> None:
        """Wait until the guest has written into a file of its volume how often it has booted."""

        async def so() -> bool:
            return self.boots_in(name) == times

        await eventually(so, f"{times} in {name}")

    def boots_in(self, name: str) -> int:
        """Return how often the guest had booted, as a file and those below it say."""
        path = self.file(name)
        return (path.read_bytes() if name == "root" else raw_disk(host_directory(), path))[COUNT]


@pytest.fixture
async def guest() -> AsyncIterator[VolumeOfFiles]:
    guest = VolumeOfFiles()
    yield guest
    for one in await guest.driver.guests():
        await guest.driver.destroy(one.instance)
    guest.driver.close()
    for path in guest.directory.iterdir():
        path.unlink()


def snapshot(name: str, **files: str | None) -> AssistSnapshot:
    return AssistSnapshot(
        device="/dev/vda",
        volume_id="root",
        attachment_id="of-root",
        snapshot_id=name,
        new_file=str(files.get("new_file", "")),
        file_to_merge=files.get("file_to_merge"),
        merge_target_file=files.get("merge_target_file"),
    )


async def test_what_a_guest_writes_is_in_the_latest_file_of_its_volume(
    guest: VolumeOfFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a guest that runs, and of one that is off; merging keeps it, and the next agent knows of it.

    A snapshot of which libvirt's last word was lost is made: the volume service would go on from the old file.
    """
    await guest.boots()
    await guest.has_booted(1, "root")
    guest.over("root", "first")
    first = snapshot("s-1", new_file="first")
    write_to_new = guest.driver._write_to_new  # type: ignore[attr-defined]

    def cut(*told: object) -> PowerState:
        monkeypatch.undo()
        write_to_new(*told)
        raise DriverError("VolumeSnapshotFailed", "the connection was cut")

    monkeypatch.setattr(guest.driver, "_write_to_new", cut)
    assert await guest.of_snapshots.create_volume_snapshot(guest.uuid, first) is PowerState.RUNNING
    await guest.of_power.reboot(guest.uuid, hard=True)
    await guest.has_booted(2, "first")
    assert guest.boots_in("root") == 1
    await guest.of_power.power_off(guest.uuid)
    guest.over("first", "second")
    second = snapshot("s-2", new_file="second")
    assert await guest.of_snapshots.create_volume_snapshot(guest.uuid, second) is PowerState.SHUTDOWN
    into_first = snapshot("s-1", file_to_merge="first", merge_target_file="root")
    with pytest.raises(DriverError) as raised:
        await guest.of_snapshots.delete_volume_snapshot(guest.uuid, into_first)
    assert raised.value.error == "InstanceNotRunning"
    guest.driver.close()
    guest.driver = libvirt_driver(host_directory())
    await guest.of_power.power_on(guest.uuid)
    await guest.has_booted(3, "second")
    assert (guest.boots_in("root"), guest.boots_in("first")) == (1, 2)
    used = snapshot("s-2", file_to_merge="second", merge_target_file="root")
    with pytest.raises(DriverError, match="second is not below"):
        await guest.of_snapshots.delete_volume_snapshot(guest.uuid, used)
    for _ in range(2):
        assert await guest.of_snapshots.delete_volume_snapshot(guest.uuid, into_first) is PowerState.RUNNING
        assert guest.boots_in("root") == 2
    for _ in range(2):
        assert await guest.of_snapshots.delete_volume_snapshot(guest.uuid, snapshot("s-2")) is PowerState.RUNNING
    for name in ("root", "first"):
        guest.file(name).unlink()
    await guest.of_power.reboot(guest.uuid, hard=True)
    await guest.has_booted(4, "second")


async def test_what_cannot_be_is_refused_and_leaves_the_guest_as_it_is(guest: VolumeOfFiles) -> None:
    await guest.boots()
    await guest.has_booted(1, "root")
    refused = {
        "VolumeNotSupported": snapshot("s-1", new_file="../root"),
        "VolumeSnapshotFailed": snapshot("s-1", new_file="missing"),
    }
    for error, wanted in refused.items():
        with pytest.raises(DriverError) as raised:
            await guest.of_snapshots.create_volume_snapshot(guest.uuid, wanted)
        assert raised.value.error == error
    with pytest.raises(DriverError, match="no file other is below"):
        await guest.of_snapshots.delete_volume_snapshot(guest.uuid, snapshot("s-1", file_to_merge="other"))
    await guest.of_power.reboot(guest.uuid, hard=True)
    await guest.has_booted(2, "root")
