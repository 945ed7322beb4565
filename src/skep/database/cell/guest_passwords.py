"""The password that a guest has told of itself: encrypted, so that only who has the key of its server can read it."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell.tables import instances
from skep.database.constants import constants
from skep.domain.ids import InstanceUuid
from skep.domain.states import FROZEN

row = instances.c


def get(connection: sa.Connection, uuid: InstanceUuid) -> str:
    """Return what the guest has told; empty: nothing."""
    found = connection.execute(sa.select(row.guest_password).where(row.uuid == uuid)).scalar_one_or_none()
    return found or ""


def tell(connection: sa.Connection, uuid: InstanceUuid, password: str, now: int) -> bool:
    """Store what a guest tells of itself, unless it has told something; tell whether it was stored."""
    return _write(connection, uuid, password, now, row.guest_password.is_(None))


def clear(connection: sa.Connection, uuid: InstanceUuid, now: int) -> None:
    """Forget it, so that the guest may tell another."""
    _write(connection, uuid, None, now, row.guest_password.is_not(None))


def _write(
    connection: sa.Connection, uuid: InstanceUuid, password: str | None, now: int, only: sa.ColumnElement[bool]
) -> bool:
    statement = instances.update().where(
        row.uuid == uuid, row.deleted_at.is_(None), row.state.not_in(constants(FROZEN)), only
    )
    changed = statement.values(guest_password=password or None, updated_at=now, changed_at=now)
    return connection.execute(changed).rowcount > 0
