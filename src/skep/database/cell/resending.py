"""When a host is told again of what it has not answered: soon at first, then less and less often."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.database.cell.tables import attempts, instances, migrations
from skep.domain.clock import SECOND
from skep.domain.ids import NodeUuid
from skep.domain.instances import State

AGAIN_AT_ONCE = 0
"""Stands in `sent_at` when the host was told and is to be told again at once: its agent has started anew."""

LONGEST_PAUSE = 60 * SECOND

DOUBLINGS = 12
"""After so many tellings the pause is the longest, however short the first was."""

NOTHING_COUNTS = 2**62
"""As `progress_before`: no progress is young enough, every step is sent again."""

Time = sa.ColumnElement[Any] | sa.Column[Any]
NOW = sa.bindparam("now", type_=sa.BigInteger)


def asked_at(now: int, resend_before: int, progress_before: int) -> dict[str, int]:
    """Name the parameters of `due` and `told`."""
    return {"now": now, "resend_before": resend_before, "progress_before": progress_before}


def due(sent_at: Time, step_at: Time) -> sa.ColumnElement[bool]:
    """Say of a row that its host is to be told of its step now. Its parameters are those of `asked_at`.

    The pause doubles with the age of the step. A step of which the host reported progress (later than it was told) is
    in its hands, and not sent again until that has become old, which `progress_before` says.
    """
    age = sent_at - step_at
    pause = sa.case((age > LONGEST_PAUSE, LONGEST_PAUSE), else_=age)
    resend_before = sa.bindparam("resend_before", type_=sa.BigInteger)
    progress_before = sa.bindparam("progress_before", type_=sa.BigInteger)
    silent = sa.or_(step_at <= sent_at, step_at < progress_before)
    return sa.or_(
        sent_at.is_(None),
        sent_at == AGAIN_AT_ONCE,
        sa.and_(sent_at < resend_before, sent_at + pause <= NOW, silent),
    )


def told(sent_at: Time, step_at: Time) -> dict[str, Any]:
    """Return the columns of a row whose host is told now. The deadline of a step counts from its first telling."""
    first = sa.or_(sent_at.is_(None), sent_at == AGAIN_AT_ONCE)
    return {"sent_at": NOW, "step_at": sa.case((first, NOW), else_=step_at)}


def asked_by_count(now: int, resend_before: int) -> dict[str, int]:
    """Name the parameters of `due_by_count`."""
    first = now - resend_before
    pauses = {f"pause_{count}": min(first << (count - 1), LONGEST_PAUSE) for count in range(1, DOUBLINGS)}
    return {"now": now, "resend_before": resend_before, **pauses}


def due_by_count(sent_at: Time, sends: Time) -> sa.ColumnElement[bool]:
    """Say of a row without a step of its own that its host is to be told now; the pause doubles with each telling.

    Its parameters are those of `asked_by_count`.
    """
    doubled = sa.case(
        *((sends <= count, sa.bindparam(f"pause_{count}", type_=sa.BigInteger)) for count in range(1, DOUBLINGS)),
        else_=LONGEST_PAUSE,
    )
    before = sa.bindparam("resend_before", type_=sa.BigInteger)
    return sa.or_(sent_at.is_(None), sa.and_(sent_at < before, sent_at + doubled <= NOW))


def host_started(connection: sa.Connection, host: str, node: NodeUuid) -> None:
    """Have a host told again at once of all that it was told before: its agent has started, and may not remember."""
    row = instances.c
    waits = sa.or_(row.state == State.SCHEDULED, row.task.is_not(None))
    connection.execute(
        instances.update()
        .where(row.host == host, waits, row.sent_at.is_not(None), row.deleted_at.is_(None))
        .values(sent_at=AGAIN_AT_ONCE)
    )
    mine = sa.or_(migrations.c.source_node == node, migrations.c.dest_node == node)
    connection.execute(
        migrations.update()
        .where(migrations.c.step.is_not(None), migrations.c.step != "select", mine)
        .values(sent_at=None)
    )
    connection.execute(
        attempts.update()
        .where(attempts.c.node == node, attempts.c.open, attempts.c.sent_at.is_not(None))
        .values(sent_at=None, sends=1)
    )
