"""A process with the driver of a host whose guests have ports of Neutron, as an agent has it:
`python -m tests.support.plugged_guest DIRECTORY IMAGE OPTIONS`.

Each line of standard input is a task, and is answered by a line; at its end the guest is removed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from skep.compute.drivers.base import ImageDriver, PowerDriver
from skep.compute.drivers.libvirt.driver import LibvirtDriver
from skep.domain.images import Image
from skep.domain.vifs import Vif
from tests.support.agents import instance
from tests.support.libvirt_hosts import libvirt_driver


class PortTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done: `boot`, `off`, `on`, `destroy`; `attach` and `detach` one more port."""

    do: str
    vif: Vif | None = None


async def do(driver: LibvirtDriver, image: Path, task: PortTask) -> None:
    """Do one task."""
    assert isinstance(driver, PowerDriver)
    server = instance()
    if task.do == "boot":
        assert isinstance(driver, ImageDriver)
        assert task.vif is not None
        flavor = msgspec.structs.replace(server.flavor, memory_mb=128, vcpus=1, root_gb=1)
        described = Image(id="i", disk_format="qcow2")
        wanted = msgspec.structs.replace(server, flavor=flavor, vifs=(task.vif,), image=described)
        for resource in driver.plan(wanted, 1):
            if resource.from_image:
                await driver.prepare_from(wanted, 1, resource, image)
            else:
                await driver.prepare(wanted, 1, resource)
        await driver.spawn(wanted, 1, flavor.resources())
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


async def main(directory: Path, image: Path, options: dict[str, Any]) -> None:
    """Do tasks until there are no more."""
    driver = libvirt_driver(directory, options)
    assert isinstance(driver, LibvirtDriver)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await do(driver, image, msgspec.json.decode(line, type=PortTask))
        sys.stdout.write("done\n")
        sys.stdout.flush()
    for guest in await driver.guests():
        await driver.destroy(guest.instance, guest.attempt)
    driver.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])))
