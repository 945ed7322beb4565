"""The driver of a host that plugs ports into networks of its own: `networks = "bridge"`."""

from __future__ import annotations

import asyncio

from skep.compute.drivers.libvirt.driver import LibvirtDriver, named
from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver
from skep.domain.host_networks import HostNetworks


class BridgedLibvirtDriver(LibvirtDriver):
    """A driver that makes its host so that guests have their networks."""

    def tunnel_address(self) -> str:
        """Return where other hosts reach this one by VXLAN; empty: they do not."""
        assert self._bridged is not None
        return self._bridged.tunnel_address

    async def networks(self, wanted: HostNetworks) -> None:
        """Make the host so. Done again it changes nothing; cut at any point, the next call makes it whole.

        Raises DriverError: `NetworksRefused` for what is no address or id, `NetworksUnavailable`.
        """
        bridged = self._bridged
        assert bridged is not None

        def work() -> None:
            named(lambda: bridged.make_so(wanted, self._domains.taps), "NetworksUnavailable")

        await asyncio.get_running_loop().run_in_executor(self._workers, work)


class BridgedLiveMigratingLibvirtDriver(BridgedLibvirtDriver, LiveMigratingLibvirtDriver):
    """The same of a host whose libvirtd other hosts reach."""
