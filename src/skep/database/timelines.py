"""The time of a database, kept inside it, and the latest moments that it has seen of others.

Each lease that is renewed raises the tick and notes who raised it. Whoever saw a moment can ask whether the database
still holds it: after a restore, or in place of a primary whose replica lagged, it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from skep.database.upsert import written
from skep.domain.timelines import Moment, later

ONLY = 1
REMEMBERED_RUNS = 1024
"""Processes whose latest tick is remembered: each start of a conductor is one."""


class RecoveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """That a database went back in time, and how far what follows from it has come."""

    timeline: int
    since: int
    reason: str
    compared_at: int | None = None
    """When it was compared with the other databases; None: not yet."""


@dataclass(frozen=True)
class TimelineTables:
    """The three tables by which a database knows its time."""

    now: sa.Table
    runs: sa.Table
    seen: sa.Table


def tables_of(metadata: sa.MetaData) -> TimelineTables:
    """Declare the tables in the metadata of one kind of database."""
    return TimelineTables(
        now=sa.Table(
            "timeline",
            metadata,
            sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("timeline", sa.BigInteger, nullable=False),
            sa.Column("tick", sa.BigInteger, nullable=False),
            sa.Column("recovering_since", sa.BigInteger),
            sa.Column("reason", sa.Text, nullable=False, server_default=sa.text("''")),
            sa.Column("compared_at", sa.BigInteger),
            sa.Column("looked_at", sa.BigInteger, nullable=False, server_default=sa.text("0")),
            sa.Column("judged_at", sa.BigInteger, nullable=False, server_default=sa.text("0")),
            sa.Column("runs_after", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        ),
        runs=sa.Table(
            "timeline_runs",
            metadata,
            sa.Column("owner", sa.Text, primary_key=True),
            sa.Column("tick", sa.BigInteger, nullable=False),
        ),
        seen=sa.Table(
            "databases_seen",
            metadata,
            sa.Column("database", sa.Text, primary_key=True),
            sa.Column("timeline", sa.BigInteger, nullable=False),
            sa.Column("tick", sa.BigInteger, nullable=False),
            sa.Column("owner", sa.Text, nullable=False),
        ),
    )


class _Statements(NamedTuple):
    """What is run for each lease and each comparison: made once for each kind of database."""

    raised: sa.sql.dml.ReturningUpdate[Any]
    current: sa.Select[Any]
    timeline: sa.Select[Any]
    run: sa.Select[Any]
    recovery: sa.Select[Any]
    judged: sa.Update
    seen: sa.Select[Any]


@cache
def _of(tables: TimelineTables) -> _Statements:
    row = tables.now.c
    return _Statements(
        raised=tables.now.update().values(tick=row.tick + 1).returning(row.timeline, row.tick),
        current=sa.select(row.timeline, row.tick, tables.runs.c.owner).join_from(
            tables.now, tables.runs, tables.runs.c.tick == row.tick
        ),
        timeline=sa.select(row.timeline),
        run=sa.select(tables.runs.c.tick).where(tables.runs.c.owner == sa.bindparam("by")),
        recovery=sa.select(row.timeline, row.recovering_since, row.reason, row.compared_at).where(
            row.recovering_since.is_not(None)
        ),
        judged=tables.now.update().values(judged_at=row.tick),
        seen=sa.select(tables.seen).where(tables.seen.c.database == sa.bindparam("of")),
    )


def advance(connection: sa.Connection, tables: TimelineTables, database: str, owner: str) -> Moment:
    """Raise the tick and note that `owner` raised it; return the moment that begins."""
    raised = _of(tables).raised
    found = connection.execute(raised).first()
    if found is None:
        connection.execute(tables.now.insert().values(only=ONLY, timeline=1, tick=0))
        found = connection.execute(raised).one()
    connection.execute(written(connection, tables.runs, "owner", "tick"), {"owner": owner, "tick": found.tick})
    return Moment(database, found.timeline, found.tick, owner)


def current(connection: sa.Connection, tables: TimelineTables, database: str) -> Moment | None:
    """Return the latest moment of the database; None before its first lease."""
    found = connection.execute(_of(tables).current).first()
    return None if found is None else Moment(database, found.timeline, found.tick, found.owner)


def has_lost(connection: sa.Connection, tables: TimelineTables, seen: Moment) -> bool:
    """Tell whether the database does not hold a moment of its own that somebody saw."""
    now = connection.execute(_of(tables).timeline).scalar_one_or_none()
    if now is None or seen.timeline != now:
        return now is None or seen.timeline > now
    return not holds_run(connection, tables, seen)


def begin_anew(connection: sa.Connection, tables: TimelineTables, seen: Moment | None, reason: str, now: int) -> int:
    """Begin another timeline, beyond all that was seen: from here on the database recovers. Return its number."""
    timeline, tick = seen.order if seen is not None else (0, 0)
    row = tables.now.c
    begun = {"recovering_since": now, "reason": reason, "compared_at": None}
    changed = connection.execute(
        tables.now.update().values(
            timeline=sa.case((row.timeline > timeline, row.timeline), else_=timeline) + 1,
            tick=sa.case((row.tick > tick, row.tick), else_=tick) + 1,
            **begun,
        )
    ).rowcount
    if not changed:
        connection.execute(tables.now.insert().values(only=ONLY, timeline=timeline + 1, tick=tick + 1, **begun))
    return int(connection.execute(_of(tables).timeline).scalar_one())


def holds_run(connection: sa.Connection, tables: TimelineTables, seen: Moment) -> bool:
    """Tell whether the process that raised a moment came so far here, in whatever timeline.

    Of a process that is forgotten, what is not later than the last that was forgotten is believed.
    """
    held = connection.execute(_of(tables).run, {"by": seen.owner}).scalar()
    if held is None:
        held = connection.execute(sa.select(tables.now.c.runs_after)).scalar_one_or_none() or 0
    return held >= seen.tick


def forget_runs(connection: sa.Connection, tables: TimelineTables) -> None:
    """Forget all but the processes that raised the tick last, and remember up to which tick they are forgotten."""
    by_tick = sa.select(tables.runs.c.tick).order_by(tables.runs.c.tick.desc())
    last = connection.execute(by_tick.offset(REMEMBERED_RUNS).limit(1)).scalar()
    if last is not None:
        connection.execute(tables.runs.delete().where(tables.runs.c.tick <= last))
        behind = tables.now.c.runs_after < last
        connection.execute(tables.now.update().where(behind).values(runs_after=last))


def recovery(connection: sa.Connection, tables: TimelineTables) -> RecoveryRow | None:
    """Return how the database recovers; None when it need not."""
    found = connection.execute(_of(tables).recovery).first()
    if found is None:
        return None
    return RecoveryRow(
        timeline=found.timeline, since=found.recovering_since, reason=found.reason, compared_at=found.compared_at
    )


def note_compared(connection: sa.Connection, tables: TimelineTables, timeline: int, now: int) -> None:
    """Note that the database was compared with the others in this timeline."""
    connection.execute(tables.now.update().where(tables.now.c.timeline == timeline).values(compared_at=now))


def end(connection: sa.Connection, tables: TimelineTables, timeline: int) -> bool:
    """Note that nothing of a recovery is left to be done; False when another one has begun."""
    mine = sa.and_(tables.now.c.timeline == timeline, tables.now.c.recovering_since.is_not(None))
    return connection.execute(tables.now.update().where(mine).values(recovering_since=None)).rowcount == 1


def note_looked(connection: sa.Connection, tables: TimelineTables) -> None:
    """Note that somebody who remembers later moments would have seen by now that the database went back."""
    connection.execute(tables.now.update().values(looked_at=tables.now.c.tick))


def was_looked_at(connection: sa.Connection, tables: TimelineTables, since: Moment) -> bool:
    """Tell whether that was so after a moment, or the database has begun another timeline."""
    row = tables.now.c
    found = connection.execute(sa.select(row.timeline, row.looked_at)).first()
    return found is not None and (found.timeline > since.timeline or found.looked_at >= since.tick)


def note_judged(connection: sa.Connection, tables: TimelineTables) -> None:
    """Note that a process lives here that has heard all who may remember later moments, or waited long enough."""
    connection.execute(_of(tables).judged)


def was_judged(connection: sa.Connection, tables: TimelineTables, since: Moment) -> bool:
    """Tell whether such a process lived after a moment, or the database has begun another timeline."""
    row = tables.now.c
    found = connection.execute(sa.select(row.timeline, row.judged_at)).first()
    return found is not None and (found.timeline > since.timeline or found.judged_at >= since.tick)


def saw(connection: sa.Connection, tables: TimelineTables, moment: Moment) -> None:
    """Remember a moment of another database, unless a later one is remembered."""
    known = last_seen(connection, tables, moment.database)
    if known is not None and later(known, moment) != moment:
        return
    values = {"timeline": moment.timeline, "tick": moment.tick, "owner": moment.owner}
    connection.execute(written(connection, tables.seen, "database", *values), {"database": moment.database, **values})


def last_seen(connection: sa.Connection, tables: TimelineTables, database: str) -> Moment | None:
    """Return the latest moment of another database that is remembered here."""
    found = connection.execute(_of(tables).seen, {"of": database}).first()
    return None if found is None else Moment(found.database, found.timeline, found.tick, found.owner)
