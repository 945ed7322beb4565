"""Snapshots of volumes that are files, for the volume service: the guest writes to a new file, and files are merged.

The volume service makes the new file, over the one that the guest writes to and beside it. Which file the guest writes
to only its domain says; the file of the attempt names the new one before, so that no start of the guest takes it back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.disks import GuestDisks
from skep.compute.drivers.libvirt.domains import INACTIVE, state_of
from skep.compute.drivers.libvirt.guest_agents import still
from skep.compute.drivers.libvirt.snapshots import undo_cut
from skep.compute.drivers.libvirt.volume_calls import LOOK, LibvirtVolumes, bus_of
from skep.compute.drivers.libvirt.volume_disks import (
    FileSource,
    backing_files,
    found_volume,
    has_source,
    with_volume,
)
from skep.compute.drivers.libvirt.volume_kinds import FILES, NOT_SUPPORTED, disk_of, in_file
from skep.compute.drivers.libvirt.volumes import VolumeAtHost
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.volumes import AssistSnapshot

FAILED = "VolumeSnapshotFailed"
SNAPSHOT = (
    libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REUSE_EXT
)


class _VolumeFile(NamedTuple):
    """A volume of a guest that is there."""

    domain: libvirt.virDomain
    kept: VolumeAtHost
    path: Path
    """Of the file that the guest writes to, as is written down."""

    @property
    def volume_id(self) -> str:
        """Its id in the guest."""
        return self.kept.volume.volume_id

    @property
    def target_element(self) -> ET.Element:
        """Says by which name and bus the guest has it. Raises DriverError."""
        disk = found_volume(self.domain.XMLDesc(), self.volume_id)
        target = None if disk is None else disk.find("target")
        if target is None:
            raise DriverError(FAILED, f"the guest has no volume {self.volume_id}")
        return target

    @property
    def target(self) -> str:
        """The name of the disk of the guest. Raises DriverError."""
        return self.target_element.get("dev", "")

    def beside(self, name: str) -> Path:
        """Return a file of the volume by its name. Raises DriverError for what is no name."""
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise DriverError(NOT_SUPPORTED, f"volume {self.volume_id}: {name!r} is no name of a file beside its own")
        return self.path.with_name(name)


class LibvirtVolumeSnapshots(LibvirtVolumes):
    """The capability `assisted_snapshot`."""

    _disks: GuestDisks

    async def create_volume_snapshot(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> PowerState:
        """Have a guest write to the new file, now and when it starts next."""
        try:
            return await self._work(instance, lambda: self._write_to_new(instance, snapshot), failure=FAILED)
        except DriverError:
            # The volume service takes a failure for a guest that writes to the old file.
            if not await self._once_answered(instance, lambda: self._uses_new(instance, snapshot), failure=FAILED):
                raise
            return await self._once_answered(instance, lambda: self._write_to_new(instance, snapshot), failure=FAILED)

    async def delete_volume_snapshot(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> PowerState:
        """Have QEMU merge files, while the guest goes on; go on with what was begun before."""
        merges = await self._work(instance, lambda: self._begin_to_merge(instance, snapshot), failure=FAILED)
        while merges:
            await asyncio.sleep(LOOK)
            merges = await self._look(lambda: self._merges(instance, snapshot))
        return await self._work(instance, lambda: self._merged(instance, snapshot), failure=FAILED)

    def _write_to_new(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> PowerState:
        domain, label = self._domains.whole(instance)
        self._volumes.settle(instance, label.attempt, domain.XMLDesc(INACTIVE))
        used = self._volume_file(instance, snapshot)
        new = used.beside(snapshot.new_file)
        if new == used.path:
            return state_of(domain)
        self._volumes.note_file(instance, label.attempt, used.kept, str(new))
        source = FileSource(str(new))
        disk = disk_of(in_file(used.kept.volume, source.path), source, bus_of(used.target_element))
        if domain.isActive() and not has_source(domain.XMLDesc(), used.volume_id, source):
            place = self._disks.place(instance, label.attempt)
            undo_cut(domain, place)
            with still(domain, label, state_of(domain), place):
                domain.snapshotCreateXML(_snapshot(domain.XMLDesc(), used.target, str(new)), SNAPSHOT)
        if domain.hasManagedSaveImage(0):
            domain.managedSaveDefineXML(with_volume(domain.managedSaveGetXMLDesc(), disk))
        domain = self._connection.get().defineXML(with_volume(domain.XMLDesc(INACTIVE), disk))
        self._volumes.settle(instance, label.attempt, domain.XMLDesc(INACTIVE))
        return state_of(domain)

    def _uses_new(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> bool:
        """Tell whether the guest writes to the new file."""
        used = self._volume_file(instance, snapshot)
        new = FileSource(str(used.beside(snapshot.new_file)))
        return has_source(used.domain.XMLDesc(), used.volume_id, new)

    def _begin_to_merge(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> bool:
        """Begin to merge unless that was done, or is being done; tell whether it is."""
        used = self._volume_file(instance, snapshot)
        domain, below = used.domain, _below(used, snapshot)
        if below is None:
            return False
        if domain.blockJobInfo(used.target):
            return True
        if snapshot.merge_target_file is None:
            relative = libvirt.VIR_DOMAIN_BLOCK_REBASE_RELATIVE if snapshot.file_to_merge else 0
            base = _layer(used, below, snapshot.file_to_merge) if snapshot.file_to_merge else None
            domain.blockRebase(used.target, base, 0, relative)
        else:
            top = _layer(used, below, snapshot.file_to_merge or "")
            base = _layer(used, below, snapshot.merge_target_file)
            domain.blockCommit(used.target, base, top, 0, libvirt.VIR_DOMAIN_BLOCK_COMMIT_RELATIVE)
        return True

    def _merges(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> bool:
        used = self._volume_file(instance, snapshot)
        _check_running(used)
        return bool(used.domain.blockJobInfo(used.target))

    def _merged(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> PowerState:
        used = self._volume_file(instance, snapshot)
        if _below(used, snapshot) is not None:
            raise DriverError(FAILED, f"the files of volume {snapshot.volume_id} are not merged")
        return state_of(used.domain)

    def _volume_file(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> _VolumeFile:
        """Return a volume of a guest. Raises DriverError, where it is no file `VolumeNotSupported`."""
        domain, label = self._domains.whole(instance)
        kept = self._volumes.find(instance, label.attempt, snapshot.volume_id)
        if kept is None:
            raise DriverError(FAILED, f"{instance} has no volume {snapshot.volume_id}")
        if kept.volume.driver not in FILES or not isinstance(kept.source, FileSource):
            raise DriverError(NOT_SUPPORTED, f"volume {snapshot.volume_id}: it is no file of the host")
        return _VolumeFile(domain, kept, Path(kept.source.path))


def _check_running(used: _VolumeFile) -> None:
    if not used.domain.isActive():
        raise DriverError("InstanceNotRunning", "the guest does not run: only QEMU merges the files of its volumes")


def _below(used: _VolumeFile, snapshot: AssistSnapshot) -> dict[str, str] | None:
    """Return the files below the one that a guest writes to, and libvirt's numbers of them; None: all is merged.

    Raises DriverError for a guest that does not run: libvirt does not know of files below then.
    """
    _check_running(used)
    below = backing_files(used.domain.XMLDesc(), used.volume_id)
    if snapshot.merge_target_file is not None:
        merged, target = used.beside(snapshot.file_to_merge or ""), used.beside(snapshot.merge_target_file)
        if str(merged) in below:
            return below
        # The volume service removes the file on this word: that it is merged shows by what is below still.
        if merged == used.path or str(target) not in below:
            raise DriverError(FAILED, f"volume {used.volume_id}: {merged.name} is not below what the guest writes to")
        return None
    wanted = [] if snapshot.file_to_merge is None else [str(used.beside(snapshot.file_to_merge))]
    return None if list(below)[:1] == wanted else below


def _layer(used: _VolumeFile, below: dict[str, str], name: str) -> str:
    """Return what libvirt calls a file below the one that a guest writes to. Raises DriverError."""
    path = str(used.beside(name))
    if path not in below:
        raise DriverError(FAILED, f"volume {used.volume_id}: no file {name} is below the one that the guest writes to")
    return f"{used.target}[{below[path]}]"


def _snapshot(described: str, wanted: str, new: str) -> str:
    root = ET.Element("domainsnapshot")
    disks = ET.SubElement(root, "disks")
    for target in ET.fromstring(described).findall("devices/disk/target"):  # noqa: S314 - of libvirt
        name = target.get("dev", "")
        if name != wanted:
            ET.SubElement(disks, "disk", name=name, snapshot="no")
            continue
        disk = ET.SubElement(disks, "disk", name=name, snapshot="external", type="file")
        ET.SubElement(disk, "source", file=new)
        ET.SubElement(disk, "driver", type="qcow2")
    return ET.tostring(root, encoding="unicode")
