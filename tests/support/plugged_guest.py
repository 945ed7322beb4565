"""A process with the driver of a host whose guests have ports of Neutron, as an agent has it:
`python -m tests.support.plugged_guest DIRECTORY IMAGE OPTIONS HOST`.

Each line of standard input is a task, and is answered by a line; at its end the guest is removed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from skep.compute.drivers.base import ConfigDriveDriver, DriverError, ImageDriver, PowerDriver
from skep.compute.drivers.libvirt.driver import LibvirtDriver
from skep.compute.drivers.live import Copying, LiveMigrationDriver
from skep.contracts.live_migrations import remove
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.vifs import Vif
from tests.support.agents import instance
from tests.support.libvirt_hosts import libvirt_driver


class PortTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done: `boot`, `off`, `on`, `destroy`; `attach` and `detach` one more port.

    Of a live migration, whose place is `place`: `await`, `leave`, `take`, and `undo`, which say the error if there is
    one. `key` is the public one of who may log in.
    """

    do: str
    vif: Vif | None = None
    attempt: int = 1
    key: str = ""
    place: str = ""


async def do(driver: LibvirtDriver, image: Path, task: PortTask) -> None:
    """Do one task."""
    assert isinstance(driver, PowerDriver)
    server = instance()
    if task.do == "boot":
        assert isinstance(driver, ImageDriver)
        wanted = server_of(task)
        for resource in driver.plan(wanted, 1):
            if resource.from_image:
                await driver.prepare_from(wanted, 1, resource, image)
            else:
                await driver.prepare(wanted, 1, resource)
        await write_drive(driver, wanted, task)
        await driver.spawn(wanted, 1, wanted.flavor.resources())
    elif task.do in ("await", "leave", "take", "undo"):
        error = ""
        try:
            await migrate(driver, server_of(task), task)
        except DriverError as raised:
            error = f"{raised.error}: {raised.message}"
        sys.stdout.write(f"{error}\n")
    elif task.do == "attach":
        assert task.vif is not None
        await driver.attach_interface(msgspec.structs.replace(server, vifs=(task.vif,)), 1, task.vif)
    elif task.do == "detach":
        assert task.vif is not None
        await driver.detach_interface(server.uuid, 1, task.vif)
    elif task.do == "off":
        await driver.power_off(server.uuid)
    elif task.do == "on":
        await driver.power_on(server.uuid)
    else:
        await driver.destroy(server.uuid, 1)


def server_of(task: PortTask) -> Instance:
    """Return the server, with the port of the task."""
    assert task.vif is not None
    server = instance()
    flavor = msgspec.structs.replace(server.flavor, memory_mb=128, vcpus=1, root_gb=1)
    return msgspec.structs.replace(server, flavor=flavor, vifs=(task.vif,), image=Image(id="i", disk_format="qcow2"))


async def write_drive(driver: LibvirtDriver, server: Instance, task: PortTask) -> None:
    """Make the config drive of a guest that is logged into."""
    if task.key:
        assert isinstance(driver, ConfigDriveDriver)
        facts = {"hostname": "one", "public_keys": {"mine": task.key}}
        files = {"openstack/latest/meta_data.json": json.dumps(facts).encode()}
        await driver.write_config_drive(server.uuid, task.attempt, files)


async def migrate(driver: LibvirtDriver, server: Instance, task: PortTask) -> None:
    """Do one part of a live migration: of the target's attempt, but to `leave`."""
    assert isinstance(driver, LiveMigrationDriver)
    has, place = server.flavor.resources(), Path(task.place)
    if task.do == "await":
        await write_drive(driver, server, task)
        await driver.await_guest(server, task.attempt, has, None, place)
    elif task.do == "leave":
        await driver.copy_guest(server.uuid, task.attempt, place, Copying())
        await driver.hand_over(server.uuid, task.attempt, place)
        await remove(driver, server, task.attempt)
    elif task.do == "take":
        await driver.take_over(server, task.attempt, has, None, place, start=True)
    else:
        await remove(driver, server, task.attempt)


async def main(directory: Path, image: Path, options: dict[str, Any], host: str) -> None:
    """Do tasks until there are no more."""
    driver = libvirt_driver(directory, options, host)
    assert isinstance(driver, LibvirtDriver)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await do(driver, image, msgspec.json.decode(line, type=PortTask))
        sys.stdout.write("done\n")
        sys.stdout.flush()
    for guest in await driver.guests():
        await driver.destroy(guest.instance, guest.attempt)
    driver.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]))
