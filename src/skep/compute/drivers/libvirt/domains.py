"""Guests in libvirt: found by their labels, made, started, stopped and removed. Everything here may block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import libvirt
import msgspec
import structlog

from skep.compute.drivers.base import DriverError, Guest
from skep.compute.drivers.libvirt.bridged.interfaces import TapInterface, tap_interfaces
from skep.compute.drivers.libvirt.bridged.networks import BridgedNetworks
from skep.compute.drivers.libvirt.connection import LibvirtConnection
from skep.compute.drivers.libvirt.disks import GuestDisks
from skep.compute.drivers.libvirt.domain import (
    NAMESPACE,
    PREFIX,
    DiskFile,
    GuestLabel,
    GuestShape,
    guest_xml,
    label_element,
    read_label,
    taps_of,
    with_way_out,
    without_taps,
)
from skep.compute.drivers.libvirt.guest_cells import guest_place
from skep.compute.drivers.libvirt.guest_interfaces import GuestInterface
from skep.compute.drivers.libvirt.host_cells import host_cells
from skep.compute.drivers.libvirt.mediated_guests import GuestMediated
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.pci_devices import held_devices
from skep.compute.drivers.libvirt.plugged.ports import GuestPorts
from skep.compute.drivers.libvirt.properties import Wishes, wishes
from skep.compute.drivers.libvirt.rescues import with_rescue, without_rescue
from skep.compute.drivers.libvirt.screens import with_screen
from skep.compute.drivers.libvirt.user_networks import UserInterface, free_port, user_interfaces
from skep.compute.drivers.libvirt.volume_disks import VolumeDisk, with_sources
from skep.compute.drivers.libvirt.volumes import GuestVolumes
from skep.compute.drivers.libvirt.way_out.ways import WayOut
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.resources import MEMORY_MB, VCPU

log = structlog.get_logger("skep.compute")

STATES = {
    libvirt.VIR_DOMAIN_NOSTATE: PowerState.NOSTATE,
    libvirt.VIR_DOMAIN_RUNNING: PowerState.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: PowerState.RUNNING,
    libvirt.VIR_DOMAIN_PAUSED: PowerState.PAUSED,
    libvirt.VIR_DOMAIN_SHUTDOWN: PowerState.RUNNING,  # it is about to be off
    libvirt.VIR_DOMAIN_SHUTOFF: PowerState.SHUTDOWN,
    libvirt.VIR_DOMAIN_CRASHED: PowerState.CRASHED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: PowerState.PAUSED,
}
ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
"""What a guest is when it is started next."""
UNDEFINE = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
)
BUTTON = 10.0
"""Seconds after which a guest that was told to shut down is told again: it may not have listened yet."""
LOOK = 0.5
"""Seconds between two looks at a guest that shuts down, where nothing is told of it."""


AGENT_SOCKET = "agent"
"""Among the files of a guest: the host's end of the line to the agent inside it."""


