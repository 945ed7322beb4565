"""What every driver must do: inherit `DriverContract` in a test module and give it a `driver` fixture.

The suite makes guests of its own with random ids, so it may run on a host that has others.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import (
    ConfigDriveDriver,
    ConsoleOutputDriver,
    CrashDumpDriver,
    DiagnosticsDriver,
    Driver,
    DriverError,
    Guest,
    ImageDriver,
    MoveDriver,
    PasswordDriver,
    PauseDriver,
    PowerDriver,
    RebuildDriver,
    RescueDriver,
    SerialConsoleDriver,
    SnapshotDriver,
    SuspendDriver,
    VncConsoleDriver,
)
from skep.compute.drivers.capabilities import PROTOCOLS
from skep.compute.drivers.contents import GuestContents, GuestFile
from skep.compute.drivers.volumes import VolumeExtendDriver
from skep.contracts.eventually import PATIENCE
from skep.contracts.host_networks import HostNetworksContract
from skep.contracts.interfaces_of_guests import InterfacesOfGuestsContract
from skep.contracts.live_migrations import LiveMigrationContract
from skep.contracts.live_migrations import guest_of as _guest
from skep.contracts.live_migrations import prepare as _prepare
from skep.contracts.live_migrations import remove as _remove
from skep.contracts.volumes_of_guests import VolumesOfGuestsContract
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, UserId, new_uuid
from skep.domain.images import Image
from skep.domain.instances import Instance, PowerState
from skep.domain.providers import Allocation, CellShare
from skep.domain.questions import MOST_BYTES
from skep.domain.resources import MEMORY_MB, VCPU
from skep.domain.volumes import ExtendedVolume


class DriverContract(LiveMigrationContract, HostNetworksContract, VolumesOfGuestsContract, InterfacesOfGuestsContract):
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

    def disk(self, driver: Driver, instance: InstanceUuid, attempt: int) -> bytes | None:  # noqa: ARG002
        """Return the bytes of the disk of a guest; None where a test cannot look at them."""
        return None

    def config_drive(self, driver: Driver, instance: InstanceUuid, attempt: int) -> dict[str, bytes] | None:  # noqa: ARG002
        """Return the files on the config drive of an attempt by their paths; None: it has none.

        Where a test cannot look at it, what is said of it is not tried.
        """
        pytest.skip("nothing looks at the config drives of this driver")

    async def restarted(self, driver: Driver) -> Driver:  # noqa: ARG002
        """Close the driver and return another one over the same hypervisor, as a restarted agent has it.

        The fixture closes the driver that was returned last.
        """
        pytest.skip("this driver cannot be restarted in a test")

    def hanging(self, driver: Driver, instance: Instance) -> Driver:  # noqa: ARG002
        """Return the driver, in which the spawning of this instance never ends. Where none can hang it is not tried."""
        pytest.skip("nothing hangs in this driver")

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
        await _prepare(driver, small, 3)
        assert await driver.spawn(small, 3, small.flavor.resources()) is PowerState.RUNNING
        guest = await _guest(driver, small)
        assert guest is not None
        assert (guest.attempt, guest.whole, guest.power_state) == (3, True, PowerState.RUNNING)
        assert guest.resources == small.flavor.resources()
        await driver.destroy(small.uuid)

    async def test_spawning_again_leaves_the_guest_as_it_is(self, driver: Driver, small: Instance) -> None:
        """A repeat looks at the guest: one that was stopped stays stopped."""
        power = _power(driver)
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        await power.power_off(small.uuid)
        await _prepare(driver, small, 1)
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
        """Resources without a guest are removed too."""
        await _prepare(driver, small, 1)
        await _remove(driver, small, 1)
        assert await _guest(driver, small) is None

    async def test_a_plan_touches_nothing_and_names_each_resource_once(self, driver: Driver, small: Instance) -> None:
        """It is asked before anything is written down, and says the same again."""
        plan = driver.plan(small, 1)
        assert len({resource.name for resource in plan}) == len(plan)
        assert driver.plan(small, 1) == plan
        assert await _guest(driver, small) is None

    async def test_what_was_never_made_can_be_undone(self, driver: Driver, small: Instance) -> None:
        """The agent may die between its journal and the making: it undoes all that the journal names."""
        for resource in driver.plan(small, 1):
            await driver.undo(small.uuid, 1, resource)
        assert await _guest(driver, small) is None

    async def test_making_and_undoing_may_be_repeated_and_interrupted(self, driver: Driver, small: Instance) -> None:
        """A plan that was half made is undone whole, and made anew after that."""
        plan = await _prepare(driver, small, 1)
        await _prepare(driver, small, 1)
        for _ in range(2):
            for resource in reversed(plan):
                await driver.undo(small.uuid, 1, resource)
        for resource in plan[: len(plan) // 2]:
            await driver.prepare(small, 1, resource)
        for resource in reversed(plan):
            await driver.undo(small.uuid, 1, resource)
        await _prepare(driver, small, 1)
        assert await driver.spawn(small, 1, small.flavor.resources()) is PowerState.RUNNING
        await _remove(driver, small, 1)

    async def test_undoing_one_attempt_leaves_the_guest_of_another(self, driver: Driver, small: Instance) -> None:
        """Resources bear their attempt."""
        await _prepare(driver, small, 1)
        plan = await _prepare(driver, small, 2)
        await driver.spawn(small, 2, small.flavor.resources())
        for resource in reversed(driver.plan(small, 1)):
            await driver.undo(small.uuid, 1, resource)
        guest = await _guest(driver, small)
        assert guest is not None
        assert (guest.attempt, guest.whole, guest.power_state) == (2, True, PowerState.RUNNING)
        assert plan == driver.plan(small, 2)
        await _remove(driver, small, 2)

    @pytest.mark.parametrize("turns", range(4))
    async def test_what_an_interrupted_spawn_left_is_listed_and_can_be_removed(
        self, driver: Driver, small: Instance, turns: int
    ) -> None:
        """The agent may stop at any moment: a guest that is not whole says so, and is in nobody's way once removed."""
        await _prepare(driver, small, 1)
        spawning = asyncio.create_task(_spawn(driver, small, 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        spawning.cancel()
        await asyncio.wait([spawning])
        left = await _guest(driver, small)
        if left is not None:
            assert left.attempt == 1
            assert left.whole or left.power_state is not PowerState.RUNNING
        await _remove(driver, small, 1)
        assert await _guest(driver, small) is None
        await _prepare(driver, small, 2)
        assert await driver.spawn(small, 2, small.flavor.resources()) is PowerState.RUNNING
        await _remove(driver, small, 2)

    async def test_a_guest_tells_the_allocation_that_it_was_made_with(self, driver: Driver, small: Instance) -> None:
        """A driver that was not told of one says that of none; it makes up nothing."""
        allocation = Allocation(cells=(CellShare(cell=0, shared=1, memory_mb=64),))
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources(), allocation)
        guest = await _guest(driver, small)
        assert guest is not None
        assert guest.allocation in (None, allocation)
        await _remove(driver, small, 1)
        await _prepare(driver, small, 2)
        await driver.spawn(small, 2, small.flavor.resources())
        guest = await _guest(driver, small)
        assert guest is not None
        assert guest.allocation is None
        await _remove(driver, small, 2)

    async def test_guests_outlive_the_agent(self, driver: Driver, small: Instance) -> None:
        """Another run of the driver finds them as they were, and can remove them with all that was prepared."""
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        before = await _guest(driver, small)
        again = await self.restarted(driver)
        assert await _guest(again, small) == before
        await _prepare(again, small, 1)
        assert await again.spawn(small, 1, small.flavor.resources()) is PowerState.RUNNING
        await _remove(again, small, 1)
        assert await _guest(again, small) is None

    async def test_a_server_that_hangs_holds_no_other_one(self, driver: Driver, small: Instance) -> None:
        """While the guest of one server is being made, others are made, listed and removed."""
        other = msgspec.structs.replace(small, uuid=InstanceUuid(new_uuid()), name="other")
        hanging = self.hanging(driver, small)
        await _prepare(hanging, small, 1)
        spawning = asyncio.create_task(_spawn(hanging, small, 1))
        await asyncio.sleep(0)
        await _prepare(hanging, other, 1)
        assert await hanging.spawn(other, 1, other.flavor.resources()) is PowerState.RUNNING
        assert await _guest(hanging, other) is not None
        await _remove(hanging, other, 1)
        assert not spawning.done()
        spawning.cancel()
        await asyncio.wait([spawning])
        await _remove(hanging, small, 1)
        assert await _guest(hanging, small) is None

    def test_each_capability_is_had_whole_or_not_at_all(self, driver: Driver) -> None:
        """Half a protocol is none: what is missing would be found out in the middle of an action."""
        for capability, protocol in PROTOCOLS.items():
            operations = {name for name in vars(protocol) if not name.startswith("_")}
            there = {name for name in operations if hasattr(driver, name)}
            assert there in (set(), operations), capability

    async def test_a_disk_is_made_from_the_bytes_of_the_image(
        self, driver: Driver, small: Instance, tmp_path: Path
    ) -> None:
        """It may be made anew, needs the file no more once it is made, and does not change it."""
        if not isinstance(driver, ImageDriver):
            pytest.skip("this driver lacks the capability `image`")
        file = tmp_path / "image"
        file.write_bytes(b"\0boot" * 100)
        file.chmod(0o400)
        small = msgspec.structs.replace(small, image=Image(id=new_uuid(), size=500))
        plan = driver.plan(small, 1)
        assert any(resource.from_image for resource in plan)
        for _ in range(2):
            for resource in plan:
                if resource.from_image:
                    await driver.prepare_from(small, 1, resource, file)
                else:
                    await driver.prepare(small, 1, resource)
        assert file.read_bytes() == b"\0boot" * 100
        file.unlink()
        assert await driver.spawn(small, 1, small.flavor.resources()) is PowerState.RUNNING
        disk = self.disk(driver, small.uuid, 1)
        assert disk is None or disk.startswith(b"\0boot" * 100)
        for _ in range(2):
            await _remove(driver, small, 1)
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

    async def test_pause_and_unpause_may_be_repeated(self, driver: Driver, small: Instance) -> None:
        """A paused guest is listed as such, goes on when it is told to, and may be destroyed."""
        if not isinstance(driver, PauseDriver):
            pytest.skip("this driver lacks the capability `pause`")
        await driver.spawn(small, 1, small.flavor.resources())
        for _ in range(2):
            assert await driver.pause(small.uuid) is PowerState.PAUSED
        guest = await _guest(driver, small)
        assert guest is not None
        assert guest.power_state is PowerState.PAUSED
        for _ in range(2):
            assert await driver.unpause(small.uuid) is PowerState.RUNNING
        await driver.pause(small.uuid)
        await driver.destroy(small.uuid)
        with pytest.raises(DriverError) as raised:
            await driver.pause(small.uuid)
        assert raised.value.error == "InstanceNotFound"

    async def test_suspend_and_resume_may_be_repeated(self, driver: Driver, small: Instance) -> None:
        """A suspended guest is listed as such, goes on when it is told to, and may be destroyed."""
        if not isinstance(driver, SuspendDriver):
            pytest.skip("this driver lacks the capability `suspend`")
        await driver.spawn(small, 1, small.flavor.resources())
        for _ in range(2):
            assert await driver.suspend(small.uuid) is PowerState.SUSPENDED
        guest = await _guest(driver, small)
        assert guest is not None
        assert guest.power_state is PowerState.SUSPENDED
        for _ in range(2):
            assert await driver.resume(small.uuid) is PowerState.RUNNING
        await driver.suspend(small.uuid)
        await driver.destroy(small.uuid)
        with pytest.raises(DriverError) as raised:
            await driver.suspend(small.uuid)
        assert raised.value.error == "InstanceNotFound"

    async def test_a_guest_that_is_put_aside_leaves_its_disk_to_another_attempt(
        self, driver: Driver, small: Instance
    ) -> None:
        """Each step may be repeated; the first attempt stays as it was, the second has another flavor (a resize)."""
        if not isinstance(driver, MoveDriver):
            pytest.skip("this driver lacks the capability `move`")
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        before = self.disk(driver, small.uuid, 1)
        assert await driver.put_aside(small.uuid, 1) is PowerState.RUNNING
        assert await driver.put_aside(small.uuid, 1) is PowerState.NOSTATE
        assert await _guest(driver, small) is None
        flavor = msgspec.structs.replace(small.flavor, vcpus=2)
        larger = msgspec.structs.replace(small, flavor=flavor)
        for _ in range(2):
            await driver.receive(larger, 2, await driver.kept(small.uuid, 1))
        for _ in range(2):
            assert await driver.take_up(larger, 2, flavor.resources(), start=False) is PowerState.SHUTDOWN
        guest = await _guest(driver, small)
        assert guest is not None
        assert (guest.attempt, guest.whole, guest.power_state) == (2, True, PowerState.SHUTDOWN)
        assert guest.resources == flavor.resources()
        with pytest.raises(DriverError):
            await driver.take_up(small, 1, small.flavor.resources(), start=True)
        await _remove(driver, small, 2)
        assert await driver.take_up(small, 1, small.flavor.resources(), start=True) is PowerState.RUNNING
        assert self.disk(driver, small.uuid, 1) == before
        await _remove(driver, small, 1)
        assert await _guest(driver, small) is None

    async def test_a_config_drive_is_made_anew_and_goes_with_its_attempt(self, driver: Driver, small: Instance) -> None:
        """It holds what it was made with last, also while its guest is put aside; nothing of it is left afterwards."""
        if not isinstance(driver, ConfigDriveDriver):
            pytest.skip("this driver lacks the capability `config_drive`")
        first, second = {"a/b": b"1", "a/c": b""}, {"a/b": b"2"}
        await _prepare(driver, small, 1)
        await driver.write_config_drive(small.uuid, 1, first)
        assert self.config_drive(driver, small.uuid, 1) == first
        await driver.write_config_drive(small.uuid, 1, second)
        await driver.spawn(small, 1, small.flavor.resources())
        assert self.config_drive(driver, small.uuid, 1) == second
        if isinstance(driver, RebuildDriver):
            await driver.put_aside(small.uuid, 1)
            assert self.config_drive(driver, small.uuid, 1) == second
            await driver.take_up(small, 1, small.flavor.resources(), start=True)
        await _remove(driver, small, 1)
        assert self.config_drive(driver, small.uuid, 1) is None
        await _prepare(driver, small, 2)
        await driver.write_config_drive(small.uuid, 2, first)
        for resource in driver.plan(small, 2):
            await driver.undo(small.uuid, 2, resource)
        assert self.config_drive(driver, small.uuid, 2) is None

    async def test_what_was_in_a_guest_goes_with_its_disk(self, driver: Driver, small: Instance) -> None:
        """A password that was given at the build is there after the move, and gone with the last attempt."""
        if not isinstance(driver, MoveDriver):
            pytest.skip("this driver lacks the capability `move`")
        contents = GuestContents(admin_password="of the guest")
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources(), None, contents)
        assert self.inside(driver, small.uuid) == contents
        await driver.put_aside(small.uuid, 1)
        await driver.receive(small, 2, await driver.kept(small.uuid, 1))
        await driver.take_up(small, 2, small.flavor.resources(), start=True)
        await _remove(driver, small, 1)
        assert self.inside(driver, small.uuid) == contents
        await _remove(driver, small, 2)
        assert self.inside(driver, small.uuid) is None

    async def test_disks_that_were_never_made_make_no_guest(self, driver: Driver, small: Instance) -> None:
        """A guest without its disk is none."""
        if not isinstance(driver, MoveDriver):
            pytest.skip("this driver lacks the capability `move`")
        with pytest.raises(DriverError):
            await driver.take_up(small, 1, small.flavor.resources(), start=True)
        assert await _guest(driver, small) is None

    async def test_a_snapshot_is_the_disk_and_leaves_the_guest_as_it_was(
        self, driver: Driver, small: Instance, tmp_path: Path
    ) -> None:
        """Whether the guest runs or not; what is not there has none."""
        if not isinstance(driver, SnapshotDriver):
            pytest.skip("this driver lacks the capability `snapshot`")
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        for number, leave in enumerate([None, *_ways_to_leave(driver, small)]):
            if leave is not None:
                await leave()
            before = await _guest(driver, small)
            assert before is not None
            file = tmp_path / str(number)
            assert await driver.snapshot(small.uuid, "raw", file) is before.power_state
            assert await _guest(driver, small) == before
            disk = self.disk(driver, small.uuid, 1)
            assert disk is None or file.read_bytes().startswith(disk)
        await _remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await driver.snapshot(small.uuid, "raw", tmp_path / "none")
        assert raised.value.error == "InstanceNotFound"

    def rescue_disk(self, driver: Driver, instance: InstanceUuid, attempt: int) -> bytes | None:  # noqa: ARG002
        """Return the bytes of the rescue disk of a guest; None where it has none, or a test cannot look at it."""
        return None

    async def test_a_rescued_guest_boots_from_another_disk_and_keeps_its_own(
        self, driver: Driver, small: Instance, tmp_path: Path
    ) -> None:
        """Also from off, and again; what is in it stays, and the file of the image is not changed."""
        rescue = _rescuer(driver)
        contents = GuestContents(admin_password="of the guest")
        file = tmp_path / "image"
        file.write_bytes(b"rescue" * 100)
        file.chmod(0o400)
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources(), None, contents)
        before, disk = await _guest(driver, small), self.disk(driver, small.uuid, 1)
        assert before is not None
        for leave in (None, *_ways_to_leave(driver, small)[-1:], None):
            if leave is not None:
                await leave()
            told = GuestContents(admin_password="of the rescue")
            assert await rescue.rescue(small.uuid, file, told) is PowerState.RUNNING
            assert await _guest(driver, small) == msgspec.structs.replace(before, rescued=True)
            assert self.rescue_disk(driver, small.uuid, 1) in (None, b"rescue" * 100)
            assert self.disk(driver, small.uuid, 1) == disk
        for _ in range(2):
            assert await rescue.unrescue(small.uuid) is PowerState.RUNNING
            assert await _guest(driver, small) == before
            assert self.rescue_disk(driver, small.uuid, 1) is None
        assert (self.disk(driver, small.uuid, 1), file.read_bytes()) == (disk, b"rescue" * 100)
        assert self.inside(driver, small.uuid) == contents
        assert await rescue.rescue(small.uuid) is PowerState.RUNNING
        await _remove(driver, small, 1)
        assert self.rescue_disk(driver, small.uuid, 1) is None
        for operation in (rescue.rescue, rescue.unrescue):
            with pytest.raises(DriverError) as raised:
                await operation(small.uuid)
            assert raised.value.error == "InstanceNotFound"

    async def test_what_ends_a_rescue_and_what_does_not(self, driver: Driver, small: Instance) -> None:
        """Stopping and a hard reboot end it; a soft one, and another run of the driver, leave it."""
        power, rescue = _power(driver), _rescuer(driver)
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        for end in (partial(power.power_off, small.uuid), partial(power.reboot, small.uuid, hard=True)):
            await rescue.rescue(small.uuid)
            await power.reboot(small.uuid, hard=False)
            assert (await _one(driver, small)).rescued
            left = await end()
            assert await _one(driver, small) == msgspec.structs.replace(
                await _one(driver, small), rescued=False, power_state=left
            )
            assert self.rescue_disk(driver, small.uuid, 1) is None
        await power.power_off(small.uuid)
        assert await rescue.unrescue(small.uuid) is PowerState.RUNNING, "one that is not rescued is started"
        await rescue.rescue(small.uuid)
        again = await self.restarted(driver)
        assert (await _one(again, small)).rescued
        await _remove(again, small, 1)

    async def test_the_console_of_a_guest_is_told_within_bounds(self, driver: Driver, small: Instance) -> None:
        """Also of one that is off; of what is not there, nothing."""
        if not isinstance(driver, ConsoleOutputDriver):
            pytest.skip("this driver lacks the capability `console_output`")
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        if isinstance(driver, PowerDriver):
            await driver.power_off(small.uuid)
        whole = await driver.console_output(small.uuid, 1 << 20)
        for most in (0, 1, 10):
            assert len(await driver.console_output(small.uuid, most)) <= most
        assert len(whole) <= 1 << 20
        await _remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await driver.console_output(small.uuid, 10)
        assert raised.value.error == "InstanceNotFound"

    async def test_diagnostics_are_of_guests_that_run(self, driver: Driver, small: Instance) -> None:
        """One that is off is measured no more."""
        if not isinstance(driver, DiagnosticsDriver):
            pytest.skip("this driver lacks the capability `diagnostics`")
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        found = await driver.diagnostics(small.uuid)
        assert found.driver
        assert len(found.cpus) in (0, small.flavor.vcpus)
        assert len(msgspec.json.encode(found)) < MOST_BYTES
        if isinstance(driver, PowerDriver):
            await driver.power_off(small.uuid)
            with pytest.raises(DriverError) as raised:
                await driver.diagnostics(small.uuid)
            assert raised.value.error == "InstanceNotRunning"
        await _remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await driver.diagnostics(small.uuid)
        assert raised.value.error == "InstanceNotFound"

    async def test_a_serial_line_is_of_a_guest_that_runs(self, driver: Driver, small: Instance) -> None:
        """It ends when it is given back, and two of one guest do not disturb each other."""
        if not isinstance(driver, SerialConsoleDriver):
            pytest.skip("this driver lacks the capability `serial_console`")
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        first, second = await driver.serial_line(small.uuid), await driver.serial_line(small.uuid)
        await first.close()
        await first.close()
        await second.write(b"\r")
        async with asyncio.timeout(PATIENCE):
            assert await second.read()
            while await first.read():
                continue
        if isinstance(driver, PowerDriver):
            await driver.power_off(small.uuid)
            with pytest.raises(DriverError) as raised:
                await driver.serial_line(small.uuid)
            assert raised.value.error == "InstanceNotRunning"
        await second.close()
        await _remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await driver.serial_line(small.uuid)
        assert raised.value.error == "InstanceNotFound"

    async def test_a_screen_is_of_a_guest_that_runs(self, driver: Driver, small: Instance) -> None:
        """Each connection begins with the greeting of RFB; one that is given back ends, and the others do not."""
        if not isinstance(driver, VncConsoleDriver):
            pytest.skip("this driver lacks the capability `vnc_console`")
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        first, second = await driver.vnc_line(small.uuid), await driver.vnc_line(small.uuid)
        await first.close()
        await first.close()
        async with asyncio.timeout(PATIENCE):
            assert (await second.read()).startswith(b"RFB 003.")
            while await first.read():
                continue
        if isinstance(driver, PowerDriver):
            await driver.power_off(small.uuid)
            with pytest.raises(DriverError) as raised:
                await driver.vnc_line(small.uuid)
            assert raised.value.error == "InstanceNotRunning"
        await second.close()
        await _remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await driver.vnc_line(small.uuid)
        assert raised.value.error == "InstanceNotFound"

    async def test_a_password_can_be_changed_while_the_guest_runs(self, driver: Driver, small: Instance) -> None:
        """Again and again, files stay, a guest that is off or not there has the old one, and nothing shows it."""
        if not isinstance(driver, PasswordDriver):
            pytest.skip("this driver lacks the capability `password`")
        contents = GuestContents(admin_password="first", files=(GuestFile(path="/etc/motd", contents=b"\0hi"),))
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources(), None, contents)
        assert self.inside(driver, small.uuid) == contents
        for _ in range(2):
            assert await driver.set_password(small.uuid, "second") is PowerState.RUNNING
            assert self.inside(driver, small.uuid) == msgspec.structs.replace(contents, admin_password="second")
        assert "second" not in repr(await driver.guests())
        if isinstance(driver, PowerDriver):
            await driver.power_off(small.uuid)
            with pytest.raises(DriverError) as raised:
                await driver.set_password(small.uuid, "third")
            assert raised.value.error == "InstanceNotRunning"
            assert self.inside(driver, small.uuid) == msgspec.structs.replace(contents, admin_password="second")
        await _remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await driver.set_password(small.uuid, "third")
        assert raised.value.error == "InstanceNotFound"

    async def test_a_guest_that_runs_can_be_made_to_crash(self, driver: Driver, small: Instance) -> None:
        """It stays under its label, and may crash again; one that is off or not there does not crash."""
        if not isinstance(driver, CrashDumpDriver):
            pytest.skip("this driver lacks the capability `crash_dump`")
        await _prepare(driver, small, 1)
        await driver.spawn(small, 1, small.flavor.resources())
        for _ in range(2):
            left = await driver.trigger_crash_dump(small.uuid)
            guest = await _guest(driver, small)
            assert guest is not None
            assert (guest.attempt, guest.whole, guest.power_state) == (1, True, left)
        if isinstance(driver, PowerDriver):
            await driver.power_off(small.uuid)
            with pytest.raises(DriverError) as raised:
                await driver.trigger_crash_dump(small.uuid)
            assert raised.value.error == "InstanceNotRunning"
        await _remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await driver.trigger_crash_dump(small.uuid)
        assert raised.value.error == "InstanceNotFound"

    async def test_a_guest_is_told_of_a_volume_that_has_grown(self, driver: Driver, small: Instance) -> None:
        """Once more is no error, and the guest is as it was."""
        if not isinstance(driver, VolumeExtendDriver):
            pytest.skip("this driver lacks the capability `extend_volume`")
        await _prepare(driver, small, 1)
        left = await driver.spawn(small, 1, small.flavor.resources())
        before = await driver.guests()
        grown = ExtendedVolume(device="/dev/vdb", volume_id="volume-1", attachment_id="attachment-1", size=2)
        for _ in range(2):
            assert await driver.extend_volume(small.uuid, (grown,)) is left
        assert await driver.guests() == before
        await _remove(driver, small, 1)
        with pytest.raises(DriverError) as raised:
            await driver.extend_volume(small.uuid, (grown,))
        assert raised.value.error == "InstanceNotFound"

    async def test_password_and_files_are_in_the_guest_and_go_with_it(self, driver: Driver, small: Instance) -> None:
        """They are there when `spawn` returns, a repeat of it without them leaves them, and nothing shows them."""
        contents = GuestContents(admin_password="of the guest", files=(GuestFile(path="/etc/motd", contents=b"\0hi"),))
        await _prepare(driver, small, 1)
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


