"""Attempts: which hosts an instance was tried on, and which of them may still have something of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from skep.database.cell import asked, resending, resting, unreadable
from skep.database.cell.tables import NOT_BUILT, attempts, instances
from skep.database.stored import dump, load
from skep.database.upsert import new_only
from skep.domain.actions import ACTIONS
from skep.domain.assignments import Assignment, Role
from skep.domain.builds import AttemptRecord, Explanation, Placed
from skep.domain.claims import ClaimKey
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Task
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.domain.server_events import GIVEN_UP, REFUSED

row = attempts.c

NOT_SENT = "not_sent"
"""Outcome of an attempt whose host was never told of it."""
BUILT = "built"
"""Outcome of an open attempt whose guest its host has made."""
FENCED = "fenced"
HOST_MISSING = "host_missing"
"""Outcomes of what was closed without a word of its host."""
NO_VALID_HOST = "no_valid_host"
"""Outcome of an attempt for which no host was found."""

STALE = sa.or_(row.attempt < instances.c.attempt, sa.and_(row.attempt > instances.c.attempt, row.outcome.is_not(None)))
"""Says of an open attempt that was not built, beside its instance's row: the row has left it behind, or it was begun
beside the attempt that holds the server and given up."""


class NewAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that begins, or, without a node, a decision that found none."""

    instance: InstanceUuid
    attempt: int
    node: NodeUuid | None
    host: str | None
    now: int
    explanation: Explanation | None = None
    role: Role = "build"
    resources: Resources | None = None
    """What it holds of its host; None: the row of the instance says it."""
    allocation: Allocation | None = None
    refusal: str | None = None
    """Without a node: what it needs beside a host and cannot have; None: no host was found."""


class StaleAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An open attempt that its instance's row has left behind, or that was given up: its host must undo it."""

    instance: InstanceUuid
    attempt: int
    host: str
    sends: int
    """How often the host has been told, this time included."""
    deleted: bool
    """Whether the instance is deleted, or is being deleted."""
    alone: bool
    """Only this attempt is to be undone: others of the instance may be on its host to stay."""
    context: RequestContext | None = None
    """Of the delete, else of the create; None: the row cannot be read."""


def of_decision(
    instance: InstanceUuid,
    attempt: int,
    chosen: Assignment | Placed | None,
    explanation: Explanation | None,
    now: int,
    role: Role = "build",
    refusal: str | None = None,
) -> NewAttempt:
    """Return the attempt that a decision begins; where nothing was chosen, it ended at once."""
    return NewAttempt(
        instance=instance,
        attempt=attempt,
        node=None if chosen is None else chosen.node,
        host=None if chosen is None else chosen.host,
        now=now,
        explanation=explanation,
        role=role,
        refusal=refusal,
    )


def begin(connection: sa.Connection, new: Iterable[NewAttempt]) -> None:
    """Write attempts: open when they have a host. One that is there already stays as it is."""
    values = [
        {
            "instance": one.instance,
            "attempt": one.attempt,
            "node": one.node,
            "host": one.host,
            "open": one.node is not None,
            "outcome": None if one.node is not None else NO_VALID_HOST if one.refusal is None else REFUSED,
            "started_at": one.now,
            "ended_at": None if one.node is not None else one.now,
            "message": one.refusal,
            "explanation": dump(one.explanation) if one.explanation else None,
            "role": one.role,
            "resources": None if one.resources is None else dump(one.resources),
            "allocation": None if one.allocation is None else dump(one.allocation),
        }
        for one in new
    ]
    if values:
        connection.execute(new_only(connection, attempts), values)


def finish(
    connection: sa.Connection,
    instance: InstanceUuid,
    attempt: int,
    host: str,
    now: int,
    outcome: str,
    *,
    keep_open: bool,
    error: str | None = None,
    message: str | None = None,
) -> None:
    """Note how an open attempt on this host went; a closed one stays as it is. It stays open while there is a guest."""
    mine = {"of": instance, "mine": attempt, "on": host}
    how = {"stays": keep_open, "how": outcome, "kind": error, "why": message, "now": now}
    how["built"] = now if outcome == BUILT else None
    connection.execute(_FINISH, {**mine, **how})


_FINISH = (
    attempts.update()
    .where(
        row.instance == sa.bindparam("of"),
        row.attempt == sa.bindparam("mine"),
        row.host == sa.bindparam("on"),
        row.open,
    )
    .values(
        open=sa.bindparam("stays"),
        outcome=sa.bindparam("how"),
        error=sa.bindparam("kind"),
        message=sa.bindparam("why"),
        ended_at=sa.bindparam("now"),
        built_at=sa.func.coalesce(row.built_at, sa.bindparam("built", type_=sa.BigInteger)),
    )
)
"""Made once: making a statement costs more than running it."""