class GuestDomains:
    """The guests of one host."""

    def __init__(
        self,
        connection: LibvirtConnection,
        disks: GuestDisks,
        volumes: GuestVolumes,
        options: Options,
        bridged: BridgedNetworks | None,
        ports: GuestPorts | None,
        way_out: WayOut | None,
        mediated: GuestMediated,
    ) -> None:
        self._connection = connection
        self._disks = disks
        self._volumes = volumes
        self._options = options
        self._bridged = bridged
        """The networks of the host that guests are plugged into; None: it has none of its own."""
        self._ports = ports
        """The ports that Neutron has bound here; None: none are plugged."""
        self._way_out = way_out
        """Of interfaces that end inside QEMU."""
        self._mediated = mediated
        self._choosing = threading.Lock()
        """Held from the choice of a loopback port until the domain that has it is there."""

    def all(self) -> Iterator[Guest]:
        """List our guests; domains of others are left out."""
        for domain in self._connection.get().listAllDomains():
            label = label_of(domain)
            if label is None:
                continue
            try:
                yield _guest(label, state_of(domain))
            except libvirt.libvirtError as error:
                if not _is_gone(error):
                    raise

    def whole(self, instance: InstanceUuid) -> tuple[libvirt.virDomain, GuestLabel]:
        """Return a guest that is whole. Raises DriverError `InstanceNotFound`."""
        found = self.find(instance)
        if found is None or not found[1].whole:
            raise DriverError("InstanceNotFound", f"there is no guest {instance}")
        return found

    def find(self, instance: InstanceUuid) -> tuple[libvirt.virDomain, GuestLabel] | None:
        """Return a guest, whole or not. Raises DriverError `InstanceExists` for a domain of another's."""
        try:
            domain = self._connection.get().lookupByUUIDString(instance)
        except libvirt.libvirtError as error:
            if _is_gone(error):
                return None
            raise
        label = label_of(domain)
        if label is None:
            if domain_is_there(domain):
                raise DriverError("InstanceExists", f"{instance} is a domain of libvirt that Skep did not make")
            return None
        return domain, label

    def there(self, instance: InstanceUuid, attempt: int) -> PowerState | None:
        """Return the state of the whole guest of an attempt; remove one that is not whole; None: there is none.

        One that runs and is not noted as whole yet is whole now: to boot it once more would cut its first boot.

        Raises DriverError `InstanceExists` where a guest of another attempt is in the way.
        """
        found = self.find(instance)
        if found is None:
            return None
        domain, label = found
        if label.attempt != attempt:
            raise DriverError("InstanceExists", f"{instance} is there already, made by attempt {label.attempt}")
        if not label.whole and state_of(domain) is PowerState.RUNNING:
            mark_whole(domain, label)
        elif not label.whole:
            self.remove(domain)
            return None
        return state_of(domain)

    def check_interfaces(self, instance: Instance) -> None:
        """Look whether a server can have its interfaces here. Raises DriverError `InstanceUnacceptable`."""
        wished = wishes(instance, self._options)
        if self._options.networks == "user":
            user_interfaces(instance.vifs, wished.vif_model)
        else:
            self._host_interfaces(instance, wished)

    def interfaces(self, instance: Instance) -> tuple[GuestInterface, ...]:
        """Return the interfaces of a server that end on this host. Raises DriverError for a port that cannot be had."""
        return self._host_interfaces(instance, wishes(instance, self._options))

    def links(self, instance: Instance) -> dict[str, str]:
        """Return the links here that a server's interfaces are plugged into, by MAC address. Raises DriverError."""
        found = self.interfaces(instance)
        return {one.mac: one.device for one in found if isinstance(one, TapInterface)}

    def taps(self) -> frozenset[str]:
        """Return the links of all guests, whole or not. Raises libvirt.libvirtError."""
        found: set[str] = set()
        for domain in self._connection.get().listAllDomains():
            try:
                found.update(taps_of(domain.XMLDesc(INACTIVE)))
            except libvirt.libvirtError as error:
                if not _is_gone(error):
                    raise
        return frozenset(found)

    def start(self, domain: libvirt.virDomain, label: GuestLabel, flags: int = 0) -> None:
        """Start a guest that is off, once its links are there and its volumes connected.

        What the options of the host say anew holds from now on, but for one that is suspended and goes on as it was.
        Raises DriverError, libvirt.libvirtError.
        """
        is_suspended = not flags & libvirt.VIR_DOMAIN_START_FORCE_BOOT and bool(domain.hasManagedSaveImage(0))
        if not is_suspended:
            changed = with_screen(domain.XMLDesc(INACTIVE), wanted=self._options.graphics == "vnc")
            if changed is not None:
                self._connection.get().defineXML(changed)
            if self._way_out is not None:
                changed = with_way_out(domain.XMLDesc(INACTIVE), self._way_out.told(label.ssh_port))
                if changed is not None:
                    self._connection.get().defineXML(changed)
            self._lose_taps(domain, label)
        # One that goes on as it was goes on without what another server has got meanwhile, or not at all.
        self._plug(domain, label, others=self._taken(label) if is_suspended else frozenset())
        self._find_volumes(domain, label)
        domain.createWithFlags(flags)

    def remove(self, domain: libvirt.virDomain) -> None:
        """End a guest and remove it from libvirt, with its links. Raises DriverError, libvirt.libvirtError."""
        taps: tuple[str, ...] = ()
        if self._bridged is not None and domain_is_there(domain):
            # What another server has got since stays for that.
            others = self._bridged.of_others(InstanceUuid(domain.UUIDString()))
            taps = tuple(tap for tap in taps_of(domain.XMLDesc(INACTIVE)) if tap not in others)
        remove(domain)
        if self._bridged is not None:
            self._bridged.unplug(taps)

    def make(self, instance: Instance, label: GuestLabel, *, start: bool) -> PowerState:
        """Make a guest over its disks, labelled first, and start it. Raises DriverError, libvirt.libvirtError."""
        with self._choosing:
            if instance.vifs and self._options.networks == "user":
                label = msgspec.structs.replace(label, ssh_port=self._free_port(instance.uuid))
            wished = wishes(instance, self._options)
            label = msgspec.structs.replace(label, administrator=wished.administrator, quiesce=wished.quiesce)
            domain = self._connection.get().defineXML(guest_xml(self._shape(instance, label)))
        if start:
            self._plug(domain, label)
            began, before = time.monotonic(), time.process_time()
            domain.create()
            seconds, processor = round(time.monotonic() - began, 4), round(time.process_time() - before, 4)
            log.info("guest started", instance=instance.uuid, seconds=seconds, processor_seconds=processor)
        mark_whole(domain, label)
        return state_of(domain)

    def stop(self, domain: libvirt.virDomain) -> None:
        """Have a guest shut itself down; switch it off when it does not."""
        if domain.hasManagedSaveImage(0):
            domain.managedSaveRemove(0)
        ends = time.monotonic() + self._options.shutdown_seconds
        again = 0.0
        while state_of(domain) is PowerState.RUNNING and (now := time.monotonic()) < ends:
            if now >= again:
                _push_button(domain)
                again = now + BUTTON
            with self._connection.changed:
                self._connection.changed.wait(min(LOOK, max(ends - now, 0.0)))
        switch_off(domain)

    def rescue(self, instance: InstanceUuid, image: Path | None) -> PowerState:
        """Boot a guest from a rescue disk. One that cannot is as it was. Raises DriverError, libvirt.libvirtError."""
        domain, label = self.whole(instance)
        before, runs = domain.XMLDesc(INACTIVE), state_of(domain) is PowerState.RUNNING
        try:
            if label.rescued:
                # The disk that it runs from is made anew: it has to let go of it.
                switch_off(domain)
            disk = self._disks.make_rescue(instance, label.attempt, image)
            self.stop(domain)
            wanted = msgspec.structs.replace(label, rescued=True)
            domain = self._connection.get().defineXML(with_rescue(before, wanted, disk))
            self.start(domain, wanted)
        except (DriverError, libvirt.libvirtError):
            path = self._disks.rescue_path(instance, label.attempt)
            own = without_rescue(before, msgspec.structs.replace(label, rescued=False), path)
            restored = self._connection.get().defineXML(own)
            if runs and not restored.isActive():
                self.start(restored, label)
            self._disks.remove_rescue(instance, label.attempt)
            raise
        return state_of(domain)

    def end_rescue(self, domain: libvirt.virDomain, label: GuestLabel) -> libvirt.virDomain:
        """Take the rescue disk from a guest that is off, and return it. Raises DriverError, libvirt.libvirtError."""
        if label.rescued:
            path = self._disks.rescue_path(label.instance, label.attempt)
            plain = msgspec.structs.replace(label, rescued=False)
            domain = self._connection.get().defineXML(without_rescue(domain.XMLDesc(INACTIVE), plain, path))
        self._disks.remove_rescue(label.instance, label.attempt)
        return domain

    def _find_volumes(self, domain: libvirt.virDomain, label: GuestLabel) -> None:
        """Connect the volumes of a guest that is off, and have it find them where they are on the host now."""
        self._volumes.settle(label.instance, label.attempt, domain.XMLDesc(INACTIVE))
        sources = self._volumes.again(label.instance, label.attempt)
        if sources and domain.hasManagedSaveImage(0):
            moved = with_sources(domain.managedSaveGetXMLDesc(), sources)
            if moved is not None:
                domain.managedSaveDefineXML(moved)
        moved = with_sources(domain.XMLDesc(INACTIVE), sources)
        if moved is not None:
            self._connection.get().defineXML(moved)

    def _lose_taps(self, domain: libvirt.virDomain, label: GuestLabel) -> None:
        """Take the interfaces from a guest that is off whose ports another server of the host has got since."""
        described, taken = domain.XMLDesc(INACTIVE), self._taken(label)
        if not taken.isdisjoint(taps_of(described)):
            log.warning("interfaces are gone to another server", instance=label.instance)
            self._connection.get().defineXML(without_taps(described, taken))

    def _taken(self, label: GuestLabel) -> frozenset[str]:
        """Return the links of ports that other servers of the host have got."""
        if self._bridged is not None:
            return self._bridged.of_others(label.instance)
        return frozenset() if self._ports is None else self._ports.taken(label.instance, label.attempt)

    def _plug(self, domain: libvirt.virDomain, label: GuestLabel, others: frozenset[str] = frozenset()) -> None:
        """Have the mediated devices and the links of a guest that is off.

        Links of `others` stay as they are if a guest has them open.
        """
        self._mediated.again(label.instance, label.attempt)
        if self._bridged is not None:
            taps = taps_of(domain.XMLDesc(INACTIVE))
            self._bridged.plug(taps, anew={*taps} - others)
        if self._ports is not None:
            self._ports.again(label.instance, label.attempt)

    def _host_interfaces(self, instance: Instance, wished: Wishes) -> tuple[GuestInterface, ...]:
        """Return the interfaces that end on the host. Raises DriverError for a port that cannot be had."""
        if self._ports is not None:
            return self._ports.interfaces(instance, wished)
        if self._bridged is not None:
            model, bandwidth = wished.vif_model, wished.bandwidth
            return tap_interfaces(instance.vifs, model, packed=wished.packed, bandwidth=bandwidth)
        return ()

    def _user_interfaces(self, instance: Instance, wished: Wishes, label: GuestLabel) -> tuple[UserInterface, ...]:
        """Return the interfaces that end inside QEMU. Raises DriverError for a port that cannot be had."""
        if self._options.networks != "user":
            return ()
        model, way_out = wished.vif_model, self._way_out is not None
        return user_interfaces(instance.vifs, model, label.ssh_port, packed=wished.packed, way_out=way_out)

    def _free_port(self, instance: InstanceUuid) -> int:
        labels = map(label_of, self._connection.get().listAllDomains())
        taken = {label.ssh_port for label in labels if label is not None and label.ssh_port is not None}
        return free_port(*self._options.ssh_range, taken, instance)

    def _shape(self, instance: Instance, label: GuestLabel) -> GuestShape:
        options, wished = self._options, wishes(instance, self._options)
        return GuestShape(
            label=label,
            vcpus=label.resources.get(VCPU) or instance.flavor.vcpus,
            memory_mb=label.resources.get(MEMORY_MB) or instance.flavor.memory_mb,
            virt_type=options.virt_type,
            machine=wished.machine,
            cpu_model=options.cpu_model,
            topology=wished.topology,
            disks=self._all_disks(instance, label.attempt, wished),
            console_file=str(self._disks.console(instance.uuid, label.attempt)),
            hardware=wished.hardware,
            host_devices=held_devices(label.allocation),
            mediated=self._mediated.uuids(instance.uuid, label.attempt),
            place=guest_place(
                instance,
                label.allocation,
                host_cells(self._connection.get().getCapabilities(), options),
                options.virt_type,
                confined=bool(options.shared_cpus or options.dedicated_cpus),
            ),
            interfaces=self._user_interfaces(instance, wished, label),
            way_out=self._way_out,
            host_interfaces=self._host_interfaces(instance, wished),
            agent=wished.agent,
            # The paths that the libvirt inside an agent would choose are too long below a root of some length.
            agent_socket=None if options.uri else str(self._disks.place(instance.uuid, label.attempt) / AGENT_SOCKET),
            screen=options.graphics == "vnc",
        )

    def _all_disks(self, instance: Instance, attempt: int, wished: Wishes) -> tuple[DiskFile | VolumeDisk, ...]:
        """Return the disks of a guest in their order: that which it boots from, the others of the host, volumes."""
        volumes = self._volumes.disks(instance.uuid, attempt, wished.disk_bus)
        first: list[DiskFile | VolumeDisk]
        if instance.is_volume_backed:
            first = [disk for volume, disk in volumes if volume.is_root]
            if not first:
                raise DriverError("VolumesNotConnected", f"the volume that {instance.uuid} boots from is not connected")
        else:
            first = [self._disks.root(instance.uuid, attempt, wished)]
        others = self._disks.others(instance.uuid, attempt, wished)
        return (*first, *others, *(disk for _, disk in volumes if disk not in first))


