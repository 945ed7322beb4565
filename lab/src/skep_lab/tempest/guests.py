"""A cloud for the suite whose guests are virtual machines in networks of their host, which the suite logs into."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from skep.compute.drivers.libvirt.bridged import dnsmasq
from skep.compute.drivers.libvirt.bridged.networks import LEASES
from skep.config.sections import Config
from skep_lab.tempest.cloud import Furniture, own_cloud, own_config
from skep_lab.tempest.settings import Surroundings

IMAGE = "tiny.qcow2"
"""In the folder of the run's work: it is made before, where Debian's packages are reached."""
PROPERTIES = {"disk_format": "qcow2", "hw_qemu_guest_agent": "yes"}
FLAVORS = (("tempest.nano", 192, 1), ("tempest.micro", 256, 2))
OPTIONS = {"virt_type": "qemu", "networks": "bridge"}
SECONDS = 400
"""So long the suite waits for a server, in software."""


def prepare(work: Path) -> None:
    """Make the image. Raises Misconfigured for what the machine lacks, OSError."""
    from skep.compute.drivers.libvirt.tiny.image import make  # it imports what may not be installed

    make(work / IMAGE)


@asynccontextmanager
async def guest_surroundings(work: Path) -> AsyncIterator[Surroundings]:
    """Run a cloud with one host of QEMU, and services of its own, as long as the block lasts."""
    furniture = Furniture((work / IMAGE).read_bytes(), PROPERTIES, FLAVORS)
    with _host_directory() as directory:
        async with own_cloud(_with_guests(own_config(work), directory), furniture, hosts=1) as found:
            yield replace(found, logs_in=True, seconds=SECONDS)


def _with_guests(config: Config, directory: Path) -> Config:
    changed = msgspec.structs.replace
    return changed(
        config,
        compute=changed(config.compute, driver="libvirt", driver_options={**OPTIONS, "directory": str(directory)}),
        conductor=changed(config.conductor, allow_resize_to_same_host=True),
        metadata=changed(config.metadata, force_config_drive=True),
    )


@contextmanager
def _host_directory() -> Iterator[Path]:
    """Make a directory that QEMU's user gets to. In the end guests that the suite has left are ended."""
    directory = Path(tempfile.mkdtemp(prefix="skep-", dir="/tmp"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        for process in directory.glob("libvirt/run/qemu/instance-*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.read_text()), signal.SIGKILL)
        dnsmasq.make_so({}, directory / "networks" / LEASES)
        shutil.rmtree(directory)
