"""Rows that cannot be decoded: each is logged and left out, and nobody waits on it or behind it.

A column may hold what no release could have written (a damaged file, a hand in the database). One such row must not
stop the pass that reads it together with others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from skep.database.cell import numbers
from skep.database.cell.tables import instances
from skep.database.cell.transitions import moving
from skep.database.stored import dump
from skep.domain.instances import Fault, State
from skep.domain.states import PLACELESS
from skep.telemetry.logs import get_logger

T = TypeVar("T")
row = instances.c
log = get_logger(__name__)

_NOT_BEGUN = PLACELESS | {State.SCHEDULED}
"""No host has begun with the build of such a row."""
_WRONG = (msgspec.MsgspecError, ValueError)


def sifted(connection: sa.Connection, found: Iterable[Any], decode: Callable[[Any], T], now: int) -> list[T]:
    """Decode rows that have `uuid` and `attempt`; one that cannot be read becomes ERROR, so it is found once only."""
    decoded = []
    for one in found:
        value = or_none(one, decode)
        if value is None:
            give_up(connection, one.uuid, one.attempt, now)
        else:
            decoded.append(value)
    return decoded


def or_none(found: Any, decode: Callable[[Any], T]) -> T | None:
    """Decode a row that has a `uuid`; None, and said in the log, when it cannot be read."""
    try:
        return decode(found)
    except _WRONG as error:
        log.error("row cannot be read", instance=found.uuid, error=str(error))
        return None


def give_up(connection: sa.Connection, uuid: str, attempt: int, now: int) -> None:
    """Write ERROR and raise the attempt, so that a host which was told of it undoes it. Nothing is decoded for it."""
    fault = Fault(code=500, message="The record of the server is damaged and cannot be read", created_at=now)
    connection.execute(
        instances.update()
        .where(
            row.uuid == uuid,
            row.attempt == attempt,
            row.task.is_(None),
            moving(_NOT_BEGUN, State.ERROR),
        )
        .values(
            state=State.ERROR.value,
            **numbers.raised(),
            host=None,
            node=None,
            fault=dump(fault),
            secrets=None,
            owner=None,
            sent_at=None,
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    )
