"""A process that has a libvirt of its own inside, as an agent does: `python -m tests.support.libvirt_agent ...`.

`spawn DIRECTORY UUID` makes a guest, says so and waits to be killed; `adopt DIRECTORY` says what guests it finds, stops
and removes them.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from skep.compute.drivers.base import PowerDriver
from skep.domain.ids import InstanceUuid
from tests.support.agents import instance
from tests.support.libvirt_hosts import libvirt_driver


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def spawn(directory: Path, uuid: InstanceUuid) -> None:
    """Make a guest and wait."""
    driver = libvirt_driver(directory)
    server = msgspec.structs.replace(instance(), uuid=uuid, vifs=(), image=None)
    await driver.spawn(server, 7, {"VCPU": 1, "MEMORY_MB": 64})
    say("spawned")
    await asyncio.Event().wait()


async def adopt(directory: Path) -> None:
    """Say what guests there are, and remove them."""
    driver = libvirt_driver(directory)
    for guest in await driver.guests():
        say(f"{guest.instance} {guest.attempt} {guest.power_state.name} {guest.whole}")
        assert isinstance(driver, PowerDriver)
        say((await driver.power_off(guest.instance)).name)
        await driver.destroy(guest.instance, guest.attempt)
    say(str(len(await driver.guests())))
    driver.close()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        asyncio.run(spawn(Path(sys.argv[2]), InstanceUuid(sys.argv[3])))
    else:
        asyncio.run(adopt(Path(sys.argv[2])))
