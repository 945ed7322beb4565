"""What goes to the host that builds a server, and to that host alone: the sealed password and files, tickets."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.cell import sessions
from skep.database.cell.tables import instances
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.states import BUILD_OVER, BUILT_BY_HOST, stored

row = instances.c

_NEEDLESS = sa.and_(row.state.in_(stored(BUILD_OVER)), row.secrets.is_not(None))


class GuestSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be opened, and for whom."""

    sealed: bytes
    exchange_key: bytes | None
    """Of the latest run of the host's agent; None for one that has begun no session."""


def for_host(connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str) -> GuestSecrets | None:
    """Return the secrets of a server that this host builds by this attempt; None when it does not, or has none."""
    query = sa.select(row.secrets, row.node).where(*_builds(instance, attempt, host), row.secrets.is_not(None))
    found = connection.execute(query).first()
    if found is None:
        return None
    return GuestSecrets(sealed=found.secrets, exchange_key=_exchange_key(connection, found.node))


def exchange_key_of_builder(connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str) -> bytes | None:
    """Return the key for what only the host's agent may read; None unless it builds this server by this attempt."""
    found = connection.execute(sa.select(row.node).where(*_builds(instance, attempt, host))).first()
    return None if found is None else _exchange_key(connection, found.node)


def _builds(instance: InstanceUuid, attempt: int, host: str) -> tuple[sa.ColumnElement[bool], ...]:
    # A host asks once it may build; a row that was restored from a backup may be behind it.
    return (row.uuid == instance, row.attempt == attempt, row.host == host, row.state.in_(stored(BUILT_BY_HOST)))


def _exchange_key(connection: sa.Connection, node: str | None) -> bytes | None:
    session = sessions.of_node(connection, NodeUuid(node)) if node else None
    return session.exchange_key if session is not None else None


def needless(connection: sa.Connection) -> list[tuple[InstanceUuid, str]]:
    """Return the instances whose secrets are still stored although their build is over, each with its state."""
    rows = connection.execute(sa.select(row.uuid, row.state).where(_NEEDLESS))
    return [(InstanceUuid(one.uuid), one.state) for one in rows]


def erase_needless(connection: sa.Connection, uuid: str) -> bool:
    """Erase the secrets of an instance if its build is over; tell whether it had any."""
    return connection.execute(instances.update().where(row.uuid == uuid, _NEEDLESS).values(secrets=None)).rowcount > 0


def sealed(connection: sa.Connection) -> list[bytes]:
    """Return the secrets of all instances."""
    return list(connection.scalars(sa.select(row.secrets).where(row.secrets.is_not(None))))