def give_up(connection: sa.Connection, instance: InstanceUuid, attempt: int, now: int) -> bool:
    """Have the host of an open attempt undo it, whatever its number; False when it is closed."""
    return connection.execute(_GIVE_UP, {"of": instance, "mine": attempt, "now": now}).rowcount == 1


_OPEN = sa.and_(row.instance == sa.bindparam("of"), row.attempt == sa.bindparam("mine"), row.open)
_GIVE_UP = attempts.update().where(_OPEN).values(outcome=GIVEN_UP, ended_at=sa.bindparam("now"), sent_at=None, sends=0)
_UNDER_WAY = sa.select(row.attempt).where(_OPEN, row.outcome.is_(None))


def stands(connection: sa.Connection, instance: InstanceUuid, attempt: int) -> bool:
    """Tell whether an attempt is under way, or was built: its host has it, and is not to undo it."""
    return connection.execute(_STANDS, {"of": instance, "mine": attempt}).first() is not None


_STANDS = sa.select(row.attempt).where(_OPEN, sa.or_(row.outcome.is_(None), row.outcome == BUILT))


def give_up_others(connection: sa.Connection, instance: InstanceUuid, attempt: int, now: int) -> None:
    """Have hosts undo all open attempts of an instance but this one, as far as nobody has ended them yet."""
    others = sa.and_(row.instance == instance, row.attempt != attempt, row.open)
    connection.execute(
        attempts.update()
        .where(others, sa.or_(row.outcome.is_(None), row.outcome == BUILT))
        .values(outcome=GIVEN_UP, ended_at=now, sent_at=None, sends=0)
    )


def is_under_way(connection: sa.Connection, instance: InstanceUuid, attempt: int) -> bool:
    """Tell whether an attempt has begun and nobody has ended it: not its host, not a fence, nobody who gave it up."""
    return connection.execute(_UNDER_WAY, {"of": instance, "mine": attempt}).first() is not None


def close(connection: sa.Connection, instance: InstanceUuid, host: str, upto: int, now: int) -> list[ClaimKey]:
    """Close the attempts of an instance on one host up to `upto`: nothing of them is left. Return their claims.

    Those of attempts that were closed before are returned too: whoever closed them may not have lived, or known that it
    was written, to release them.
    """
    return _close(connection, instance, host, upto, now, _UP_TO)


def close_one(connection: sa.Connection, instance: InstanceUuid, host: str, attempt: int, now: int) -> list[ClaimKey]:
    """Close one attempt of an instance on a host, as `close` does: others may stay there."""
    return _close(connection, instance, host, attempt, now, _ONE)


class _Closing(NamedTuple):
    """The statements that close attempts of an instance on a host, and read them."""

    closing: sa.Update
    closed: sa.Select[Any]


def _closing(which: sa.ColumnElement[bool]) -> _Closing:
    mine = sa.and_(row.instance == sa.bindparam("of"), row.host == sa.bindparam("on"), which)
    return _Closing(
        closing=attempts.update()
        .where(mine, row.open)
        .values(
            open=False,
            outcome=sa.func.coalesce(row.outcome, "undone"),
            ended_at=sa.func.coalesce(row.ended_at, sa.bindparam("now", type_=sa.BigInteger)),
        ),
        closed=sa.select(row.attempt, row.node).where(mine).order_by(row.attempt),
    )


_UP_TO = _closing(row.attempt <= sa.bindparam("number"))
_ONE = _closing(row.attempt == sa.bindparam("number"))


def _close(
    connection: sa.Connection, instance: InstanceUuid, host: str, number: int, now: int, statements: _Closing
) -> list[ClaimKey]:
    mine = {"of": instance, "on": host, "number": number}
    connection.execute(statements.closing, {**mine, "now": now})
    closed = connection.execute(statements.closed, mine)
    return [ClaimKey(instance, one.attempt, one.node) for one in closed]


