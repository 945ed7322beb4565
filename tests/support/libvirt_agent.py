"""A process that has a libvirt of its own inside, as an agent does: `python -m tests.support.libvirt_agent ...`.

It is confined as one. `spawn DIRECTORY UUID` makes a guest, says so and waits to be killed; `adopt DIRECTORY` says what
guests it finds, stops and removes them; `copy DIRECTORY UUID` makes a guest, has QEMU begin a copy of its disk that
never ends, and waits to be killed; `copy-again DIRECTORY UUID` makes an image of that guest, then undoes another such
copy as an agent does that starts, and says what is left; `swap DIRECTORY UUID` has a guest that boots from a volume go
on with another one, and says when it is being copied and when that is done; `leave DIRECTORY UUID PLACE URI` hands a
guest of a libvirtd over, which never ends, and says when its memory is being copied.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import libvirt
import msgspec

from skep.compute.drivers.base import PowerDriver, SnapshotDriver
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.rights import kept_rights
from skep.compute.drivers.live import Copying, LiveMigrationDriver
from skep.compute.drivers.volumes import SWAP_ABORTED, OtherVolumeDriver, VolumeDriver, VolumeSwapDriver
from skep.contracts.eventually import eventually
from skep.domain.block_devices import BlockDevice
from skep.domain.ids import InstanceUuid
from skep.domain.volumes import ConnectedVolume, ServerVolume, SwapVolume
from skep.processes import rights
from skep.telemetry import logs
from skep_lab.libvirt_daemons import on_loopback
from tests.support.agents import instance
from tests.support.libvirt_hosts import is_root, libvirt_driver


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


def copies(directory: Path) -> list[Path]:
    """Return the copies of disks that are not whole."""
    return list(directory.glob("guests/*/snapshot.new"))


def begin_copy(directory: Path, uuid: InstanceUuid) -> libvirt.virDomain:
    """Have QEMU copy a disk of a guest as an agent does, but for a reader who never comes; return the domain."""
    root, place = directory / "libvirt", next(directory.glob(f"guests/{uuid}_*"))
    socket = next((root / "lib" / "qemu").glob("domain-*")) / "reader"
    (place / "snapshot.new").touch()
    domain = libvirt.open(f"qemu:///embed?root={root}").lookupByUUIDString(uuid)
    domain.backupBegin(
        f"<domainbackup mode='pull'><server transport='unix' socket='{socket}'/><disks>"
        f"<disk name='vda' backup='yes' type='file'><scratch file='{place}/scratch'/></disk></disks></domainbackup>",
        None,
    )
    return domain


async def copy(directory: Path, uuid: InstanceUuid) -> None:
    """Make a guest, begin a copy of its disk, and wait."""
    driver = libvirt_driver(directory)
    server = msgspec.structs.replace(instance(), uuid=uuid, vifs=(), image=None)
    await driver.spawn(server, 7, {"VCPU": 1, "MEMORY_MB": 64})
    begin_copy(directory, uuid)
    say("copying")
    await asyncio.Event().wait()


async def copy_again(directory: Path, uuid: InstanceUuid) -> None:
    """Make an image where a copy was cut; then undo another one."""
    driver = libvirt_driver(directory)
    assert isinstance(driver, SnapshotDriver)
    say((await driver.snapshot(uuid, "raw", directory / "image")).name)
    domain = begin_copy(directory, uuid)
    driver.on_change(lambda: None)

    async def undone() -> bool:
        return not copies(directory)

    await eventually(undone, "the copy is undone")
    say(str(domain.jobStats()["type"]))
    await driver.destroy(uuid)
    driver.close()


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


async def swap(directory: Path, uuid: InstanceUuid) -> None:
    """Have a guest go on with the volume `new` in place of `old`, files of the directory."""
    driver = libvirt_driver(directory, {"swap_mib_per_second": 4})
    assert isinstance(driver, VolumeDriver)
    assert isinstance(driver, VolumeSwapDriver)
    assert isinstance(driver, OtherVolumeDriver)
    boots = BlockDevice(source_type="volume", destination_type="volume", uuid="old", boot_index=0)
    has = ServerVolume(id="bdm", volume_id="old", attachment_id="of-old", device="/dev/vda", boot_index=0)
    server = msgspec.structs.replace(instance(), uuid=uuid, vifs=(), image=None, volumes=(has,), block_devices=(boots,))
    old, new = (
        ConnectedVolume(
            volume_id=name,
            attachment_id=f"of-{name}",
            device="/dev/vda",
            boot_index=0,
            driver="local",
            data={"device_path": str(directory / name)},
        )
        for name in ("old", "new")
    )
    await driver.connect_volumes(uuid, 7, (old,))
    await driver.spawn(server, 7, {"VCPU": 1, "MEMORY_MB": 64})
    wanted = SwapVolume(
        device="/dev/vda",
        old_volume_id="old",
        old_attachment_id="of-old",
        new_volume_id="new",
        new_attachment_id="of-new",
    )
    await driver.connect_other(uuid, 7, wanted, new)
    copying = Copying(SWAP_ABORTED)
    swapping = asyncio.create_task(driver.swap_volume(uuid, wanted, copying))

    async def copied() -> bool:
        return swapping.done() or (copying.figures is not None and copying.figures.disk_processed > 0)

    await eventually(copied, "the volume is copied")
    say("copying")
    say((await swapping).name)
    driver.close()


async def leave(directory: Path, uuid: InstanceUuid, place: Path, uri: str) -> None:
    """Hand a guest over."""
    driver = libvirt_driver(directory, {**on_loopback(uri), "migration_mib_per_second": 1})
    assert isinstance(driver, LiveMigrationDriver)
    copying = Copying()
    await driver.copy_guest(uuid, 1, place, copying)
    going = asyncio.create_task(driver.hand_over(uuid, 1, place))

    async def copied() -> bool:
        return copying.figures is not None and copying.figures.memory_processed > 0

    await eventually(copied, "memory is copied")
    say("leaving")
    await going


MODES: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "spawn": spawn,
    "adopt": adopt,
    "copy": copy,
    "copy-again": copy_again,
    "leave": leave,
    "swap": swap,
}
KINDS = (Path, InstanceUuid, Path, str)

if __name__ == "__main__":
    # What it logs is on standard error: the test reads what it says.
    logs.configure()
    if is_root():
        rights.keep_only(kept_rights(Options(virt_type="qemu")))
    asyncio.run(MODES[sys.argv[1]](*(kind(said) for kind, said in zip(KINDS, sys.argv[2:], strict=False))))
