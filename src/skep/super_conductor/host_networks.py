"""The story of networks on hosts: a conductor asks in the name of a host of its cell, and the network service is asked.

Cells and hosts have no credentials of the network service and never see its database. A cell hears of its own hosts
only: of networks, rules and addresses of those servers that it has.
"""

from __future__ import annotations

from functools import partial

from skep.database.api import host_mappings
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden, Unavailable
from skep.domain.host_networks import HostNetworkChanges, packed
from skep.domain.ids import CellUuid
from skep.messages.to_super_conductor import HostNetworksSeen, LookAtHostNetworks, ReadNetworkChanges
from skep.super_conductor.parts import Parts

BY_OTHERS = HostNetworksSeen(brought=False)


class NetworksOnHosts:
    """Answers conductors."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def look(
        self, cell: CellUuid, message: LookAtHostNetworks, _context: RequestContext | None
    ) -> HostNetworksSeen:
        """Return what a host has to bring.

        Raises Forbidden for a host of another cell, Unavailable for one that is not mapped yet, and when the network
        service does not answer.
        """
        _check(cell, message.cell)
        mapping = await self._parts.api.read(partial(host_mappings.of_host, host=message.host))
        if mapping is None:
            raise Unavailable(f"Host {message.host} is not mapped to its cell yet.")
        if mapping.cell != cell:
            raise Forbidden(f"host: {message.host} is not of cell {cell}.")
        found = await self._parts.networks.look_at_host(message.host, message.tunnel_address)
        if found is None:
            return BY_OTHERS
        known = found.networks.version == message.version
        small = packed(found.networks) if message.unpacks and not known else None
        return HostNetworksSeen(
            version=found.networks.version,
            networks=None if known or small is not None else found.networks,
            packed=small,
            subjects=found.subjects,
            change=found.change,
        )

    async def changes(
        self, cell: CellUuid, message: ReadNetworkChanges, _context: RequestContext | None
    ) -> HostNetworkChanges:
        """Return what changed since. Raises Unavailable when the network service does not answer."""
        _check(cell, message.cell)
        found = await self._parts.networks.host_changes(message.since)
        # Another network service has taken the place of the one that told the conductor: nothing of that is so.
        return HostNetworkChanges(change=0, many=True) if found is None else found


def _check(cell: CellUuid, named: CellUuid) -> None:
    """Raise Forbidden where a cell asks for another."""
    if named != cell:
        raise Forbidden(f"cell: cell {cell} may not name cell {named}.")
