"""What the driver does with interfaces of guests that are there: attaches and detaches them."""

from __future__ import annotations

import logging
from functools import partial

import libvirt
import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged.interfaces import MOST
from skep.compute.drivers.libvirt.bridged.networks import BridgedNetworks
from skep.compute.drivers.libvirt.domains import state_of
from skep.compute.drivers.libvirt.guest_calls import GuestCalls
from skep.compute.drivers.libvirt.guest_devices import (
    CONFIG,
    LIVE,
    GuestDevice,
    domain_of,
    parts_without,
    take_away,
    xml_of,
)
from skep.compute.drivers.libvirt.guest_interfaces import (
    GuestInterface,
    SocketInterface,
    found_interface,
    interface_element,
    interfaces_of,
    shares_memory,
)
from skep.compute.drivers.libvirt.plugged.ports import GuestPorts
from skep.compute.drivers.libvirt.properties import wishes
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.vifs import Vif

log = logging.getLogger(__name__)

IN_USE = "InterfaceInUse"
"""The error of an interface of which its guest does not let go."""
FAILED = "InterfaceAttachFailed"


class LibvirtInterfaces(GuestCalls):
    """The capability `attach_interface`, of hosts on which interfaces do not end inside QEMU."""

    _bridged: BridgedNetworks | None
    _ports: GuestPorts | None

    @property
    def attaches_interfaces(self) -> bool:
        """Whether guests that are there get and lose interfaces."""
        return self._options.networks != "user"

    async def attach_interface(self, instance: Instance, attempt: int, vif: Vif) -> PowerState:
        """Make the link of an interface, and plug it into a guest."""
        server = msgspec.structs.replace(instance, vifs=(vif,))
        return await self._attached(
            instance.uuid,
            lambda: self._attach_vif(server, attempt, vif),
            lambda: self._undo_attach_vif(instance.uuid, attempt, vif),
            failure=FAILED,
        )

    async def detach_interface(self, instance: InstanceUuid, attempt: int, vif: Vif) -> PowerState:
        """Have a guest let go of an interface, and remove its link."""
        return await self._work(
            instance, lambda: self._detach_vif(instance, attempt, vif), failure="InterfaceDetachFailed"
        )

    def _attach_vif(self, server: Instance, attempt: int, vif: Vif) -> PowerState:
        domain = domain_of(self._domains, server.uuid, attempt)
        [interface] = self._domains.interfaces(server)
        parts = parts_without(domain, _device(vif))
        if CONFIG in parts:
            _check(domain, interface)
        element = interface_element(interface)
        # The links of guests are theirs by what they are when they start next.
        if CONFIG in parts:
            domain.attachDeviceFlags(element, CONFIG)
        self._plug_vif(server, attempt, vif, anew=CONFIG in parts)
        if LIVE in parts:
            domain.attachDeviceFlags(element, LIVE)
        return state_of(domain)

    def _undo_attach_vif(self, instance: InstanceUuid, attempt: int, vif: Vif) -> PowerState | None:
        """Take an interface from a guest; of one that runs and has it, so that it is plugged, return how it is.

        Raises DriverError, libvirt.libvirtError.
        """
        domain = domain_of(self._domains, instance, attempt)
        if domain.isActive() and not parts_without(domain, _device(vif)):
            return state_of(domain)
        self._detach_vif(instance, attempt, vif)
        return None

    def _detach_vif(self, instance: InstanceUuid, attempt: int, vif: Vif) -> PowerState:
        domain = domain_of(self._domains, instance, attempt)
        take_away(self._connection, domain, _device(vif), self._options.detach_seconds)
        if self._bridged is not None:
            self._bridged.unplug((vif.device_name,))
        if self._ports is not None:
            self._ports.remove(instance, attempt, vif.id)
        return state_of(domain)

    def _plug_vif(self, server: Instance, attempt: int, vif: Vif, *, anew: bool) -> None:
        if self._bridged is not None:
            self._bridged.plug((vif.device_name,), anew=(vif.device_name,) if anew else ())
        if self._ports is not None:
            self._ports.add(server, attempt, wishes(server, self._options).queues)

    def _claim_ports(self) -> None:
        """Note the ports of all guests as this host's. What cannot be written is logged: the next start does it."""
        if self._ports is None:
            return
        try:
            for guest in self._domains.all():
                self._ports.claim(guest.instance, guest.attempt)
        except (DriverError, libvirt.libvirtError) as error:
            log.warning("ports of guests are not noted as those of this host: %s", error)


def _check(domain: libvirt.virDomain, interface: GuestInterface) -> None:
    """Raise DriverError for a guest that cannot have one more interface."""
    described = xml_of(domain, CONFIG)
    if domain.hasManagedSaveImage(0):
        raise DriverError("InstanceNotRunning", "a guest that is suspended gets no interface: its memory knows of none")
    if len(interfaces_of(described)) >= MOST:
        raise DriverError(FAILED, f"a guest has {MOST} interfaces at most")
    if isinstance(interface, SocketInterface) and not shares_memory(described):
        raise DriverError(FAILED, "the switch does not see the memory of the guest: it was made without such a port")


def _device(vif: Vif) -> GuestDevice:
    return GuestDevice(f"port {vif.id}", partial(found_interface, vif=vif), IN_USE)
