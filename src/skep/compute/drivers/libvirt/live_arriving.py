"""The target's side of live migrations: what a guest is awaited with, and how it goes on once it has come."""

from __future__ import annotations

import logging
from pathlib import Path

import libvirt

from skep.compute.drivers.base import DriverError, NamedResource
from skep.compute.drivers.libvirt.arrivals import REFUSED, Arrival, pool_name, pool_xml, write_arrival
from skep.compute.drivers.libvirt.bridged.awaited import AWAITED, awaited, forget_awaited, note_awaited
from skep.compute.drivers.libvirt.consoles import go_on_writing
from skep.compute.drivers.libvirt.disks import CONSOLE, DISK, VOLUMES
from skep.compute.drivers.libvirt.domain import GuestLabel
from skep.compute.drivers.libvirt.domains import mark_whole, state_of
from skep.compute.drivers.libvirt.driver import LibvirtDriver
from skep.compute.drivers.libvirt.files import guarded
from skep.compute.drivers.libvirt.live_targets import pools
from skep.compute.drivers.libvirt.mediated_devices import held_mediated
from skep.compute.drivers.libvirt.migration_jobs import open_disks
from skep.compute.drivers.libvirt.pci_devices import held_devices
from skep.compute.drivers.libvirt.plugged.kinds import check_arriving
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import Instance, PowerState
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.domain.volumes import staying

log = logging.getLogger(__name__)

SEEN = ".seen"
"""A file in the directory of the target's attempt: a source that finds it in its own directories shares the storage."""
NOT_CONNECTED = "VolumesNotConnected"


class LibvirtArrivals(LibvirtDriver):
    """The driver of a host that guests come to live."""

    async def await_guest(
        self, instance: Instance, attempt: int, resources: Resources, allocation: Allocation | None, place: Path
    ) -> None:
        """Make the directory of the guest, and a pool by which the source makes its disks in it."""
        label = GuestLabel(
            instance=instance.uuid, attempt=attempt, name=instance.name, resources=resources, allocation=allocation
        )
        self.plan(instance, attempt)
        if allocation is not None and (allocation.cells or held_devices(allocation) or held_mediated(allocation)):
            # Its XML names parts of the source.
            raise DriverError(REFUSED, "NUMA cells, own CPUs and devices do not go to another host while a guest runs")
        if instance.vifs and self._options.networks == "user":
            # Its loopback port is the source's, and may be another's there; QEMU would not start with it.
            raise DriverError(REFUSED, "networks: interfaces in user mode do not go to another host while a guest runs")
        if self._ports is not None:
            check_arriving(instance.vifs, self._host)
        links = self._domains.links(instance)

        def work() -> None:
            found = self._domains.find(instance.uuid)
            if found is not None and found[1].attempt != attempt:
                raise _in_the_way(found[1])
            directory = self._disks.make_place(instance.uuid, attempt)
            volumes = [disk for _, disk in self._volumes.disks(instance.uuid, attempt, "virtio")]
            if {one.volume_id for one in staying(instance.volumes)} - {one.volume_id for one in volumes}:
                raise DriverError(NOT_CONNECTED, f"the volumes of {instance.uuid} are not connected")
            seen = directory / SEEN
            if not seen.exists():
                seen.write_text(new_uuid())
            name = pool_name(instance.uuid, attempt)
            if not pools(self._connection.get(), name):
                self._connection.get().storagePoolCreateXML(pool_xml(name, directory))
            if self._bridged is not None:
                guarded(lambda: note_awaited(directory, links.values()))
                self._bridged.plug(tuple(links.values()))
            self._plug(instance, attempt)
            if self._ports is not None:
                # Those of a source that sees these directories may count as this host's, by its release.
                self._ports.again(instance.uuid, attempt)
            arrival = Arrival(
                label=label,
                uri=self._options.migration_uri,
                address=self._options.migration_address,
                way=self._options.migration_way,
                directory=str(directory),
                mark=seen.read_text(),
                links=links,
                post_copy=self._options.migration_post_copy,
                volumes=tuple(volumes),
            )
            write_arrival(place, arrival)

        await self._work(instance.uuid, work)

    def _is_there(self, instance: InstanceUuid, attempt: int) -> bool:
        """Tell so also of a guest that arrives, or has come and is not taken over: an order to await it may be late."""
        found = self._domains.find(instance) if guarded((self._disks.place(instance, attempt) / SEEN).exists) else None
        return (found is not None and found[1].attempt == attempt) or super()._is_there(instance, attempt)

    def kept_links(self) -> frozenset[str]:
        """Return the links of all guests, those that are to come live among them."""
        places = (path.parent for path in self._disks.files_of(AWAITED))
        return super().kept_links().union(*map(awaited, places))

    async def undo(self, instance: InstanceUuid, attempt: int, resource: NamedResource) -> None:
        """Remove a disk; with the root disk or volumes all files of the attempt, and what a guest was awaited with."""
        if resource.name in (DISK, VOLUMES):
            await self._work(instance, lambda: self._end_awaiting(instance, attempt))
        await super().undo(instance, attempt, resource)

    async def take_over(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,  # noqa: ARG002 - the label has them
        allocation: Allocation | None,  # noqa: ARG002 - the label has it
        place: Path,
        *,
        start: bool,
    ) -> PowerState:
        """Let the guest go on here that came paused, and say in its label that it is whole."""
        uuid = instance.uuid

        def work() -> PowerState:
            found = self._domains.find(uuid)
            if found is not None and found[1].attempt != attempt:
                raise _in_the_way(found[1])
            if found is None or not found[0].isPersistent():
                raise DriverError("InstanceNotFound", f"{uuid} was not handed over")
            domain, label = found
            if label.whole:
                return state_of(domain)
            # On shared storage the end of the source's guest has left its files root's.
            self._own(domain, attempt)
            self._disks.settle_drive(uuid, attempt, domain.XMLDesc())
            try:
                go_on_writing(place / CONSOLE, self._disks.console(uuid, attempt))
            except OSError as error:
                log.warning("what guest %s wrote to its console elsewhere is lost: %s", uuid, error)
            open_disks(domain, start=start)
            # Nothing is asked of the driver once the guest is whole.
            self._end_awaiting(uuid, attempt)
            mark_whole(domain, label)
            guarded(lambda: (self._disks.place(uuid, attempt) / SEEN).unlink(missing_ok=True))
            return state_of(domain)

        return await self._work(uuid, work)

    def _own(self, domain: libvirt.virDomain, attempt: int) -> None:
        instance = InstanceUuid(domain.UUIDString())
        self._disks.own(instance, attempt)
        self._volumes.own(instance, attempt, domain.XMLDesc())

    def _end_awaiting(self, instance: InstanceUuid, attempt: int) -> None:
        for pool in pools(self._connection.get(), pool_name(instance, attempt)):
            pool.destroy()
        place = self._disks.place(instance, attempt)
        links = guarded(lambda: awaited(place))
        if self._bridged is not None and links:
            self._bridged.unplug(tuple(links - self._domains.taps()))
            guarded(lambda: forget_awaited(place))


def _in_the_way(label: GuestLabel) -> DriverError:
    return DriverError("InstanceExists", f"{label.instance} is there already, made by attempt {label.attempt}")
