"""What drivers do with interfaces of guests that are there."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.vifs import Vif


@runtime_checkable
class InterfaceDriver(Protocol):
    """The capability `attach_interface`, of a driver that may have it: by how it was configured."""

    @property
    def attaches_interfaces(self) -> bool:
        """Whether guests that are there get and lose interfaces; otherwise they do with their next rebuild or move."""
        ...

    async def attach_interface(self, instance: Instance, attempt: int, vif: Vif) -> PowerState:
        """Give an interface to a guest, at once if that runs; one that it has stays.

        `instance`: the server as it was when the guest was made, with this interface alone. What the host brings of its
        network was brought before, where that was possible in time. Return how the guest is. Raises DriverError; the
        guest has it not then.
        """

    async def detach_interface(self, instance: InstanceUuid, attempt: int, vif: Vif) -> PowerState:
        """Take an interface from a guest, and what was made for it on the host; one that it has not is no error.

        Return how the guest is. Raises DriverError, `InterfaceInUse` where the guest does not let go of it in time; it
        keeps the interface then.
        """
