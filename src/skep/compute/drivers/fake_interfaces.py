"""The interfaces that fake guests get while they are there, on paper: they stand in the log of the host."""

from __future__ import annotations

import abc

import msgspec

from skep.compute.drivers.base import DriverError, Guest
from skep.compute.drivers.fake_volumes import as_it_is
from skep.compute.drivers.guest_log import GuestEvent, GuestLog, InterfaceOnPaper
from skep.domain.clock import Clock
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.vifs import Vif


class FakeInterfaces(abc.ABC):
    """The capability `attach_interface` of fake hosts."""

    _log: GuestLog
    _clock: Clock

    @property
    @abc.abstractmethod
    def attaches_interfaces(self) -> bool:
        """Whether guests that are there get and lose interfaces."""

    @abc.abstractmethod
    async def _operate(self, operation: str, instance: InstanceUuid) -> Guest:
        """Take the operation's time and return the guest that it is about."""

    @abc.abstractmethod
    def _append(self, happened: GuestEvent) -> None:
        """Write down what happened to a guest."""

    async def attach_interface(self, instance: Instance, attempt: int, vif: Vif) -> PowerState:
        """Write down that the guest has it."""
        guest = await self._of_attempt("attach_interface", instance.uuid, attempt)
        if vif.id not in self.interfaces(instance.uuid):
            self._write_interface(guest, InterfaceOnPaper(port_id=vif.id))
        return guest.power_state

    async def detach_interface(self, instance: InstanceUuid, attempt: int, vif: Vif) -> PowerState:
        """Write down that the guest has it no more."""
        guest = await self._of_attempt("detach_interface", instance, attempt)
        if vif.id in self.interfaces(instance):
            self._write_interface(guest, InterfaceOnPaper(port_id=vif.id, gone=True))
        return guest.power_state

    def interfaces(self, instance: InstanceUuid) -> set[str]:
        """Return the ports of the interfaces that a guest got while it was there and has still."""
        return set(self._log.interfaces.get(instance, ()))

    def _write_interface(self, guest: Guest, interface: InterfaceOnPaper) -> None:
        self._append(msgspec.structs.replace(as_it_is(guest, self._clock.now()), interface=interface))

    async def _of_attempt(self, operation: str, instance: InstanceUuid, attempt: int) -> Guest:
        guest = await self._operate(operation, instance)
        if guest.attempt != attempt:
            raise DriverError("InstanceNotFound", f"there is no guest {instance} of attempt {attempt}")
        return guest
