"""Devices that guests get and lose while they are there: at once if they run, and with their next start if not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.connection import LibvirtConnection
from skep.compute.drivers.libvirt.domains import INACTIVE, GuestDomains, state_of
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState

CONFIG, LIVE = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_AFFECT_LIVE
"""What a guest is when it starts next, and what it is now if it runs."""
AGAIN = 20.0
"""Seconds after which a guest that was asked to let go of a device is asked again: it may not have listened yet."""
LOOK = 0.5
"""Seconds between two looks whether a guest has let go of a device, where nothing is told of it."""


class GuestDevice(NamedTuple):
    """One device of a guest."""

    about: str
    """For people: `volume ID`."""
    find: Callable[[str], ET.Element | None]
    """Returns its element in the XML of a domain; None: the domain has it not."""
    in_use: str
    """The error of one of which its guest does not let go."""


def domain_of(domains: GuestDomains, instance: InstanceUuid, attempt: int) -> libvirt.virDomain:
    """Return the whole guest of an attempt. Raises DriverError `InstanceNotFound`."""
    domain, label = domains.whole(instance)
    if label.attempt != attempt:
        raise DriverError("InstanceNotFound", f"there is no guest {instance} of attempt {attempt}")
    return domain


def xml_of(domain: libvirt.virDomain, part: int) -> str:
    """Return the XML of a guest as it is when it starts next (CONFIG), or as it is now (LIVE)."""
    xml: str = domain.XMLDesc(INACTIVE if part == CONFIG else 0)
    return xml


def parts_without(domain: libvirt.virDomain, device: GuestDevice) -> list[int]:
    """Return what of a guest lacks a device: CONFIG, and LIVE if it runs."""
    parts = (CONFIG, LIVE) if domain.isActive() else (CONFIG,)
    return [part for part in parts if device.find(xml_of(domain, part)) is None]


def take_away(connection: LibvirtConnection, domain: libvirt.virDomain, device: GuestDevice, seconds: float) -> None:
    """Have a guest let go of a device, now and when it starts next; one that it has not is no error.

    Raises DriverError where a guest that runs does not do so in so many seconds; it has the device then as before.
    """
    if domain.isActive() and device.find(domain.XMLDesc()) is not None:
        if state_of(domain) is PowerState.PAUSED:
            raise DriverError(device.in_use, f"the guest is paused, so that it cannot let go of {device.about}")
        _ask_until_gone(connection, domain, device, seconds)
    kept = device.find(xml_of(domain, CONFIG))
    if kept is not None:
        domain.detachDeviceFlags(ET.tostring(kept, encoding="unicode"), CONFIG)


def _ask_until_gone(
    connection: LibvirtConnection, domain: libvirt.virDomain, device: GuestDevice, seconds: float
) -> None:
    ends = time.monotonic() + seconds
    again = 0.0
    while domain.isActive() and (element := device.find(domain.XMLDesc())) is not None:
        now = time.monotonic()
        if now >= ends:
            raise DriverError(device.in_use, f"the guest has not let go of {device.about} in time: it uses it")
        if now >= again:
            _ask(domain, element)
            again = now + AGAIN
        with connection.changed:
            connection.changed.wait(min(LOOK, ends - now))


def _ask(domain: libvirt.virDomain, element: ET.Element) -> None:
    try:
        domain.detachDeviceFlags(ET.tostring(element, encoding="unicode"), LIVE)
    except libvirt.libvirtError as error:
        # Gone meanwhile, off meanwhile, or asked already.
        if error.get_error_code() not in _FINE and "unplug" not in str(error):
            raise


_FINE = frozenset({libvirt.VIR_ERR_DEVICE_MISSING, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_FAILED})
