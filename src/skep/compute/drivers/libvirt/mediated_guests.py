"""The mediated devices that attempts have at a host: a file beside the disks of each attempt says which.

One is named there before libvirt makes it, and the name goes after it was removed, so that whatever dies leaves none
that no file names. Those that others made on the host are neither counted nor touched.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import libvirt
import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.connection import LibvirtConnection
from skep.compute.drivers.libvirt.disks import MEDIATED, GuestDisks
from skep.compute.drivers.libvirt.files import guarded
from skep.compute.drivers.libvirt.mediated_devices import (
    MediatedDevice,
    Offer,
    device_xml,
    held_mediated,
    offers,
    read_parent,
    read_uuid,
)
from skep.compute.drivers.libvirt.options import MediatedDevices
from skep.compute.whole_file import write_whole
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.providers import Allocation, Provider

UNAVAILABLE = "MediatedDevicesUnavailable"
_PARENTS = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES
_MADE = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV


class MediatedAtHost(msgspec.Struct, frozen=True):
    """The content of the file."""

    devices: tuple[MediatedDevice, ...] = ()


_decoder = json_decoder(MediatedAtHost)


class GuestMediated:
    """The mediated devices of the guests of one host. All calls may block; of one server there is one at a time."""

    def __init__(self, connection: LibvirtConnection, disks: GuestDisks, offered: Sequence[MediatedDevices]) -> None:
        self._connection = connection
        self._disks = disks
        self._offered = offered
        self._changing = threading.Lock()
        """Held while devices are counted, made and removed: one that comes meanwhile would be counted twice."""

    def providers(self) -> tuple[Provider, ...]:
        """Return what guests may have, with what they have already. Raises DriverError, libvirt.libvirtError."""
        if not self._offered:
            return ()
        with self._changing:
            there = self._there()
            held = Counter(
                one.provider for path in self._disks.files_of(MEDIATED) for one in _read(path) if one.uuid in there
            )
            return tuple(one.room(held[one.provider]) for one in self._offers())

    def uuids(self, instance: InstanceUuid, attempt: int) -> tuple[str, ...]:
        """Return the devices of an attempt. Raises DriverError."""
        return tuple(one.uuid for one in self._of(instance, attempt))

    def make(self, instance: InstanceUuid, attempt: int, allocation: Allocation | None) -> None:
        """Make what an attempt was given, as far as it is not there. Raises DriverError, libvirt.libvirtError."""
        wanted = held_mediated(allocation)
        if not wanted:
            return
        with self._changing:
            devices = self._of(instance, attempt)
            if not devices:
                known = {one.provider: one for one in self._offers()}
                devices = tuple(
                    _part_of(known.get(provider), provider)
                    for provider, amount in wanted.items()
                    for _ in range(amount)
                )
                path = self._disks.make_place(instance, attempt) / MEDIATED
                guarded(lambda: write_whole(path, msgspec.json.encode(MediatedAtHost(devices))))
            self._make_missing(devices)

    def again(self, instance: InstanceUuid, attempt: int) -> None:
        """Make what an attempt has once more, before its guest starts: the host may have been switched off.

        Raises DriverError, libvirt.libvirtError.
        """
        devices = self._of(instance, attempt)
        if devices:
            with self._changing:
                self._make_missing(devices)

    def let_go(self, instance: InstanceUuid, attempt: int) -> None:
        """Remove the devices of an attempt, whose guest does not run. Raises DriverError, libvirt.libvirtError."""
        devices = self._of(instance, attempt)
        if not devices:
            return
        with self._changing:
            there = self._there()
            for one in devices:
                if one.uuid in there:
                    _remove(there[one.uuid])
        guarded(lambda: self._path(instance, attempt).unlink(missing_ok=True))

    def _make_missing(self, devices: Iterable[MediatedDevice]) -> None:
        there = self._there()
        for one in devices:
            if one.uuid not in there:
                self._connection.get().nodeDeviceCreateXML(device_xml(one), 0)

    def _offers(self) -> tuple[Offer, ...]:
        found = (read_parent(one.XMLDesc(0)) for one in self._connection.get().listAllDevices(_PARENTS))
        return offers(self._offered, (one for one in found if one is not None))

    def _there(self) -> dict[str, libvirt.virNodeDevice]:
        """Return the mediated devices of the host, by their UUIDs."""
        found = {}
        for one in self._connection.get().listAllDevices(_MADE):
            try:
                found[read_uuid(one.XMLDesc(0))] = one
            except libvirt.libvirtError as error:
                if not _is_gone(error):
                    raise
        return found

    def _of(self, instance: InstanceUuid, attempt: int) -> tuple[MediatedDevice, ...]:
        return _read(self._path(instance, attempt))

    def _path(self, instance: InstanceUuid, attempt: int) -> Path:
        return self._disks.place(instance, attempt) / MEDIATED


def _part_of(offer: Offer | None, provider: str) -> MediatedDevice:
    if offer is None:
        raise DriverError(UNAVAILABLE, f"the host offers no {provider} any more")
    return MediatedDevice(uuid=new_uuid(), provider=provider, parent=offer.parent.name, type=offer.entry.type)


def _remove(device: libvirt.virNodeDevice) -> None:
    try:
        device.destroy()
    except libvirt.libvirtError as error:
        if not _is_gone(error):
            raise


def _is_gone(error: libvirt.libvirtError) -> bool:
    return bool(error.get_error_code() == libvirt.VIR_ERR_NO_NODE_DEVICE)


def _read(path: Path) -> tuple[MediatedDevice, ...]:
    """Return what a file says; nothing where it is not there. Raises DriverError."""
    try:
        return _decoder.decode(path.read_bytes()).devices
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        raise DriverError("StorageUnavailable", f"{path}: {error}") from error
