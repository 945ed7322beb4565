"""A process with the driver of a host in user mode, whose guests have a way out, as a plain user's agent has it:
`python -m tests.support.user_mode_agent DIRECTORY IMAGE KEY`.

Each line of standard input is a task: `boot`, `adopt` (which says what guests there are), `reboot` or `destroy`; it is
answered by a line.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import pwd
import sys
from pathlib import Path

import msgspec

from skep.compute.drivers.base import ConfigDriveDriver, Driver, ImageDriver, PowerDriver
from skep.compute.drivers.libvirt import connection, disks, driver, live, setup, volumes
from skep.compute.drivers.libvirt.options import Options
from skep.domain.ids import InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.vifs import Vif, VifAddress, VifSubnet
from tests.support.agents import instance
from tests.support.libvirt_hosts import is_root, libvirt_driver

LATE = (connection, disks, driver, live, setup, volumes, codecs.lookup("utf-16_be"))
"""What is imported when it is used first: a plain user may not get to root's Python then."""
UUID = InstanceUuid("2f8c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11")
ADDRESS = "10.7.0.77"
PORT = 20077
CLOSED = "198.51.100.0/24"
OPTIONS = {"way_out": "slirp4netns", "ssh_ports": f"{PORT}-{PORT}", "closed_to_guests": [CLOSED], "graphics": "none"}


def server() -> Instance:
    """Return the server: it has one port."""
    flavor = msgspec.structs.replace(instance().flavor, memory_mb=128)
    subnet = VifSubnet(id="s", cidr="10.7.0.0/24", version=4, addresses=(VifAddress(ADDRESS),))
    vif = Vif(
        id="p", mac_address="fa:16:3e:00:00:77", network_id="n", network_name="inside", mtu=1400, subnets=(subnet,)
    )
    image = Image(id="i", disk_format="qcow2")
    return msgspec.structs.replace(instance(), uuid=UUID, flavor=flavor, vifs=(vif,), image=image)


async def boot(host: Driver, image: Path, key: str) -> None:
    """Make the guest."""
    assert isinstance(host, ImageDriver)
    assert isinstance(host, ConfigDriveDriver)
    for resource in host.plan(server(), 1):
        await host.prepare_from(server(), 1, resource, image)
    facts = {"hostname": "one", "public_keys": {"mine": key}}
    await host.write_config_drive(UUID, 1, {"openstack/latest/meta_data.json": json.dumps(facts).encode()})
    await host.spawn(server(), 1, server().flavor.resources())


async def main(directory: Path, image: Path, key: str) -> None:
    """Do tasks until there are no more."""
    host = libvirt_driver(directory, OPTIONS)
    assert isinstance(host, PowerDriver)
    while line := await asyncio.to_thread(sys.stdin.readline):
        task = line.strip()
        if task == "boot":
            await boot(host, image, key)
        elif task == "reboot":
            await host.reboot(UUID, hard=True)
        elif task == "destroy":
            await host.destroy(UUID, 1)
        found = [f"{guest.instance} {guest.power_state.name}" for guest in await host.guests()]
        sys.stdout.write(f"{task}: {found}\n")
        sys.stdout.flush()
    host.close()


def become_plain(directory: Path) -> None:
    """Be a user without rights from now on, to whom the directory belongs."""
    user = pwd.getpwnam(Options(virt_type="qemu").user)
    os.chown(directory, user.pw_uid, user.pw_gid)
    os.environ["HOME"] = str(directory)
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)


if __name__ == "__main__":
    if is_root():
        become_plain(Path(sys.argv[1]))
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
