"""Volumes of servers: what a server has of a volume service, beside the disks that it was asked to have."""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from skep.domain.block_devices import USUAL_ROOT, BlockDevice

NOWHERE = ""
"""Value of `ServerVolume.host` where a volume is kept for its server and connected to no host."""


class VolumeSwap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another volume that is to stand in the place of one that a server has, as the row keeps it from the beginning."""

    volume_id: str
    """Of the other one."""
    attachment_id: str
    """By which the other one is kept for the server, and connected to its host."""
    host: str
    task_id: str
    """Of the action."""
    over: bool = False
    """Whether its host has no more to do with it: what is left is the volume service's."""
    copied: bool = False
    """Whether the guest uses the other one by then."""


class SwapVolume(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a swap."""

    device: str
    """The name of the disk in the guest."""
    old_volume_id: str
    old_attachment_id: str
    new_volume_id: str
    new_attachment_id: str


class ExtendedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that has become larger while a server has it."""

    device: str
    """The name of the disk in the guest."""
    volume_id: str
    attachment_id: str
    size: int
    """GiB, as the volume service has it now."""


class ExtendVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of what tells a guest that volumes have become larger."""

    volumes: tuple[ExtendedVolume, ...] = ()


class AssistedSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A snapshot of a volume that a host makes or deletes for the volume service, as the row keeps it meanwhile."""

    snapshot_id: str
    task_id: str
    """Of the action."""
    deletes: bool = False
    over: bool = False
    """Whether its host has no more to do with it: what is left is to tell the volume service."""
    done: bool = False


class AssistSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of what makes or deletes a snapshot of a volume that is a file."""

    device: str
    """The name of the disk in the guest."""
    volume_id: str
    attachment_id: str
    snapshot_id: str
    new_file: str = ""
    """Of one that is made: the name of the file that the guest writes to from then on, which is there."""
    file_to_merge: str | None = None
    """Of one that is deleted: the name of the file that goes; None: the one that the guest writes to."""
    merge_target_file: str | None = None
    """The name of the file into which its content goes; None: the content of what is below goes into the guest's."""


class VolumePlug(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume that a host gives to a guest which is there, or takes from it, as the row keeps it meanwhile."""

    task_id: str
    """Of the action."""
    leaves: bool = False
    over: bool = False
    """Whether its host has no more to do with it: what is left is to tell the volume service."""


class VolumeBeside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By which a volume is connected to a second host, while its server goes there live."""

    attachment_id: str
    """Empty: it is being made."""
    host: str
    maker: str = ""
    """The process that makes it, until it is made."""
    since: int = 0
    """Since when it does."""


class PlugVolume(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of what gives a guest a volume, and of what takes it away."""

    volume_id: str
    attachment_id: str


class EndedSnapshot(msgspec.Struct, frozen=True):
    """An assisted snapshot whose server was deleted before the volume service was told what came of it."""

    snapshot_id: str
    deletes: bool
    done: bool


class EndedSwap(msgspec.Struct, frozen=True):
    """A swap whose server was deleted before the volume service was told what came of it."""

    volume_id: str
    new_volume_id: str
    copied: bool


class ServerVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume that a server has (Nova: a block device mapping whose destination is a volume)."""

    id: str
    """API: `bdm_uuid`"""
    volume_id: str
    attachment_id: str
    """By which the volume service knows that the server has it; empty: it is to be attached anew."""
    device: str
    """The name of the disk in the guest, as users are told it: `/dev/vdb`."""
    host: str = NOWHERE
    """The host that the volume is connected to."""
    delete_on_termination: bool = False
    boot_index: int | None = None
    tag: str | None = None
    is_made: bool = False
    """Whether it was made for the server: it has a label of Skep's."""
    swap: VolumeSwap | None = None
    """While another volume is to stand in its place."""
    snapshot: AssistedSnapshot | None = None
    """While its host makes or deletes one for the volume service."""
    plug: VolumePlug | None = None
    """While its host gives it to the guest, or takes it away."""
    beside: VolumeBeside | None = None
    """While its server goes to another host live: both hosts have it."""
    leaving: bool = False
    """Whether it is taken from the server: the row has decided it, and the volume service has yet to let go of it."""

    @property
    def is_promised(self) -> bool:
        """Whether the volume service waits to hear what came of a swap, of a snapshot, or of a plug."""
        return any(one is not None for one in (self.swap, self.snapshot, self.plug))

    @property
    def is_to_be_told(self) -> bool:
        """Whether the volume service is to be told what came of a swap, of a snapshot, or of a plug."""
        return any(one is not None and one.over for one in (self.swap, self.snapshot, self.plug))

    @property
    def is_root(self) -> bool:
        """Whether its server boots from it."""
        return self.boot_index == 0


class ConnectedVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume of a server, and how the host that it is connected to reaches it.

    There may be passwords in the data, so that they are not shown.
    """

    volume_id: str
    attachment_id: str
    device: str
    """As `ServerVolume.device`."""
    boot_index: int | None = None
    driver: str
    """What kind of connection it is, in the volume service's words: `iscsi`, `rbd` ..."""
    data: dict[str, Any]
    shared: bool = False
    """Whether several servers may have it at a time."""

    def __repr__(self) -> str:
        """Leaves the data out."""
        return f"ConnectedVolume(volume_id={self.volume_id!r}, device={self.device!r}, driver={self.driver!r})"

    @property
    def is_root(self) -> bool:
        """Whether its server boots from it."""
        return self.boot_index == 0


class ConnectedVolumes(msgspec.Struct, frozen=True):
    """What the agent of a host is told of the volumes of a server, in the order in which it got them."""

    volumes: tuple[ConnectedVolume, ...]


class VolumeEnds(msgspec.Struct, frozen=True):
    """What becomes of the volumes that a server has when it is deleted."""

    kept: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    """Those that go with it."""
    swaps: tuple[EndedSwap, ...] = ()
    """Of which the volume service still waits to hear."""
    snapshots: tuple[EndedSnapshot, ...] = ()
    """Likewise."""
    made: tuple[str, ...] = ()
    """Those of `ended` that were made for the server: one that has lost its label is its user's."""
    compared: bool = False
    """Whether `ended` was compared with what the server had of the volume service, before it lost that."""

    @property
    def moved(self) -> set[str]:
        """Volumes that the service was moving, and those that it moved them to."""
        return {one for swap in self.swaps for one in (swap.volume_id, swap.new_volume_id)}

    def compared_with(self, had: Collection[str]) -> VolumeEnds:
        """Return the same without volumes of users that the server does not have; `had`: the volumes that it has.

        The row of a database that went back in time names what its user has taken from the server since, to keep it.
        """
        there = {*had, *(one.volume_id for one in self.swaps if one.new_volume_id in had)}
        ended = tuple(one for one in self.ended if one in there or one in self.made)
        return msgspec.structs.replace(self, ended=ended, compared=True)

    @classmethod
    def of(cls, volumes: Sequence[ServerVolume]) -> VolumeEnds:
        """Return what is to become of these."""
        ended = [one for one in volumes if one.delete_on_termination and not one.leaving]
        return cls(
            kept=tuple(one.volume_id for one in volumes if one.leaving or not one.delete_on_termination),
            ended=tuple(one.volume_id for one in ended),
            made=tuple(one.volume_id for one in ended if one.is_made),
            swaps=tuple(
                EndedSwap(one.volume_id, one.swap.volume_id, one.swap.copied) for one in volumes if one.swap is not None
            ),
            snapshots=tuple(
                EndedSnapshot(one.snapshot.snapshot_id, one.snapshot.deletes, one.snapshot.done)
                for one in volumes
                if one.snapshot is not None
            ),
        )


def staying(volumes: Sequence[ServerVolume]) -> tuple[ServerVolume, ...]:
    """Return the volumes that a server has as its users see it: without those that leave it."""
    return tuple(one for one in volumes if not one.leaving)


def is_volume_backed(devices: Sequence[BlockDevice]) -> bool:
    """Tell whether a server with these disks boots from a volume."""
    return any(one.boot_index == 0 and one.destination_type == "volume" for one in devices)


def root_of(devices: Sequence[BlockDevice]) -> str:
    """Return the name of the disk that a server with these disks boots from."""
    return next((one.device_name for one in devices if one.boot_index == 0 and one.device_name), USUAL_ROOT)


def with_names(devices: Sequence[BlockDevice], root: str = USUAL_ROOT) -> tuple[BlockDevice, ...]:
    """Return the disks of a server with the names that they have in its guest, in the same order.

    A name that was asked for is kept, the boot disk has the name `root` otherwise, and the others get the first free
    ones of the same kind (Nova: "Block Device Mapping in Nova", `device_name`).
    """
    taken = {one.device_name for one in devices if one.device_name}
    named = []
    for one in devices:
        name = one.device_name or (root if one.boot_index == 0 and root not in taken else free_name(taken, root))
        taken.add(name)
        named.append(msgspec.structs.replace(one, device_name=name))
    return tuple(named)


def free_name(taken: Collection[str], root: str = USUAL_ROOT) -> str:
    """Return the first name of a disk that none of these is, of the kind that the boot disk has: `/dev/vdb`."""
    prefix = root.rstrip(string.digits)[:-1]
    letters = string.ascii_lowercase
    names = [*letters[1:], *(first + second for first in letters for second in letters)]
    found: str = next(name for name in (prefix + letter for letter in names) if name not in taken)
    return found


def taken_names(devices: Sequence[BlockDevice], volumes: Sequence[ServerVolume]) -> set[str]:
    """Return the names of the disks that a server has: those of its host among those it was asked to have, and volumes.

    A server whose disks were never listed has one on its host, which it boots from.
    """
    root = root_of(devices)
    local = {one.device_name or "" for one in with_names(devices, root) if one.destination_type == "local"}
    booted = any(one.boot_index == 0 for one in devices)
    return local | {one.device for one in volumes} | (set() if booted else {root})


def initiator_of(host: str) -> str:
    """Return the name by which iSCSI knows a host."""
    return f"iqn.2025-11.org.skep:{host}"


def connector(host: str, volume: ServerVolume) -> Mapping[str, Any]:
    """Return what the volume service is told of a host that is to use a volume (os-brick's connector properties).

    It is made of the host's name, so that it is known before the host is asked: what a host is by iSCSI has to be set
    there (`initiator_of`).
    """
    return {
        "host": host,
        "initiator": initiator_of(host),
        "ip": "127.0.0.1",
        "multipath": False,
        "os_type": "linux",
        "platform": "x86_64",
        "mountpoint": volume.device,
    }
