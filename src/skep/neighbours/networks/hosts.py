"""The port towards what hosts bring of networks to their guests, where the network service has no agents of its own."""

from __future__ import annotations

from typing import Protocol

from skep.domain.host_networks import HostLook, HostNetworkChanges


class NetworksOfHosts(Protocol):
    """Says what a host has to bring, in Skep's own name."""

    async def look_at_host(self, host: str, tunnel_address: str | None) -> HostLook | None:
        """Return what a host has to bring, and remember where other hosts reach it (None: nowhere).

        A host that is bound to no port brings nothing. None: other agents bring networks, as Neutron's do. Raises
        Unavailable when the service does not answer.
        """
        ...

    async def host_changes(self, since: int) -> HostNetworkChanges | None:
        """Return what changed after a change that a look, or an answer of this, named; 0: after the first.

        None: as `look_at_host`. Raises Unavailable when the service does not answer.
        """
        ...


class BroughtByOthers:
    """No networks, or those that agents of another network service bring: Skep's hosts have none to bring."""

    async def look_at_host(self, _host: str, _tunnel_address: str | None) -> HostLook | None:
        """Say that others do."""
        return None

    async def host_changes(self, _since: int) -> HostNetworkChanges | None:
        """Say that others know."""
        return None
