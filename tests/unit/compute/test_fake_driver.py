from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import os_traits
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.fake import GUESTS_FILE, PLAN, TRAITS, FailureRule, FakeDriver, FakeSettings
from skep.compute.drivers.guest_log import GuestLog, VolumeOnPaper, read_events
from skep.compute.drivers.live import Copying
from skep.domain.instances import PowerState
from skep.domain.volumes import AssistSnapshot, SwapVolume
from tests.support.agents import instance

SMALL = instance()
SNAPSHOT = AssistSnapshot(
    device="/dev/vdb", volume_id="old", attachment_id="of-old", snapshot_id="shot", new_file="second"
)
SWAP = SwapVolume(
    device="/dev/vdb",
    old_volume_id="old",
    old_attachment_id="of-old",
    new_volume_id="new",
    new_attachment_id="of-new",
)
RESOURCES = SMALL.flavor.resources()


def test_its_traits_are_known() -> None:
    assert set(TRAITS) <= set(os_traits.get_traits())


async def test_guests_outlive_the_process(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, "host-1")
    await driver.spawn(SMALL, 1, RESOURCES)
    await driver.power_off(SMALL.uuid)
    # Not closed: a killed process closes nothing.
    again = FakeDriver(tmp_path, "host-1")
    (guest,) = await again.guests()
    assert (guest.whole, guest.power_state, guest.resources) == (True, PowerState.SHUTDOWN, RESOURCES)
    driver.close()
    again.close()


async def test_an_interrupted_spawn_leaves_a_partial_guest_that_can_be_finished(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, "host-1", FakeSettings(spawn_delay=1000.0))
    spawning = asyncio.create_task(driver.spawn(SMALL, 1, RESOURCES))
    await asyncio.sleep(0)
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning
    driver.close()
    again = FakeDriver(tmp_path, "host-1")
    (guest,) = await again.guests()
    assert not guest.whole
    await again.spawn(SMALL, 1, RESOURCES)
    assert [event.event for event in read_events(tmp_path / GUESTS_FILE)] == ["spawn_begun", "spawned"]
    again.close()


async def test_a_torn_last_line_is_cut(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, "host-1")
    await driver.spawn(SMALL, 1, RESOURCES)
    driver.close()
    path = tmp_path / GUESTS_FILE
    path.write_bytes(path.read_bytes()[:-3])
    again = FakeDriver(tmp_path, "host-1")
    (guest,) = await again.guests()
    assert not guest.whole
    await again.destroy(SMALL.uuid)
    again.close()
    assert [event.event for event in read_events(path)] == ["spawn_begun", "destroyed"]
    assert not GuestLog(path).guests


async def test_a_failure_strikes_as_often_and_as_late_as_it_says(tmp_path: Path) -> None:
    rule = FailureRule(operation="prepare", error="Odd", message="so it is", times=2, after=1)
    driver = FakeDriver(tmp_path, "host-1", FakeSettings(failures=(rule,)))
    await driver.prepare(SMALL, 1, PLAN[0])
    for _ in range(2):
        with pytest.raises(DriverError) as raised:
            await driver.prepare(SMALL, 1, PLAN[0])
        assert (raised.value.error, raised.value.message) == ("Odd", "so it is")
    for _ in range(2):
        await driver.prepare(SMALL, 1, PLAN[0])
    driver.close()


@pytest.mark.parametrize(
    ("rule", "strikes"),
    [
        (FailureRule(operation="spawn"), True),
        (FailureRule(operation="spawn", host="host-*"), True),
        (FailureRule(operation="spawn", host="other-*"), False),
        (FailureRule(operation="spawn", server="server-?"), True),
        (FailureRule(operation="spawn", server="web*"), False),
        (FailureRule(operation="destroy"), False),
    ],
)
async def test_a_failure_strikes_whom_its_patterns_name(tmp_path: Path, rule: FailureRule, strikes: bool) -> None:
    driver = FakeDriver(tmp_path, "host-1", FakeSettings(failures=(rule,)))
    if strikes:
        with pytest.raises(DriverError):
            await driver.spawn(SMALL, 1, RESOURCES)
        # As after a real failure, something is left to be cleaned up.
        assert [guest.whole for guest in await driver.guests()] == [False]
    else:
        await driver.spawn(SMALL, 1, RESOURCES)
    driver.close()


