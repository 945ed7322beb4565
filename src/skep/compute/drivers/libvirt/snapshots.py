"""The disk of a guest as it is at one moment, copied while the guest goes on.

QEMU copies on when the agent has died, and file systems that stood still in that moment stay so. What is left so is
undone by the next agent when it starts, and before another copy: a guest has one such job at a time.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bases import NEW
from skep.compute.drivers.libvirt.disks import GuestDisks
from skep.compute.drivers.libvirt.domain import target_of
from skep.compute.drivers.libvirt.domains import GuestDomains
from skep.compute.drivers.libvirt.guest_agents import FROZEN, thaw_left
from skep.compute.drivers.libvirt.migration_jobs import abort_job, job_of
from skep.compute.drivers.libvirt.turns import ServerTurns
from skep.domain.ids import InstanceUuid

log = logging.getLogger(__name__)

COPY = f"snapshot{NEW}"
"""Beside the disks of a guest: a copy that is not whole yet."""
LOOK = 0.2
"""Seconds between two looks at how far the copying is."""
END_SECONDS = 30.0
"""In which QEMU ends a copying that it is told to end."""
_DONE = frozenset({libvirt.VIR_DOMAIN_JOB_COMPLETED, libvirt.VIR_DOMAIN_JOB_FAILED, libvirt.VIR_DOMAIN_JOB_CANCELLED})


def copy_live(
    domain: libvirt.virDomain, disk: Path, disk_format: str, file: Path, still: AbstractContextManager[None]
) -> None:
    """Write a disk of a guest that is not off into a file that is not there yet. The guest's disks stay as they are.

    The copy is of a moment in which `still` is entered; what the guest writes later is not in it. Raises DriverError,
    libvirt.libvirtError.
    """
    description = domain.XMLDesc()
    wanted = target_of(description, str(disk))
    if wanted is None:
        raise DriverError("InstanceNotFound", f"the guest has no disk {disk.name}")
    with still:
        domain.backupBegin(_backup(description, wanted, disk_format, file), None)
    try:
        while domain.jobStats().get("type", libvirt.VIR_DOMAIN_JOB_NONE) not in (libvirt.VIR_DOMAIN_JOB_NONE, *_DONE):
            time.sleep(LOOK)
        ended = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    except libvirt.libvirtError:
        if domain.isActive():
            domain.abortJob()
        raise
    if ended.get("type") != libvirt.VIR_DOMAIN_JOB_COMPLETED:
        raise DriverError(
            "StorageUnavailable", f"the disk could not be copied: {ended.get('errmsg', 'no reason given')}"
        )


def undo_cut(domain: libvirt.virDomain, place: Path) -> None:
    """Undo what an agent that died has left of a copy of a disk; there may be nothing.

    Raises DriverError, libvirt.libvirtError, OSError.
    """
    thaw_left(domain, place)
    if _is_copied(domain):
        log.warning("a copy of a disk of %s was cut, and is ended", domain.UUIDString())
        abort_job(domain)
        ends = time.monotonic() + END_SECONDS
        while _is_copied(domain):
            if time.monotonic() > ends:
                raise DriverError("StorageUnavailable", "a copy of a disk that was cut does not end")
            time.sleep(LOOK)
    (place / COPY).unlink(missing_ok=True)


def undo_all_cut(disks: GuestDisks, domains: GuestDomains, turns: ServerTurns) -> None:
    """Begin to undo what an agent that died has left of copies; it goes on beside what is asked of other servers."""
    for place in {path.parent for name in (COPY, FROZEN) for path in disks.files_of(name)}:
        instance = InstanceUuid(place.name.rpartition("_")[0])
        turns.begin(instance, partial(_undo_of, domains, disks, instance))


def _undo_of(domains: GuestDomains, disks: GuestDisks, instance: InstanceUuid) -> None:
    try:
        found = domains.find(instance)
        if found is not None:
            undo_cut(found[0], disks.place(instance, found[1].attempt))
    except (DriverError, libvirt.libvirtError, OSError) as error:
        log.warning("a copy of a disk of %s that was cut is not undone: %s", instance, error)


def _is_copied(domain: libvirt.virDomain) -> bool:
    return bool(job_of(domain, libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP))


def _backup(description: str, wanted: str, disk_format: str, file: Path) -> str:
    root = ET.Element("domainbackup", mode="push")
    disks = ET.SubElement(root, "disks")
    for target in ET.fromstring(description).findall("devices/disk/target"):  # noqa: S314 - of libvirt
        name = target.get("dev", "")
        if name != wanted:
            ET.SubElement(disks, "disk", name=name, backup="no")
            continue
        disk = ET.SubElement(disks, "disk", name=name, backup="yes", type="file")
        ET.SubElement(disk, "target", file=str(file))
        ET.SubElement(disk, "driver", type=disk_format)
    return ET.tostring(root, encoding="unicode")
