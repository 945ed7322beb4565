"""What hosts bring of networks: looked at for one host, which says where its tunnel is."""

from __future__ import annotations

from functools import partial

from skep.database import Connection
from skep.database.api import host_networks, network_changes
from skep.database.engine import Database
from skep.domain.clock import SECOND, Clock
from skep.domain.errors import Unavailable
from skep.domain.host_networks import HostLook

SILENT_SECONDS = 86_400
"""A host that has not said for so long where its tunnel is counts as gone. It is a day, for guests outlive their host's
agent: as long as ports are bound to the host the others send it what is for them."""
SAID_AGAIN_SECONDS = SILENT_SECONDS // 4
"""So old may be what is remembered of a host that speaks: not each of its questions is written down."""
TRIES = 3


async def look(database: Database, clock: Clock, host: str, tunnel_address: str | None) -> HostLook:
    """Return what a host has to bring. Raises Unavailable where networks come faster than they get numbers."""
    now = clock.now()
    heard_since = now - SILENT_SECONDS * SECOND
    said_since = now - SAID_AGAIN_SECONDS * SECOND

    def reading(connection: Connection) -> HostLook | list[str] | None:
        known = host_networks.tunnel_is_known(connection, host, tunnel_address, said_since)
        return host_networks.look(connection, host, heard_since) if known else None

    def saying(connection: Connection) -> None:
        host_networks.note_tunnel(connection, host, tunnel_address, now, heard_since)

    for _ in range(TRIES):
        found = await database.read(reading)
        if isinstance(found, HostLook):
            return found
        if found is None:
            await database.write(saying)
        else:
            await database.write(partial(network_changes.number, network_ids=found))
    raise Unavailable(f"the networks of host {host} changed while they were read")
