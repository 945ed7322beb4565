"""Makes a guest over disks that are there, kept or received, and has it run if it is to."""

from __future__ import annotations

from skep.compute import config_drives, connections
from skep.compute.drivers.base import PowerDriver, RebuildDriver
from skep.compute.host import Host
from skep.compute.move_orders import Result
from skep.domain.builds import BuildFailure, failure
from skep.domain.instances import PowerState
from skep.messages.to_compute import MoveStep


async def made_guest(host: Host, order: MoveStep) -> Result:
    """Make the guest of a step; return how it is then."""
    instance, driver = order.instance, host.driver
    assert isinstance(driver, RebuildDriver)
    failed = await config_drives.write(host, instance, order.attempt)
    if failed is None:
        failed = await connections.connect(host, instance, order.attempt, order.context)
    if failed is not None:
        return failed
    taking = driver.take_up(instance, order.attempt, order.resources, order.allocation, start=order.start)
    made = await host.calls.change("spawn", taking, instance.uuid)
    if made is PowerState.RUNNING or isinstance(made, BuildFailure) or not order.start:
        return made
    # It was there, and had been stopped: a step before this was interrupted.
    if not isinstance(driver, PowerDriver):
        return failure("SpawnFailed", f"the guest is {made.name.lower()}, and host {host.name} cannot start it")
    return await host.calls.change("action", driver.power_on(instance.uuid), instance.uuid)
