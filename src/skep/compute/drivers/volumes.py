"""What drivers do with volumes that guests use: put another one in the place of one, tell of one that has grown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from skep.compute.drivers.live import Copying
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.volumes import AssistSnapshot, ConnectedVolume, ExtendedVolume, SwapVolume

SWAP_ABORTED = "VolumeSwapAborted"
"""The error of a swap that is to come to nothing."""


@runtime_checkable
class VolumeDriver(Protocol):
    """The capability `attach_volume`, of a driver that connects volumes to its host."""

    async def connect_volumes(self, instance: InstanceUuid, attempt: int, volumes: Sequence[ConnectedVolume]) -> None:
        """Connect the volumes of an attempt to this host, in place of all that it had before; the guest of the attempt
        is made afterwards, and has them among its disks, the one with the boot index 0 first.

        What is connected bears the label of the attempt: `put_aside`, `undo` of any resource of the attempt and
        `destroy` let go of it. There may be passwords in what is told, which stand in no log and in no file that other
        users can read. Raises DriverError, `VolumeNotSupported` for a kind of volume that cannot be connected here;
        nothing of the attempt is connected then.
        """

    async def attach_volume(self, instance: InstanceUuid, attempt: int, volume: ConnectedVolume) -> PowerState:
        """Connect one more volume and give it to a guest, at once if that runs; one that it has stays.

        Return how the guest is. Raises DriverError; the volume is not connected then.
        """

    async def detach_volume(self, instance: InstanceUuid, attempt: int, volume_id: str) -> PowerState:
        """Take a volume from a guest and let go of it; one that it has not is no error.

        Return how the guest is. Raises DriverError, `VolumeInUse` where the guest does not let go of it in time; it
        keeps the volume then.
        """


@runtime_checkable
class EncryptedVolumes(Protocol):
    """The capability `encrypted_volume`, of a driver with `attach_volume` that may have it."""

    @property
    def decrypts_volumes(self) -> bool:
        """Whether guests can read what the volume service has encrypted (`encrypted` in the data of a connection).

        Otherwise `VolumeEncryptionNotSupported` is the error of such a volume.
        """
        ...


@runtime_checkable
class VolumeSwapDriver(Protocol):
    """The capability `swap_volume`."""

    async def swap_volume(self, instance: InstanceUuid, swap: SwapVolume, copying: Copying) -> PowerState:
        """Copy a volume that a guest uses to another one, while the guest goes on, and let it go on with that.

        Both volumes are connected to this host, by their attachments. The guest uses the one or the other at any time,
        and once the call returned the other one. May be called anew after it was interrupted: returns at once where the
        guest uses the other volume already, as the attachment shows. It does what is wished in `copying`: an abort
        raises DriverError `VolumeSwapAborted`. Return how the guest is. Raises DriverError; the guest uses the old
        volume then, and nothing writes to the other one any more.
        """


@runtime_checkable
class OtherVolumeDriver(Protocol):
    """What a driver with the capability `swap_volume` has besides where it connects volumes itself."""

    async def connect_other(
        self, instance: InstanceUuid, attempt: int, swap: SwapVolume, volume: ConnectedVolume
    ) -> None:
        """Connect the other volume of a swap to this host, before each call of `swap_volume`.

        No error where it is connected already, or the guest uses it. `swap_volume` lets go of the old volume, and where
        it raises of the other one; so does all that lets go of what an attempt has connected. Raises DriverError; the
        other volume is not connected then.
        """


@runtime_checkable
class VolumeExtendDriver(Protocol):
    """The capability `extend_volume`."""

    async def extend_volume(self, instance: InstanceUuid, volumes: Sequence[ExtendedVolume]) -> PowerState:
        """Have a guest see volumes that it uses as large as they are now; one that does not run sees it once it does.

        A volume that the guest has so already stays as it is. Return how the guest is. Raises DriverError.
        """


@runtime_checkable
class AssistedSnapshotDriver(Protocol):
    """The capability `assisted_snapshot`: the volume service keeps volumes as files, and only the hypervisor of a guest
    that uses one can change which file it writes to."""

    async def create_volume_snapshot(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> PowerState:
        """Have a guest write to `new_file` from one moment on; the file that it wrote to is the snapshot.

        The volume service has made the new file, on top of the other one and beside it. Where the guest writes to it
        already nothing is done. Return how the guest is, which goes on. Raises DriverError; the guest is as it was
        then.
        """

    async def delete_volume_snapshot(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> PowerState:
        """Merge a file of a volume into another one while a guest uses the volume, so that the service can delete it.

        Where that was done before nothing is done. Return how the guest is, which goes on. Raises DriverError; the
        guest can use the volume then as before.
        """
