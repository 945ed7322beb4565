"""The consoles of fake hosts: lines to the serial line and the screen of a guest that runs."""

from __future__ import annotations

import abc

from skep.compute.drivers.base import Guest
from skep.compute.drivers.fake_screen import FakeScreenLine
from skep.compute.drivers.fake_serial import FakeSerialLine, running
from skep.compute.drivers.guest_log import GuestLog
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState


class FakeLines(abc.ABC):
    """The capabilities `serial_console` and `vnc_console` of fake hosts."""

    _log: GuestLog

    @abc.abstractmethod
    async def _operate(self, operation: str, instance: InstanceUuid) -> Guest:
        """Return the guest that is there. Raises DriverError, also when a rule says so."""

    async def serial_line(self, instance: InstanceUuid) -> FakeSerialLine:
        """Connect to a guest that answers with its name."""
        await self._operate("serial_line", instance)
        return FakeSerialLine(lambda: self._running(instance))

    async def vnc_line(self, instance: InstanceUuid) -> FakeScreenLine:
        """Connect to a screen that shows the colour of the guest."""
        await self._operate("vnc_line", instance)
        return FakeScreenLine(lambda: self._running(instance))

    def _running(self, instance: InstanceUuid) -> Guest:
        guest = self._log.guests.get(instance)
        return running(guest, instance, lambda one: one.power_state is PowerState.RUNNING)