OPERATIONS: dict[str, Callable[[FakeDriver], Awaitable[object]]] = {
    "facts": lambda driver: driver.facts(),
    "guests": lambda driver: driver.guests(),
    "power_on": lambda driver: driver.power_on(SMALL.uuid),
    "power_off": lambda driver: driver.power_off(SMALL.uuid),
    "reboot": lambda driver: driver.reboot(SMALL.uuid, hard=True),
    "rescue": lambda driver: driver.rescue(SMALL.uuid),
    "unrescue": lambda driver: driver.unrescue(SMALL.uuid),
    "serial_line": lambda driver: driver.serial_line(SMALL.uuid),
    "vnc_line": lambda driver: driver.vnc_line(SMALL.uuid),
    "console_output": lambda driver: driver.console_output(SMALL.uuid, 100),
    "diagnostics": lambda driver: driver.diagnostics(SMALL.uuid),
    "set_password": lambda driver: driver.set_password(SMALL.uuid, "new"),
    "trigger_crash_dump": lambda driver: driver.trigger_crash_dump(SMALL.uuid),
    "swap_volume": lambda driver: driver.swap_volume(SMALL.uuid, SWAP, Copying()),
    "extend_volume": lambda driver: driver.extend_volume(SMALL.uuid, ()),
    "create_volume_snapshot": lambda driver: driver.create_volume_snapshot(SMALL.uuid, SNAPSHOT),
    "delete_volume_snapshot": lambda driver: driver.delete_volume_snapshot(SMALL.uuid, SNAPSHOT),
    "destroy": lambda driver: driver.destroy(SMALL.uuid),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_every_operation_can_fail(tmp_path: Path, operation: str) -> None:
    driver = FakeDriver(tmp_path, "host-1", FakeSettings(failures=(FailureRule(operation=operation),)))
    await driver.spawn(SMALL, 1, RESOURCES)
    with pytest.raises(DriverError):
        await OPERATIONS[operation](driver)
    driver.close()


async def test_a_closed_file_is_an_error_of_the_driver(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, "host-1")
    driver.close()
    with pytest.raises(DriverError):
        await driver.spawn(SMALL, 1, RESOURCES)
    assert await driver.guests() == ()


@pytest.mark.parametrize("state", ["running", "paused", "off"])
async def test_the_record_of_a_guest_names_the_volume_that_it_uses(tmp_path: Path, state: str) -> None:
    """Also after another process has read it; the guest is as it was, and has not booted."""
    driver = FakeDriver(tmp_path, "host-1")
    await driver.spawn(SMALL, 1, RESOURCES)
    if state != "running":
        await (driver.pause(SMALL.uuid) if state == "paused" else driver.power_off(SMALL.uuid))
    before, said = await driver.guests(), await driver.console_output(SMALL.uuid, 10**6)
    assert driver.uses(SMALL.uuid, SWAP.device) is None
    left = await driver.swap_volume(SMALL.uuid, SWAP, Copying())
    driver.close()
    again = FakeDriver(tmp_path, "host-1")
    used = VolumeOnPaper(device="/dev/vdb", volume_id="new", attachment_id="of-new")
    assert again.uses(SMALL.uuid, SWAP.device) == used
    assert (await again.guests(), await again.console_output(SMALL.uuid, 10**6)) == (before, said)
    assert before[0].power_state is left
    await again.destroy(SMALL.uuid)
    assert again.uses(SMALL.uuid, SWAP.device) is None
    again.close()


async def test_a_guest_that_goes_while_its_volume_is_copied_uses_no_other(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, "host-1", FakeSettings(copy_delay=0.05))
    await driver.spawn(SMALL, 1, RESOURCES)
    copying = asyncio.create_task(driver.swap_volume(SMALL.uuid, SWAP, Copying()))
    await asyncio.sleep(0)
    await driver.destroy(SMALL.uuid)
    with pytest.raises(DriverError) as raised:
        await copying
    assert raised.value.error == "InstanceNotFound"
    assert driver.uses(SMALL.uuid, SWAP.device) is None
    driver.close()
