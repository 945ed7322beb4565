"""How fake guests that run go to other hosts: through files in the place of the move, which show what was copied.

The memory of a guest is the name of its boot (`GuestLog.memories`): a guest that goes on elsewhere has the same.
"""

from __future__ import annotations

import abc
import asyncio
import hashlib
import shutil
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError, Guest
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.fake_inside import GuestInsides
from skep.compute.drivers.guest_log import EventName, GuestLog
from skep.compute.drivers.live import Copying
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.providers import Allocation
from skep.domain.resources import DISK_GB, MEMORY_MB, Resources
from skep.domain.server_migrations import CopyFigures

SLICES = 4
SHORTEST_ROUND = 0.01
"""Seconds of a further round for what was written meanwhile, where slices take no time."""
MIB, GIB = 2**20, 2**30
HANDED_OVER = "handed-over.json"
DISK, INSIDE, ROOT = "disk", "inside", "root"


class HandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """What a source has left in the place of a move: whole, and never changed again."""

    memory: str
    digests: dict[str, str]
    """By the names of files beside it."""


class FakeLiveMigration(abc.ABC):
    """The capability `live_migrate` of fake hosts."""

    _host: str
    _log: GuestLog
    _inside: GuestInsides
    _disks: FakeDisks

    @property
    @abc.abstractmethod
    def copy_delay(self) -> float:
        """Seconds that each slice takes."""

    @abc.abstractmethod
    def _get_connected(self, guest: Guest) -> None:
        """Give a guest that is there the volumes that were connected for it."""

    @abc.abstractmethod
    async def _fail(self, operation: str, server: str = "") -> None:
        """Raise DriverError when a rule says so."""

    @abc.abstractmethod
    def _write(
        self,
        event: EventName,
        instance: InstanceUuid,
        attempt: int,
        *,
        name: str = "",
        resources: Resources | None = None,
        allocation: Allocation | None = None,
        hard: bool = False,
        kept: bool = False,
        left: PowerState | None = None,
        rescued: bool = False,
        memory: str = "",
    ) -> None:
        """Write down what happened to a guest."""

    async def await_guest(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,  # noqa: ARG002
        allocation: Allocation | None,  # noqa: ARG002
        place: Path,
    ) -> None:
        """Make the disk, and the place where the source writes."""
        await self._fail("await_guest", instance.name)
        self._disks.make(instance.uuid, attempt)
        try:
            await asyncio.to_thread(place.mkdir, mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    async def copy_guest(self, instance: InstanceUuid, attempt: int, place: Path, copying: Copying) -> None:
        """Copy in slices, each of which takes its time; then in rounds, as long as a rule `converge` fails."""
        if self._is_handed_over(instance, attempt, place):
            return
        copying.check()
        guest = self._guest(instance, attempt)
        await self._fail("copy_guest", guest.name)
        memory, disk = guest.resources.get(MEMORY_MB, 0) * MIB, guest.resources.get(DISK_GB, 0) * GIB
        for done in range(SLICES + 1):
            copying.figures = CopyFigures(
                memory, memory * done // SLICES, memory - memory * done // SLICES,
                disk, disk * done // SLICES, disk - disk * done // SLICES,
            )  # fmt: skip
            if done < SLICES and self.copy_delay:
                await copying.pause(self.copy_delay)
        await _copied(self._disks.path(instance, attempt), place / DISK)
        while not copying.hurried and not await self._converges(guest):
            before, again = copying.figures or CopyFigures(), memory // SLICES
            copying.figures = CopyFigures(
                memory, before.memory_processed + again, again, disk, before.disk_processed, 0
            )
            await copying.pause(max(self.copy_delay, SHORTEST_ROUND))
        copying.check()
        self._guest(instance, attempt)

    async def hand_over(self, instance: InstanceUuid, attempt: int, place: Path) -> None:
        """Pause the guest, copy all once more, then let go of it."""
        if self._is_handed_over(instance, attempt, place):
            return
        guest = self._guest(instance, attempt)
        memory = self._log.memories.get(instance, "")
        if guest.power_state is PowerState.RUNNING:
            self._write("powered_off", instance, attempt, left=PowerState.PAUSED)
        await self._fail("hand_over", guest.name)
        self._inside.lay_aside(instance, attempt)
        files = {
            DISK: self._disks.path(instance, attempt),
            INSIDE: self._inside.kept(instance, attempt),
            ROOT: self._disks.kept_root(instance, attempt),
        }
        left = {name: path for name, path in files.items() if path is not None and path.exists()}
        for name, path in left.items():
            await _copied(path, place / name)
        said = HandedOver(memory=memory, digests={name: _digest(place / name) for name in left})
        try:
            fresh = place / f"{HANDED_OVER}.new"
            fresh.write_bytes(msgspec.json.encode(said))
            fresh.replace(place / HANDED_OVER)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error
        self._write("destroyed", instance, attempt, kept=True)

    async def go_on(self, instance: InstanceUuid, attempt: int, *, start: bool) -> PowerState:
        """Let the guest go on here."""
        guest = self._guest(instance, attempt)
        await self._fail("go_on", guest.name)
        self._inside.take_up(instance, attempt)
        if start and guest.power_state is PowerState.PAUSED:
            self._write("powered_on", instance, attempt)
            return PowerState.RUNNING
        return guest.power_state

    async def take_over(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None,
        place: Path,
        *,
        start: bool,
    ) -> PowerState:
        """Make the guest of what was copied, with the memory that it had."""
        uuid = instance.uuid
        there = self._log.guests.get(uuid)
        if there is not None and there.attempt != attempt:
            raise DriverError("InstanceExists", f"{uuid} is there already, made by attempt {there.attempt}")
        if there is not None and there.whole:
            self._get_connected(there)
            return there.power_state
        said = _handed_over(place)
        if said is None:
            raise DriverError("InstanceNotFound", f"{uuid} was not handed over")
        damaged = [name for name, digest in said.digests.items() if _digest(place / name) != digest]
        if damaged:
            raise DriverError("StorageUnavailable", f"{', '.join(damaged)} differs from what was handed over")
        if there is None:
            self._write("spawn_begun", uuid, attempt, name=instance.name, resources=resources, allocation=allocation)
        await self._fail("take_over", instance.name)
        left = {name: place / name for name in said.digests}
        await self._disks.copy(uuid, attempt, left[DISK], instance.flavor.root_gb, left.get(ROOT))
        self._inside.copy(uuid, attempt, left.get(INSIDE))
        self._inside.take_up(uuid, attempt)
        if start:
            self._write("spawned", uuid, attempt, memory=said.memory)
        else:
            self._write("powered_off", uuid, attempt, left=PowerState.PAUSED, memory=said.memory)
        self._get_connected(self._log.guests[uuid])
        return PowerState.RUNNING if start else PowerState.PAUSED

    async def _converges(self, guest: Guest) -> bool:
        """Tell whether the guest writes more slowly than it is copied: a rule `converge` that fails says no."""
        try:
            await self._fail("converge", guest.name)
        except DriverError:
            return False
        return True

    def _is_handed_over(self, instance: InstanceUuid, attempt: int, place: Path) -> bool:
        there = self._log.guests.get(instance)
        return (there is None or there.attempt != attempt) and _handed_over(place) is not None

    def _guest(self, instance: InstanceUuid, attempt: int) -> Guest:
        guest = self._log.guests.get(instance)
        if guest is None or guest.attempt != attempt or not guest.whole:
            raise DriverError("InstanceNotFound", f"there is no guest {instance} of attempt {attempt} on {self._host}")
        return guest


def _handed_over(place: Path) -> HandedOver | None:
    try:
        return json_decoder(HandedOver).decode((place / HANDED_OVER).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise DriverError("StorageUnavailable", str(error)) from error


async def _copied(source: Path, target: Path) -> None:
    try:
        await asyncio.to_thread(shutil.copyfile, source, target)
    except OSError as error:
        raise DriverError("StorageUnavailable", str(error)) from error


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DriverError("StorageUnavailable", str(error)) from error
