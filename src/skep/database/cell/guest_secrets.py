"""The sealed password and files of a server, for the host that builds it."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.cell import sessions
from skep.database.cell.tables import instances
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.states import BUILT_BY_HOST, stored

row = instances.c


class GuestSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be opened, and for whom."""

    sealed: bytes
    exchange_key: bytes | None
    """Of the latest run of the host's agent; None for one that has begun no session."""


def for_host(connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str) -> GuestSecrets | None:
    """Return the secrets of a server that this host builds by this attempt; None when it does not, or has none."""
    # A host asks once it may build; a row that was restored from a backup may be behind it.
    mine = (row.uuid == instance, row.attempt == attempt, row.host == host, row.state.in_(stored(BUILT_BY_HOST)))
    query = sa.select(row.secrets, row.node).where(*mine, row.secrets.is_not(None))
    found = connection.execute(query).first()
    if found is None:
        return None
    session = sessions.of_node(connection, NodeUuid(found.node)) if found.node else None
    return GuestSecrets(sealed=found.secrets, exchange_key=session.exchange_key if session is not None else None)
