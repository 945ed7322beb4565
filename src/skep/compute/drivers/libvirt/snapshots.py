"""The disk of a guest as it is at one moment, copied while the guest goes on."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.domain import target_of

LOOK = 0.2
"""Seconds between two looks at how far the copying is."""
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
