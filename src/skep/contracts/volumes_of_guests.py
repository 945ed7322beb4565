"""What drivers with the capabilities `attach_volume`, `swap_volume` and `assisted_snapshot` must do: a part of
`skep.contracts.drivers.DriverContract`."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.compute.drivers.base import Driver, DriverError, RebuildDriver
from skep.compute.drivers.live import Copying, LiveMigrationDriver
from skep.compute.drivers.volumes import (
    SWAP_ABORTED,
    AssistedSnapshotDriver,
    OtherVolumeDriver,
    VolumeDriver,
    VolumeSwapDriver,
)
from skep.contracts.live_migrations import guest_of, prepare, remove
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.volumes import AssistSnapshot, ConnectedVolume, SwapVolume


class VolumesOfGuestsContract:
    """Tests of the protocol `skep.compute.drivers.volumes.VolumeDriver`."""

    def target(self, driver: Driver) -> Driver:
        """Return the driver of the host that guests go to live."""
        return driver

    def connection(self, number: int) -> ConnectedVolume:
        """Return a volume that the host can connect, another one for each number."""
        return ConnectedVolume(
            volume_id=f"volume-{number}",
            attachment_id=f"attachment-{number}",
            device=f"/dev/vd{'abc'[number]}",
            driver="paper",
            data={},
        )

    def volumes_of(self, driver: Driver, instance: InstanceUuid) -> set[str] | None:  # noqa: ARG002
        """Return the ids of the volumes that a guest has; None where a test cannot look."""
        return None

    async def test_a_guest_has_the_volumes_that_were_connected_before_it(self, driver: Driver, small: Instance) -> None:
        """The latest that were told count; with the guest all of them go."""
        volumes = _volumes(driver)
        await prepare(driver, small, 1)
        await volumes.connect_volumes(small.uuid, 1, (self.connection(2),))
        for _ in range(2):
            await volumes.connect_volumes(small.uuid, 1, (self.connection(1), self.connection(2)))
        await driver.spawn(small, 1, small.flavor.resources())
        self._has(driver, small, 1, 2)
        await volumes.connect_volumes(small.uuid, 1, ())
        self._has(driver, small, 1, 2)
        await remove(driver, small, 1)
        self._has(driver, small)

    async def test_a_guest_gets_and_loses_volumes(self, driver: Driver, small: Instance) -> None:
        """Each once more is no error, and the guest is as it was. Only the guest of the attempt is meant."""
        volumes = _volumes(driver)
        await prepare(driver, small, 1)
        left = await driver.spawn(small, 1, small.flavor.resources())
        before = await driver.guests()
        for _ in range(2):
            assert await volumes.attach_volume(small.uuid, 1, self.connection(1)) is left
        self._has(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await volumes.attach_volume(small.uuid, 2, self.connection(2))
        assert raised.value.error == "InstanceNotFound"
        assert await driver.guests() == before
        await remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await volumes.detach_volume(small.uuid, 1, self.connection(1).volume_id)
        assert raised.value.error == "InstanceNotFound"

    async def test_a_guest_that_is_put_aside_has_no_volumes(self, driver: Driver, small: Instance) -> None:
        """It is told of them anew before it is taken up."""
        volumes = _volumes(driver)
        if not isinstance(driver, RebuildDriver):
            pytest.skip("this driver lacks the capability `rebuild`")
        await prepare(driver, small, 1)
        await volumes.connect_volumes(small.uuid, 1, (self.connection(1),))
        await driver.spawn(small, 1, small.flavor.resources())
        await driver.put_aside(small.uuid, 1)
        self._has(driver, small)
        await volumes.connect_volumes(small.uuid, 1, (self.connection(2),))
        await driver.take_up(small, 1, small.flavor.resources(), start=False)
        self._has(driver, small, 2)
        assert await volumes.detach_volume(small.uuid, 1, self.connection(2).volume_id)
        assert await volumes.detach_volume(small.uuid, 1, self.connection(2).volume_id)
        self._has(driver, small)
        assert await guest_of(driver, small) is not None
        await remove(driver, small, 1)

    async def test_a_guest_that_goes_to_another_host_has_its_volumes_there(
        self, driver: Driver, small: Instance, tmp_path: Path
    ) -> None:
        """The target has them before the guest comes, and once more after it was told twice; the source has none."""
        volumes, target = _volumes(driver), self.target(driver)
        if not isinstance(driver, LiveMigrationDriver) or not isinstance(target, LiveMigrationDriver):
            pytest.skip("this driver lacks the capability `live_migrate`")
        place, has = tmp_path / "place", small.flavor.resources()
        await prepare(driver, small, 1)
        await volumes.connect_volumes(small.uuid, 1, (self.connection(1), self.connection(2)))
        await driver.spawn(small, 1, has)
        there = _volumes(target)
        for _ in range(2):
            await there.connect_volumes(small.uuid, 2, (self.connection(1), self.connection(2)))
            await target.await_guest(small, 2, has, None, place)
        self._has(driver, small, 1, 2)
        await driver.copy_guest(small.uuid, 1, place, Copying())
        await driver.hand_over(small.uuid, 1, place)
        for _ in range(2):
            assert await target.take_over(small, 2, has, None, place, start=True) is PowerState.RUNNING
        self._has(target, small, 1, 2)
        await remove(driver, small, 1)
        self._has(target, small, 1, 2)
        await remove(target, small, 2)

    def swap(self) -> SwapVolume:
        """Name two volumes that are connected to the host; a guest of one driver uses the first one by now."""
        return SwapVolume(
            device="/dev/vdb",
            old_volume_id="volume-1",
            old_attachment_id="attachment-1",
            new_volume_id="volume-2",
            new_attachment_id="attachment-2",
        )

    async def test_another_volume_stands_in_the_place_of_one(self, driver: Driver, small: Instance) -> None:
        """A repeat finds it there; one that is aborted leaves the guest as it was, and may be tried again.

        The guest has it under the id of the one in whose place it is.
        """
        if not isinstance(driver, VolumeSwapDriver):
            pytest.skip("this driver lacks the capability `swap_volume`")
        await prepare(driver, small, 1)
        left = await driver.spawn(small, 1, small.flavor.resources())
        if isinstance(driver, OtherVolumeDriver):
            await _volumes(driver).attach_volume(small.uuid, 1, self.connection(1))
        aborted = Copying(SWAP_ABORTED)
        aborted.wish("abort")
        with pytest.raises(DriverError) as raised:
            await self._swapped(driver, small, aborted)
        assert raised.value.error == SWAP_ABORTED
        before = await driver.guests()
        for copying in (Copying(SWAP_ABORTED), Copying(SWAP_ABORTED), aborted):
            assert await self._swapped(driver, small, copying) is left
            if isinstance(driver, OtherVolumeDriver):
                self._has(driver, small, 1)
        assert await driver.guests() == before
        await remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await self._swapped(driver, small, Copying(SWAP_ABORTED))
        assert raised.value.error == "InstanceNotFound"

    def new_file(self, volume: ConnectedVolume, name: str) -> None:
        """Make a file over the one of a volume, and beside it, as a volume service does; where there are files."""

    async def test_a_snapshot_of_a_volume_is_made_and_deleted(self, driver: Driver, small: Instance) -> None:
        """Each once more is no error, and the guest is as it was."""
        if not isinstance(driver, AssistedSnapshotDriver):
            pytest.skip("this driver lacks the capability `assisted_snapshot`")
        await prepare(driver, small, 1)
        left = await driver.spawn(small, 1, small.flavor.resources())
        if isinstance(driver, VolumeDriver):
            await driver.attach_volume(small.uuid, 1, self.connection(1))
        self.new_file(self.connection(1), "volume-1.snapshot-1")
        before = await driver.guests()
        snapshot = AssistSnapshot(
            device="/dev/vdb",
            volume_id="volume-1",
            attachment_id="attachment-1",
            snapshot_id="snapshot-1",
            new_file="volume-1.snapshot-1",
        )
        for act in (driver.create_volume_snapshot, driver.delete_volume_snapshot):
            for _ in range(2):
                assert await act(small.uuid, snapshot) is left
                assert await driver.guests() == before
        await remove(driver, small, 1)
        for act in (driver.create_volume_snapshot, driver.delete_volume_snapshot):
            with pytest.raises(DriverError) as raised:
                await act(small.uuid, snapshot)
            assert raised.value.error == "InstanceNotFound"

    async def _swapped(self, driver: VolumeSwapDriver, small: Instance, copying: Copying) -> PowerState:
        if isinstance(driver, OtherVolumeDriver):
            await driver.connect_other(small.uuid, 1, self.swap(), self.connection(2))
        return await driver.swap_volume(small.uuid, self.swap(), copying)

    def _has(self, driver: Driver, small: Instance, *numbers: int) -> None:
        found = self.volumes_of(driver, small.uuid)
        assert found in (None, {self.connection(one).volume_id for one in numbers})


def _volumes(driver: Driver) -> VolumeDriver:
    if not isinstance(driver, VolumeDriver):
        pytest.skip("this driver lacks the capability `attach_volume`")
    return driver
