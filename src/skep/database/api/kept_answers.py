"""Answers to creates that bore an idempotency key: a retry gets the same one. They are kept for a day."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api.tables import kept_answers
from skep.domain.clock import SECOND
from skep.domain.ids import ProjectId, UserId

KEPT_SECONDS = 24 * 3600

row = kept_answers.c


class KeyedCreate(msgspec.Struct, frozen=True, kw_only=True):
    """A create with a key: whose it is, and what tells its body from others."""

    project_id: ProjectId
    user_id: UserId
    key: str
    asked: bytes
    """A digest of what was asked for."""


class KeptAnswer(msgspec.Struct, frozen=True):
    """An answer that was given under the key."""

    same: bool
    """Whether it was asked for with the same body."""
    answer: bytes
    """Sealed."""


def find(connection: sa.Connection, question: KeyedCreate, now: int) -> KeptAnswer | None:
    """Return what was answered under this key; None when there is nothing, or it is a day old."""
    found = connection.execute(sa.select(row.asked, row.answer).where(*_mine(question), row.expires_at > now)).first()
    return None if found is None else KeptAnswer(same=found.asked == question.asked, answer=found.answer)


def keep(connection: sa.Connection, question: KeyedCreate, answer: bytes, now: int) -> None:
    """Keep an answer under a key that `find` knows nothing of, in the transaction that it speaks of."""
    connection.execute(sa.delete(kept_answers).where(*_mine(question)))
    values = {**msgspec.structs.asdict(question), "answer": answer, "expires_at": now + KEPT_SECONDS * SECOND}
    connection.execute(sa.insert(kept_answers).values(values))


def purge(connection: sa.Connection, now: int, limit: int) -> int:
    """Remove answers that are a day old; return how many went."""
    old = sa.select(row.project_id, row.user_id, row.key).where(row.expires_at <= now).limit(limit)
    these = sa.tuple_(row.project_id, row.user_id, row.key)
    gone = [tuple(one) for one in connection.execute(old)]
    return connection.execute(sa.delete(kept_answers).where(these.in_(gone))).rowcount if gone else 0


def sealed(connection: sa.Connection, now: int) -> list[bytes]:
    """Return the answers that are kept."""
    return list(connection.scalars(sa.select(row.answer).where(row.expires_at > now)))


def _mine(question: KeyedCreate) -> tuple[sa.ColumnElement[bool], ...]:
    return row.project_id == question.project_id, row.user_id == question.user_id, row.key == question.key
