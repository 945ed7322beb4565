"""What drivers with the capability `attach_interface` must do: a part of `skep.contracts.drivers.DriverContract`."""

from __future__ import annotations

import msgspec
import pytest

from skep.compute.drivers.base import Driver, DriverError, PowerDriver
from skep.compute.drivers.interfaces import InterfaceDriver
from skep.contracts.live_migrations import prepare, remove
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import Instance, PowerState
from skep.domain.vifs import Vif


class InterfacesOfGuestsContract:
    """Tests of the protocol `skep.compute.drivers.interfaces.InterfaceDriver`."""

    def interface(self, number: int) -> Vif:
        """Return an interface that guests of the host can have, another one for each number."""
        return Vif(
            id=new_uuid(),
            mac_address=f"fa:16:3e:00:00:{number:02x}",
            network_id=new_uuid(),
            network_name="private",
            mtu=1450,
        )

    def interfaces_of(self, driver: Driver, instance: InstanceUuid) -> set[str] | None:  # noqa: ARG002
        """Return the ids of the ports of the interfaces that a guest has; None where a test cannot look."""
        return None

    async def test_a_guest_that_is_off_gets_and_loses_interfaces(self, driver: Driver, small: Instance) -> None:
        """Each once more is no error, and the guest is as it was. Only the guest of the attempt is meant."""
        attaching = _attaching(driver)
        bare = msgspec.structs.replace(small, vifs=())
        await prepare(driver, bare, 1)
        await driver.spawn(bare, 1, bare.flavor.resources())
        if not isinstance(driver, PowerDriver):
            pytest.skip("this driver lacks the capability `power`")
        await driver.power_off(bare.uuid)
        before = await driver.guests()
        first, second = self.interface(1), self.interface(2)
        for _ in range(2):
            for one in (first, second):
                given = await attaching.attach_interface(msgspec.structs.replace(bare, vifs=(one,)), 1, one)
                assert given is PowerState.SHUTDOWN
        assert self.interfaces_of(driver, bare.uuid) in (None, {first.id, second.id})
        with pytest.raises(DriverError) as raised:
            await attaching.attach_interface(bare, 2, first)
        assert raised.value.error == "InstanceNotFound"
        for _ in range(2):
            assert await attaching.detach_interface(bare.uuid, 1, first) is PowerState.SHUTDOWN
        assert self.interfaces_of(driver, bare.uuid) in (None, {second.id})
        assert await driver.guests() == before
        assert await driver.power_on(bare.uuid) is PowerState.RUNNING
        assert self.interfaces_of(driver, bare.uuid) in (None, {second.id})
        await remove(driver, bare, 1)
        with pytest.raises(DriverError) as raised:
            await attaching.detach_interface(bare.uuid, 1, second)
        assert raised.value.error == "InstanceNotFound"

    async def test_a_guest_that_runs_gets_an_interface(self, driver: Driver, small: Instance) -> None:
        """It runs on, and has it until it ends."""
        attaching = _attaching(driver)
        bare = msgspec.structs.replace(small, vifs=())
        await prepare(driver, bare, 1)
        await driver.spawn(bare, 1, bare.flavor.resources())
        one = self.interface(3)
        for _ in range(2):
            given = await attaching.attach_interface(msgspec.structs.replace(bare, vifs=(one,)), 1, one)
            assert given is PowerState.RUNNING
        assert self.interfaces_of(driver, bare.uuid) in (None, {one.id})
        await remove(driver, bare, 1)
        assert self.interfaces_of(driver, bare.uuid) in (None, set())


def _attaching(driver: Driver) -> InterfaceDriver:
    if not isinstance(driver, InterfaceDriver) or not driver.attaches_interfaces:
        pytest.skip("this driver lacks the capability `attach_interface`, or was configured without it")
    return driver