async def _one(driver: Driver, instance: Instance) -> Guest:
    guest = await _guest(driver, instance)
    assert guest is not None
    return guest


def _rescuer(driver: Driver) -> RescueDriver:
    if not isinstance(driver, RescueDriver):
        pytest.skip("this driver lacks the capability `rescue`")
    return driver


def _ways_to_leave(driver: Driver, instance: Instance) -> list[Callable[[], Awaitable[PowerState]]]:
    """Return what leaves a guest that runs in another way each, with what starts it again between."""
    ways: list[Callable[[], Awaitable[PowerState]]] = []
    if isinstance(driver, PauseDriver):
        ways += [partial(driver.pause, instance.uuid), partial(driver.unpause, instance.uuid)]
    if isinstance(driver, SuspendDriver):
        ways += [partial(driver.suspend, instance.uuid), partial(driver.resume, instance.uuid)]
    if isinstance(driver, PowerDriver):
        ways += [partial(driver.power_off, instance.uuid)]
    return ways


def _power(driver: Driver) -> PowerDriver:
    if not isinstance(driver, PowerDriver):
        pytest.skip("this driver lacks the capability `power`")
    return driver


async def _spawn(driver: Driver, instance: Instance, attempt: int) -> None:
    await driver.spawn(instance, attempt, instance.flavor.resources())
