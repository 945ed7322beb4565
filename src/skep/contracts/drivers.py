"""What every driver must do: inherit `DriverContract` in a test module and give it a `driver` fixture.

The suite makes guests of its own with random ids, so it may run on a host that has others.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator

import msgspec
import pytest

from skep.compute.drivers.base import Driver, DriverError, Guest, PowerDriver
from skep.compute.drivers.contents import GuestContents, GuestFile
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, UserId, new_uuid
from skep.domain.instances import Instance, PowerState
from skep.domain.resources import MEMORY_MB, VCPU


class DriverContract(abc.ABC):
    """Tests of the port `skep.compute.drivers.base.Driver`."""

    @pytest.fixture
    @abc.abstractmethod
    async def driver(self) -> AsyncIterator[Driver]:
        """Give a driver whose host has room for two small guests."""
        yield  # type: ignore[misc]  # abstract: inheritors give the driver

    def inside(self, driver: Driver, instance: InstanceUuid) -> GuestContents | None:  # noqa: ARG002
        """Return the password and files that a guest has, as somebody who signed in to it would see them.

        Where a test cannot look inside, what is said of them is not tried.
        """
        pytest.skip("nothing looks inside the guests of this driver")

    @pytest.fixture
    def small(self) -> Instance:
        """Give an instance that was never built."""
        return Instance(
            uuid=InstanceUuid(new_uuid()),
            project_id=ProjectId("project"),
            user_id=UserId("user"),
            name="contract",
            hostname="contract",
            flavor=Flavor(flavorid="contract", name="contract", vcpus=1, memory_mb=64),
            created_at=0,
            request_id=RequestId("req-contract"),
        )

    async def test_facts_describe_the_host(self, driver: Driver) -> None:
        """A host has processors and memory, a type and a name."""
        facts = await driver.facts()
        assert facts.inventory[VCPU].total > 0
        assert facts.inventory[MEMORY_MB].total > 0
        assert facts.hypervisor_type
        assert facts.hypervisor_hostname

    async def test_a_spawned_guest_runs_whole_under_its_label(self, driver: Driver, small: Instance) -> None:
        """What was spawned is listed with instance, attempt and resources."""
        await driver.prepare(small, 3)
        assert await driver.spawn(small, 3, small.flavor.resources()) is PowerState.RUNNING
        guest = await _guest(driver, small)
        assert guest is not None
        assert (guest.attempt, guest.whole, guest.power_state) == (3, True, PowerState.RUNNING)
        assert guest.resources == small.flavor.resources()
        await driver.destroy(small.uuid)

    async def test_spawning_again_leaves_the_guest_as_it_is(self, driver: Driver, small: Instance) -> None:
        """A repeat looks at the guest: one that was stopped stays stopped."""
        power = _power(driver)
        await driver.prepare(small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        await power.power_off(small.uuid)
        await driver.prepare(small, 1)
        assert await driver.spawn(small, 1, small.flavor.resources()) is PowerState.SHUTDOWN
        await driver.destroy(small.uuid)

    async def test_a_guest_of_another_attempt_is_in_the_way(self, driver: Driver, small: Instance) -> None:
        """There is never more than one guest of an instance on a host."""
        await driver.spawn(small, 1, small.flavor.resources())
        with pytest.raises(DriverError):
            await driver.spawn(small, 2, small.flavor.resources())
        guest = await _guest(driver, small)
        assert guest is not None
        assert guest.attempt == 1
        await driver.destroy(small.uuid)

    async def test_destroy_removes_only_the_attempt_it_names(self, driver: Driver, small: Instance) -> None:
        """The guest of another attempt stays."""
        await driver.spawn(small, 2, small.flavor.resources())
        await driver.destroy(small.uuid, 1)
        assert await _guest(driver, small) is not None
        await driver.destroy(small.uuid, 2)
        assert await _guest(driver, small) is None

    async def test_what_is_gone_stays_gone(self, driver: Driver, small: Instance) -> None:
        """Destroying nothing is no error."""
        await driver.destroy(small.uuid)
        await driver.spawn(small, 1, small.flavor.resources())
        await driver.destroy(small.uuid)
        await driver.destroy(small.uuid)
        assert await _guest(driver, small) is None

    async def test_what_was_prepared_can_be_destroyed(self, driver: Driver, small: Instance) -> None:
        """Disks without a guest are removed too."""
        await driver.prepare(small, 1)
        await driver.destroy(small.uuid, 1)
        assert await _guest(driver, small) is None

    async def test_power_follows_what_was_asked(self, driver: Driver, small: Instance) -> None:
        """Stop and start may be repeated; a reboot ends with a guest that runs."""
        power = _power(driver)
        await driver.spawn(small, 1, small.flavor.resources())
        for _ in range(2):
            assert await power.power_off(small.uuid) is PowerState.SHUTDOWN
        for _ in range(2):
            assert await power.power_on(small.uuid) is PowerState.RUNNING
        assert await power.reboot(small.uuid, hard=False) is PowerState.RUNNING
        await power.power_off(small.uuid)
        assert await power.reboot(small.uuid, hard=True) is PowerState.RUNNING
        await driver.destroy(small.uuid)

    async def test_power_of_nothing_is_not_found(self, driver: Driver, small: Instance) -> None:
        """A missing guest is said by the error's name."""
        power = _power(driver)
        for operation in (power.power_on, power.power_off):
            with pytest.raises(DriverError) as raised:
                await operation(small.uuid)
            assert raised.value.error == "InstanceNotFound"
        with pytest.raises(DriverError) as raised:
            await power.reboot(small.uuid, hard=True)
        assert raised.value.error == "InstanceNotFound"

    async def test_password_and_files_are_in_the_guest_and_go_with_it(self, driver: Driver, small: Instance) -> None:
        """They are there when `spawn` returns, a repeat of it without them leaves them, and nothing shows them."""
        contents = GuestContents(admin_password="of the guest", files=(GuestFile(path="/etc/motd", contents=b"\0hi"),))
        await driver.prepare(small, 1)
        await driver.spawn(small, 1, small.flavor.resources(), None, contents)
        assert self.inside(driver, small.uuid) == contents
        await driver.spawn(small, 1, small.flavor.resources())
        assert self.inside(driver, small.uuid) == contents
        assert "of the guest" not in repr(await driver.guests())
        await driver.destroy(small.uuid, 1)
        assert self.inside(driver, small.uuid) is None

    async def test_guests_are_apart(self, driver: Driver, small: Instance) -> None:
        """What happens to one guest does not touch another."""
        other = msgspec.structs.replace(small, uuid=InstanceUuid(new_uuid()), name="other")
        await driver.spawn(small, 1, small.flavor.resources())
        await driver.spawn(other, 1, other.flavor.resources())
        await driver.destroy(small.uuid)
        assert await _guest(driver, other) is not None
        await driver.destroy(other.uuid)


async def _guest(driver: Driver, instance: Instance) -> Guest | None:
    return next((guest for guest in await driver.guests() if guest.instance == instance.uuid), None)


def _power(driver: Driver) -> PowerDriver:
    if not isinstance(driver, PowerDriver):
        pytest.skip("this driver lacks the capability `power`")
    return driver
