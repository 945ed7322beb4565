"""The capability `live_migrate`: a guest that runs goes to another host."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Protocol, runtime_checkable

from skep.compute.drivers.base import DriverError
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.moves import ABORTED
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.domain.server_migrations import CopyFigures


class Copying:
    """The copying of one guest, or of a volume of it: how far it is, and what is wished of it."""

    def __init__(self, aborted: str = ABORTED) -> None:
        """`aborted`: the name of the error once it is to come to nothing."""
        self._error = aborted
        self.figures: CopyFigures | None = None
        """How far it is, as the driver said last."""
        self.hurried = False
        """The guest may be paused now, or go on on the target before all is there, so that the copying ends."""
        self._aborted = False
        self._wished = asyncio.Event()

    def wish(self, word: str) -> None:
        """Have it come to nothing (`abort`), or end by pausing the guest (`complete`); any other word is none."""
        if word == "abort":
            self._aborted = True
        elif word == "complete":
            self.hurried = True
        else:
            return
        self._wished.set()

    @property
    def aborted(self) -> bool:
        """Whether it is to come to nothing."""
        return self._aborted

    def check(self) -> None:
        """Raise DriverError once it is to come to nothing: of a guest, `LiveMigrationAborted`."""
        if self._aborted:
            raise DriverError(self._error, "the copying was aborted")

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until something is wished that was not before. Raises as `check`."""
        self.check()
        self._wished.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wished.wait()
        self.check()


@runtime_checkable
class GuestsAhead(Protocol):
    """What a driver with the capability `live_migrate` has besides whose guests may go on before `take_over`."""

    @property
    def guests_go_ahead(self) -> bool:
        """Whether those of this host may now, as with post-copy: one that is off here may run on the target."""


@runtime_checkable
class LiveMigrationDriver(Protocol):
    """The capability `live_migrate`: a guest goes to another host without being stopped first.

    Both sides are told of a directory that both hosts see, `place`, of this move and target attempt alone: there the
    target says what the source needs to know, and what has no other way may go through it. The guest of one side runs
    at most: the target's not before `take_over`, which comes after `hand_over` has returned on the source.
    """

    async def await_guest(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None,
        place: Path,
    ) -> None:
        """Target: make all resources of the plan, and what a guest can be copied into. Raises DriverError.

        It is not whole and does not run. What is there already stays, with all that was copied into it. A driver that
        connects volumes (`VolumeDriver`) was told of those of the attempt before.
        """

    async def copy_guest(self, instance: InstanceUuid, attempt: int, place: Path, copying: Copying) -> None:
        """Source: copy memory and disks of a guest, which goes on meanwhile; return once little enough is left.

        It says in `copying.figures` how far it is, and does what is wished there: an abort raises DriverError
        `LiveMigrationAborted`. A guest that was paused is copied as it is. May be called anew after it was interrupted;
        returns at once for a guest that is handed over, for which an abort is too late. Raises DriverError; the guest
        is as it was then. Where the hypervisor cannot be held before the end, it only sees that the guest can go.
        """

    async def hand_over(self, instance: InstanceUuid, attempt: int, place: Path) -> None:
        """Source: stop the guest for good, copy what is left, and remove the guest from the hypervisor.

        Its disks stay until the attempt is undone; its volumes this host lets go of. One that is handed over already is
        no error. What `copy_guest` could not copy beforehand is copied now, while the guest goes on; the `Copying` that
        it was given counts on until this returns, its wishes and its figures. Raises DriverError as long as the guest
        can go on here, and only then.
        """

    async def go_on(self, instance: InstanceUuid, attempt: int, *, start: bool) -> PowerState:
        """Source: the guest was not handed over; return how it is.

        With `start` it goes on if it is paused; without, it stays so. One that stopped by itself stays stopped. Raises
        DriverError, `InstanceNotFound` where there is none, or it was handed over after all.
        """

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
        """Target: make the guest that was handed over whole, and let it go on (`start`) or stay paused.

        One that is there already under this attempt stays as it is. Raises DriverError, `InstanceExists` where a guest
        of another attempt is in the way.
        """
