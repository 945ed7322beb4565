"""The target of a live migration, as the source finds it: what it has said of itself, and its libvirtd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.arrivals import (
    REFUSED,
    Arrival,
    MovingDisk,
    cpu_of,
    links_of,
    read_arrival,
    tapless,
    volume_xml,
)
from skep.compute.drivers.libvirt.connection import KEEP_ALIVE
from skep.compute.drivers.libvirt.domain import GuestLabel
from skep.compute.drivers.libvirt.domains import label_of


def check_links(label: GuestLabel | None, domain: str, arrival: Arrival) -> None:
    """Raise DriverError where a target has not made the links for the interfaces in the XML of a domain."""
    kinds = tapless(domain)
    if kinds:
        # The device, or the socket, is the source's.
        raise DriverError(REFUSED, f"networks: interfaces of libvirt's type {', '.join(kinds)} do not go along")
    if label is None or label.ssh_port is not None or set(links_of(domain)) != set(arrival.links):
        raise DriverError(REFUSED, "networks: the interfaces of the guest are others than those that its target has")


def check_volumes(has: set[str], arrival: Arrival) -> None:
    """Raise DriverError where a target has not connected the volumes that a guest has, by their ids."""
    if has != {one.volume_id for one in arrival.volumes}:
        raise DriverError(REFUSED, "volumes: those of the guest are others than those that its target has")


def check_cpu(target: libvirt.virConnect, domain: str) -> None:
    """Raise DriverError `InvalidCPUInfo` where a host cannot run the CPU in the XML of a domain."""
    architecture, machine, kind, cpu = cpu_of(domain)
    try:
        fits = target.compareHypervisorCPU(None, architecture, machine, kind, cpu, 0)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
            return
        raise DriverError("InvalidCPUInfo", f"the target cannot run the guest: {error}") from error
    if fits <= libvirt.VIR_CPU_COMPARE_INCOMPATIBLE:
        raise DriverError("InvalidCPUInfo", "the target has not the CPU that the guest needs")


def arrival_in(place: Path) -> Arrival:
    """Return what the target of the migration with this place has said. Raises DriverError."""
    try:
        found = read_arrival(place)
    except (OSError, ValueError) as error:
        raise DriverError("StorageUnavailable", str(error)) from error
    if found is None:
        raise DriverError("InstanceNotFound", "no host awaits the guest")
    return found


@contextmanager
def reached(arrival: Arrival) -> Iterator[libvirt.virConnect]:
    """Give a connection to the libvirtd of the target. Raises DriverError where it is not reached."""
    try:
        opened = libvirt.open(arrival.uri)
        opened.setKeepAlive(*KEEP_ALIVE)
    except libvirt.libvirtError as error:
        raise DriverError(REFUSED, f"the libvirtd of the target is not reached at {arrival.uri}: {error}") from error
    try:
        yield opened
    finally:
        opened.close()


def has_arrived(target: libvirt.virConnect, arrival: Arrival) -> bool:
    """Tell whether a guest is whole in the hypervisor of the target; one that is arriving is transient there."""
    try:
        domain = target.lookupByUUIDString(arrival.label.instance)
        label = label_of(domain)
        return label is not None and label.attempt == arrival.label.attempt and bool(domain.isPersistent())
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return False
        raise


def make_disks(target: libvirt.virConnect, name: str, domain: libvirt.virDomain, disks: tuple[MovingDisk, ...]) -> None:
    """Make empty disks on the target, as large as those of the guest, in place of those that are there."""
    for pool in pools(target, name):
        pool.refresh(0)
        there = {volume.name(): volume for volume in pool.listAllVolumes()}
        for disk in disks:
            if disk.name in there:
                there[disk.name].delete(0)
            pool.createXML(volume_xml(disk.name, disk.format, domain.blockInfo(disk.target)[0]), 0)
        return
    raise DriverError(REFUSED, "the target awaits the guest no more")


def pools(connection: libvirt.virConnect, name: str) -> list[libvirt.virStoragePool]:
    """Return the pool of this name, if there is one."""
    return [pool for pool in connection.listAllStoragePools() if pool.name() == name]
