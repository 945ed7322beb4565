"""What calls about devices of guests that are there have in common: a lost answer of libvirt is looked for."""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.connection import LibvirtConnection
from skep.compute.drivers.libvirt.domains import GuestDomains
from skep.compute.drivers.libvirt.options import Options
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState

T = TypeVar("T")

log = logging.getLogger(__name__)

PAUSE = 0.2
"""Seconds between two questions whether libvirt answers again."""
AWAY = "HypervisorUnavailable"


class GuestCalls(abc.ABC):
    """Calls of a driver about guests that are there."""

    _connection: LibvirtConnection
    _domains: GuestDomains
    _options: Options

    @abc.abstractmethod
    async def _work(self, instance: InstanceUuid, work: Callable[[], T], *, failure: str = "InternalError") -> T:
        """Do something with a server, after what is being done with it."""

    @abc.abstractmethod
    async def _look(self, look: Callable[[], T]) -> T:
        """Look at something of a server, whatever is being done with it."""

    async def _attached(
        self,
        instance: InstanceUuid,
        attach: Callable[[], PowerState],
        undo: Callable[[], PowerState | None],
        *,
        failure: str,
    ) -> PowerState:
        """Give a device to a guest, or take away what it has got of it, however long libvirt is away meanwhile.

        `undo` returns how the guest is where that has got the device after all, None once it has it not. Raises
        DriverError.
        """
        try:
            return await self._work(instance, attach, failure=failure)
        except DriverError as error:
            left = await self._once_answered(instance, undo, failure=failure)
            if left is None:
                raise
            log.warning("guest %s has got a device all the same: %s", instance, error.message)
            return left

    async def _once_answered(self, instance: InstanceUuid, work: Callable[[], T], *, failure: str) -> T:
        """Do something about a guest that a lost answer of libvirt has left in doubt, however long libvirt is away.

        Raises DriverError for what libvirt refuses once it answers.
        """
        answers = is_told = False
        while True:
            try:
                return await self._work(instance, work, failure=AWAY)
            except DriverError as error:
                if error.error != AWAY:
                    raise
                if answers:
                    raise DriverError(failure, error.message) from error
                if not is_told:
                    log.warning("what became of a device of %s is not known yet: %s", instance, error.message)
                is_told = True
            answers = await self._answers()

    async def _answers(self) -> bool:
        """Tell whether libvirt answers, a moment later where it does not."""
        try:
            await self._look(lambda: self._connection.get().getLibVersion())
        except DriverError:
            await asyncio.sleep(PAUSE)
            return False
        return True