def state_of(domain: libvirt.virDomain) -> PowerState:
    """Return how a guest is. Raises libvirt.libvirtError."""
    state = STATES.get(domain.state()[0], PowerState.NOSTATE)
    if state is PowerState.SHUTDOWN and domain.hasManagedSaveImage(0):
        return PowerState.SUSPENDED
    return state


def label_of(domain: libvirt.virDomain) -> GuestLabel | None:
    """Return the label of a domain; None: it has none, or is gone."""
    try:
        return read_label(domain.metadata(ELEMENT, NAMESPACE))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA or _is_gone(error):
            return None
        raise


def domain_is_there(domain: libvirt.virDomain) -> bool:
    """Tell whether a domain has not gone meanwhile."""
    try:
        domain.state()
    except libvirt.libvirtError as error:
        if _is_gone(error):
            return False
        raise
    return True


def mark_whole(domain: libvirt.virDomain, label: GuestLabel) -> None:
    """Write into the hypervisor that a guest is whole. Raises libvirt.libvirtError."""
    element = label_element(msgspec.structs.replace(label, whole=True))
    where = libvirt.VIR_DOMAIN_AFFECT_CONFIG | (libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0)
    domain.setMetadata(ELEMENT, element, PREFIX, NAMESPACE, where)


def switch_off(domain: libvirt.virDomain) -> None:
    """End a guest at once; one that is off, or gone, stays so. Raises libvirt.libvirtError."""
    try:
        domain.destroy()
    except libvirt.libvirtError as error:
        if not (error.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID or _is_gone(error)):
            raise


def remove(domain: libvirt.virDomain) -> None:
    """End a guest and remove it from libvirt. Raises libvirt.libvirtError."""
    switch_off(domain)
    try:
        domain.undefineFlags(UNDEFINE)
    except libvirt.libvirtError as error:
        if not _is_gone(error):
            raise


def _push_button(domain: libvirt.virDomain) -> None:
    try:
        domain.shutdown()
    except libvirt.libvirtError as error:
        if not (error.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID or _is_gone(error)):
            raise


def _guest(label: GuestLabel, state: PowerState) -> Guest:
    return Guest(
        instance=label.instance,
        attempt=label.attempt,
        name=label.name,
        resources=label.resources,
        power_state=state if label.whole else PowerState.NOSTATE,
        whole=label.whole,
        rescued=label.rescued,
        allocation=label.allocation,
    )


def _is_gone(error: libvirt.libvirtError) -> bool:
    return bool(error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)
