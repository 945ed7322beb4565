"""A process with the driver of a host that has networks of its own, as an agent has it:
`python -m tests.support.bridged_guest DIRECTORY IMAGE`.

Each line of standard input is a task, and is answered by a line; at its end the guest is removed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from skep.compute.drivers.base import (
    ConfigDriveDriver,
    DiagnosticsDriver,
    DriverError,
    ImageDriver,
    NetworksDriver,
    PowerDriver,
)
from skep.compute.drivers.libvirt.driver import LibvirtDriver
from skep.compute.drivers.live import Copying, LiveMigrationDriver
from skep.domain.host_networks import HostNetworks, PluggedPort, versioned
from skep.domain.ids import InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.vifs import Vif
from tests.support.agents import instance
from tests.support.libvirt_hosts import libvirt_driver


class GuestTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done: `boot`, `networks`, `measure` (which says so), `reboot` or `destroy`; `suspend` and
    `resume`, `attach` one more port and `detach` it, which say the error if there is one.

    Of a live migration, whose place is `place`: `await`, `leave` and `take`.
    """

    do: str
    port: PluggedPort | None = None
    key: str = ""
    place: str = ""
    networks: HostNetworks | None = None


async def do(driver: LibvirtDriver, image: Path, task: GuestTask) -> None:
    """Do one task."""
    if task.networks is not None:
        await driver.networks(task.networks)
    if task.port is not None and task.do == "boot":
        await boot(driver, image, task.port, task.key)
    if task.port is not None and task.do == "reboot":
        assert isinstance(driver, PowerDriver)
        await driver.reboot(InstanceUuid(task.port.server), hard=True)
    if task.port is not None and task.do in ("suspend", "resume"):
        await rest(driver, InstanceUuid(task.port.server), goes_on=task.do == "resume")
    if task.port is not None and task.do == "destroy":
        await driver.destroy(InstanceUuid(task.port.server), 1)
    if task.port is not None and task.do == "measure":
        assert isinstance(driver, DiagnosticsDriver)
        measured = await driver.diagnostics(InstanceUuid(task.port.server))
        sys.stdout.write(msgspec.json.encode(measured).decode() + "\n")
    if task.port is not None and task.do in ("attach", "detach"):
        await plug(driver, task.port, gives=task.do == "attach")
    if task.port is not None and task.do in ("await", "leave", "take"):
        await migrate(driver, server_of(task.port), task)


async def boot(driver: LibvirtDriver, image: Path, port: PluggedPort, key: str) -> None:
    """Have a guest with one port."""
    assert isinstance(driver, ImageDriver)
    server = server_of(port)
    for resource in driver.plan(server, 1):
        await driver.prepare_from(server, 1, resource, image)
    await write_drive(driver, port, 1, key)
    await driver.spawn(server, 1, server.flavor.resources())


async def rest(driver: LibvirtDriver, server: InstanceUuid, *, goes_on: bool) -> None:
    """Suspend a guest, or have it go on; say the error if there is one."""
    error = ""
    try:
        await (driver.resume(server) if goes_on else driver.suspend(server))
    except DriverError as raised:
        error = raised.error
    sys.stdout.write(f"{error}\n")


async def plug(driver: LibvirtDriver, port: PluggedPort, *, gives: bool) -> None:
    """Give a guest that is there one more port, or take it away; say the error if there is one."""
    server = server_of(port)
    [vif] = server.vifs
    error = ""
    try:
        if gives:
            await driver.attach_interface(server, 1, vif)
        else:
            await driver.detach_interface(server.uuid, 1, vif)
    except DriverError as raised:
        error = raised.error
    sys.stdout.write(f"{error}\n")


async def write_drive(driver: LibvirtDriver, port: PluggedPort, attempt: int, key: str) -> None:
    """Make the config drive of a guest."""
    assert isinstance(driver, ConfigDriveDriver)
    facts: dict[str, Any] = {"hostname": port.host_name, "public_keys": {"mine": key}}
    files = {"openstack/latest/meta_data.json": json.dumps(facts).encode()}
    await driver.write_config_drive(InstanceUuid(port.server), attempt, files)


async def migrate(driver: LibvirtDriver, server: Instance, task: GuestTask) -> None:
    """Do one part of a live migration, from attempt 1 to attempt 2."""
    assert isinstance(driver, LiveMigrationDriver)
    has, place = server.flavor.resources(), Path(task.place)
    if task.do == "await":
        assert task.port is not None
        await write_drive(driver, task.port, 2, task.key)
        await driver.await_guest(server, 2, has, None, place)
    elif task.do == "leave":
        await driver.copy_guest(server.uuid, 1, place, Copying())
        await driver.hand_over(server.uuid, 1, place)
    else:
        await driver.take_over(server, 2, has, None, place, start=True)


def server_of(port: PluggedPort) -> Instance:
    """Return a server with one port."""
    flavor = msgspec.structs.replace(instance().flavor, memory_mb=128, vcpus=1, root_gb=1)
    vif = Vif(id=port.id, mac_address=port.mac_address, network_id="n", network_name="inside", mtu=1400)
    described = Image(id="i", disk_format="qcow2")
    return msgspec.structs.replace(
        instance(), uuid=InstanceUuid(port.server), flavor=flavor, vifs=(vif,), image=described
    )


async def main(directory: Path, image: Path, options: dict[str, Any]) -> None:
    """Do tasks until there are no more."""
    driver = libvirt_driver(directory, options)
    assert isinstance(driver, LibvirtDriver)
    assert isinstance(driver, NetworksDriver)
    assert driver.wants_networks
    while line := await asyncio.to_thread(sys.stdin.readline):
        await do(driver, image, msgspec.json.decode(line, type=GuestTask))
        sys.stdout.write("done\n")
        sys.stdout.flush()
    for guest in await driver.guests():
        await driver.destroy(guest.instance, guest.attempt)
    await driver.networks(versioned(HostNetworks()))
    driver.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])))
