"""What drivers with the capability `live_migrate` must do: a part of `skep.contracts.drivers.DriverContract`."""

from __future__ import annotations

import abc
from pathlib import Path

import pytest

from skep.compute.drivers.base import Driver, DriverError, Guest, NamedResource, PauseDriver
from skep.compute.drivers.live import Copying, LiveMigrationDriver
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.moves import ABORTED


class LiveMigrationContract(abc.ABC):
    """Tests of the protocol `skep.compute.drivers.live.LiveMigrationDriver`."""

    @abc.abstractmethod
    def disk(self, driver: Driver, instance: InstanceUuid, attempt: int) -> bytes | None:
        """Return the bytes of the disk of a guest; None where a test cannot look at them."""

    def target(self, driver: Driver) -> Driver:
        """Return the driver of the host that guests go to: the same, or one that sees the same places."""
        return driver

    async def test_a_guest_goes_over_to_another_attempt_and_goes_on(
        self, driver: Driver, small: Instance, tmp_path: Path
    ) -> None:
        """Each step may be repeated; nothing of the target runs before the source has let go of its guest."""
        target = self.target(driver)
        if not isinstance(driver, LiveMigrationDriver) or not isinstance(target, LiveMigrationDriver):
            pytest.skip("this driver lacks the capability `live_migrate`")
        place, has = tmp_path / "place", small.flavor.resources()
        await prepare(driver, small, 1)
        await driver.spawn(small, 1, has)
        before, disk = await guest_of(driver, small), self.disk(driver, small.uuid, 1)
        for _ in range(2):
            await target.await_guest(small, 2, has, None, place)
        for _ in range(2):
            copying = Copying()
            await driver.copy_guest(small.uuid, 1, place, copying)
            assert copying.figures is not None
            assert await guest_of(driver, small) == before, "it runs where it was"
        for _ in range(2):
            await driver.hand_over(small.uuid, 1, place)
            guest = await guest_of(driver, small)
            assert guest is None or not guest.whole
        late = Copying()
        late.wish("abort")
        await driver.copy_guest(small.uuid, 1, place, late)
        for _ in range(2):
            assert await target.take_over(small, 2, has, None, place, start=True) is PowerState.RUNNING
        guest = await guest_of(target, small)
        assert guest is not None
        assert (guest.attempt, guest.whole, guest.power_state) == (2, True, PowerState.RUNNING)
        assert self.disk(target, small.uuid, 2) == disk
        with pytest.raises(DriverError):
            await driver.go_on(small.uuid, 1, start=True)
        await remove(driver, small, 1)
        assert await guest_of(target, small) == guest
        await remove(target, small, 2)
        assert await guest_of(target, small) is None

    async def test_copying_that_is_aborted_leaves_the_guest_as_it_was(
        self, driver: Driver, small: Instance, tmp_path: Path
    ) -> None:
        """It goes on, and can be copied anew; what was copied is no guest."""
        target = self.target(driver)
        if not isinstance(driver, LiveMigrationDriver) or not isinstance(target, LiveMigrationDriver):
            pytest.skip("this driver lacks the capability `live_migrate`")
        place, has = tmp_path / "place", small.flavor.resources()
        await prepare(driver, small, 1)
        await driver.spawn(small, 1, has)
        before = await guest_of(driver, small)
        await target.await_guest(small, 2, has, None, place)
        copying = Copying()
        copying.wish("abort")
        with pytest.raises(DriverError) as raised:
            await driver.copy_guest(small.uuid, 1, place, copying)
        assert raised.value.error == ABORTED
        with pytest.raises(DriverError):
            await target.take_over(small, 2, has, None, place, start=True)
        for _ in range(2):
            assert await driver.go_on(small.uuid, 1, start=True) is PowerState.RUNNING
        assert await guest_of(driver, small) == before
        await driver.copy_guest(small.uuid, 1, place, Copying())
        await remove(target, small, 2)
        await remove(driver, small, 1)
        assert (await guest_of(driver, small), await guest_of(target, small)) == (None, None)

    async def test_a_paused_guest_goes_over_paused(self, driver: Driver, small: Instance, tmp_path: Path) -> None:
        """Nobody lets it go on, neither there nor on its way back."""
        target = self.target(driver)
        if not isinstance(driver, LiveMigrationDriver) or not isinstance(target, LiveMigrationDriver):
            pytest.skip("this driver lacks the capability `live_migrate`")
        if not isinstance(driver, PauseDriver) or not isinstance(target, PauseDriver):
            pytest.skip("this driver lacks the capability `pause`")
        place, has = tmp_path / "place", small.flavor.resources()
        await prepare(driver, small, 1)
        await driver.spawn(small, 1, has)
        await driver.pause(small.uuid)
        await target.await_guest(small, 2, has, None, place)
        await driver.copy_guest(small.uuid, 1, place, Copying())
        assert await driver.go_on(small.uuid, 1, start=False) is PowerState.PAUSED
        await driver.hand_over(small.uuid, 1, place)
        assert await target.take_over(small, 2, has, None, place, start=False) is PowerState.PAUSED
        await remove(driver, small, 1)
        back = tmp_path / "back"
        await driver.await_guest(small, 3, has, None, back)
        await target.copy_guest(small.uuid, 2, back, Copying())
        await target.hand_over(small.uuid, 2, back)
        assert await driver.take_over(small, 3, has, None, back, start=False) is PowerState.PAUSED
        assert await driver.unpause(small.uuid) is PowerState.RUNNING
        await remove(target, small, 2)
        await remove(driver, small, 3)

    async def test_what_was_never_handed_over_makes_no_guest(
        self, driver: Driver, small: Instance, tmp_path: Path
    ) -> None:
        """Neither side has anything: both say so."""
        target = self.target(driver)
        if not isinstance(driver, LiveMigrationDriver) or not isinstance(target, LiveMigrationDriver):
            pytest.skip("this driver lacks the capability `live_migrate`")
        has = small.flavor.resources()
        with pytest.raises(DriverError):
            await driver.copy_guest(small.uuid, 1, tmp_path / "place", Copying())
        with pytest.raises(DriverError):
            await driver.hand_over(small.uuid, 1, tmp_path / "place")
        with pytest.raises(DriverError):
            await target.take_over(small, 2, has, None, tmp_path / "place", start=True)
        assert (await guest_of(driver, small), await guest_of(target, small)) == (None, None)


async def guest_of(driver: Driver, instance: Instance) -> Guest | None:
    """Return the guest of an instance, if there is one."""
    return next((guest for guest in await driver.guests() if guest.instance == instance.uuid), None)


async def prepare(driver: Driver, instance: Instance, attempt: int) -> tuple[NamedResource, ...]:
    """Make all resources of the plan, as an agent does; return it."""
    plan = driver.plan(instance, attempt)
    for resource in plan:
        await driver.prepare(instance, attempt, resource)
    return plan


async def remove(driver: Driver, instance: Instance, attempt: int) -> None:
    """Do as an agent does: remove the guest, then undo the plan, the newest first."""
    await driver.destroy(instance.uuid, attempt)
    for resource in reversed(driver.plan(instance, attempt)):
        await driver.undo(instance.uuid, attempt, resource)