def stale_due(connection: sa.Connection, now: int, resend_before: int, limit: int) -> list[StaleAttempt]:
    """Return open attempts that their hosts are to be told now to undo; note that they were told.

    `resend_before` lies one pause of the pass before `now`; a host that does not answer is told less and less often.
    Those are the attempts of builds that were replaced, others that were given up, and all of instances that are being
    deleted. Asking for the last apart spares a look at every server that runs.
    """
    wanted = {**resending.asked_by_count(now, resend_before), "most": limit}
    doomed = {(one.instance, one.attempt): _deleter(one) for one in connection.execute(_DOOMED, wanted)}
    left = {
        (one.instance, one.attempt): unreadable.or_none(one, _creator) for one in connection.execute(_REPLACED, wanted)
    }
    contexts = {**left, **doomed}
    if not contexts:
        return []
    telling = (
        attempts.update()
        .where(sa.tuple_(row.instance, row.attempt).in_(contexts))
        .values(sent_at=now, sends=row.sends + 1)
        .returning(row.instance, row.attempt, row.host, row.sends, row.outcome, row.role)
    )
    return [
        StaleAttempt(
            instance=one.instance,
            attempt=one.attempt,
            host=one.host,
            sends=one.sends,
            deleted=(one.instance, one.attempt) in doomed,
            alone=(one.instance, one.attempt) not in doomed and (one.outcome == GIVEN_UP or one.role != "build"),
            context=contexts[one.instance, one.attempt],
        )
        for one in connection.execute(telling)
    ]


_DUE = sa.and_(
    row.open,
    ~resting.resting(row.instance),
    ~resting.awaited(row.host),
    resending.due_by_count(row.sent_at, row.sends),
)
_BOTH = instances.c.uuid == row.instance
_MOST = sa.bindparam("most", type_=sa.Integer)
_REPLACED = (
    sa.select(row.instance, row.attempt, instances.c.uuid, instances.c.context)
    .join(instances, _BOTH)
    .where(NOT_BUILT, STALE, _DUE)
    .limit(_MOST)
)
_DOOMED = (
    sa.select(row.instance, row.attempt, *asked.COLUMNS)
    .join(instances, _BOTH)
    .where(instances.c.task == Task.DELETING.value, _DUE)
    .limit(_MOST)
)


def _deleter(found: Any) -> RequestContext:
    return asked.request_of(found, ACTIONS["delete"]).context


def _creator(found: Any) -> RequestContext:
    context: RequestContext = load(found.context, RequestContext)
    return context


def tried_nodes(connection: sa.Connection, instance: InstanceUuid, above: int = 0) -> list[NodeUuid]:
    """Return the nodes that an instance was tried on in this cell, each once, first try first.

    A node whose host was never told of its attempt was not tried. Only attempts above a number count.
    """
    nodes = connection.scalars(_TRIED, {"of": instance, "above": above})
    return [NodeUuid(node) for node in dict.fromkeys(nodes) if node is not None]


_TRIED = (
    sa.select(row.node)
    .where(
        row.instance == sa.bindparam("of"),
        row.attempt > sa.bindparam("above"),
        row.node.is_not(None),
        row.outcome.is_distinct_from(NOT_SENT),
    )
    .order_by(row.attempt)
)


def not_sent(connection: sa.Connection, before: Mapping[InstanceUuid, int], now: int) -> None:
    """Note that open attempts lower than these were overtaken before their hosts were told of them.

    They stay open, as any attempt that its row has left behind, until the host has answered.
    """
    connection.execute(
        attempts.update()
        .where(row.instance == sa.bindparam("of"), row.attempt < sa.bindparam("below"), row.open, row.outcome.is_(None))
        .values(outcome=NOT_SENT, ended_at=now),
        [{"of": instance, "below": attempt} for instance, attempt in before.items()],
    )


def history(connection: sa.Connection, instance: InstanceUuid) -> list[AttemptRecord]:
    """Return all attempts of an instance in this cell, first try first."""
    found = connection.execute(_HISTORY, {"of": instance})
    return [
        AttemptRecord(
            attempt=one.attempt,
            node=one.node,
            host=one.host,
            open=one.open,
            outcome=one.outcome,
            error=one.error,
            message=one.message,
            started_at=one.started_at,
            ended_at=one.ended_at,
            built_at=one.built_at,
            explanation=load(one.explanation, Explanation) if one.explanation else None,
            role=one.role,
        )
        for one in found
    ]


_HISTORY = sa.select(attempts).where(row.instance == sa.bindparam("of")).order_by(row.attempt)
"""Made once: clients ask for the actions of servers again and again."""


def remove(connection: sa.Connection, instance: InstanceUuid) -> list[ClaimKey]:
    """Remove the attempts of a staged row that is gone: none has reached its host. Return their claims."""
    removed = connection.execute(
        attempts.delete().where(row.instance == instance).returning(row.attempt, row.node)
    ).all()
    return [ClaimKey(instance, one.attempt, one.node) for one in removed if one.node is not None]
