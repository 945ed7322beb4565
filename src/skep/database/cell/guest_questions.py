"""Questions about guests while they wait for their answers, a row each: any conductor may ask, and any may hear."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from skep.database.cell.tables import guest_questions
from skep.database.stored import dump, load
from skep.domain.ids import InstanceUuid
from skep.domain.questions import FORGOTTEN_AFTER, MOST_OF_ONE, SLOW_AFTER, GuestAnswer, GuestQuestion

row = guest_questions.c


def ask(connection: sa.Connection, question: GuestQuestion, now: int) -> bool:
    """Note a question; False when too many about its server wait already."""
    waiting = sa.select(sa.func.count()).where(row.instance == question.instance, row.asked_at > now - FORGOTTEN_AFTER)
    if connection.execute(waiting).scalar_one() >= MOST_OF_ONE:
        return False
    connection.execute(
        guest_questions.insert().values(
            id=question.id, instance=question.instance, question=dump(question), asked_at=now
        )
    )
    return True


def any_due(connection: sa.Connection, now: int) -> bool:
    """Tell whether a host is to be told of a question, or one is to be forgotten."""
    due = sa.or_(_unsaid(now), row.asked_at <= now - FORGOTTEN_AFTER)
    return connection.execute(sa.select(row.id).where(due).limit(1)).first() is not None


def due(connection: sa.Connection, now: int, limit: int) -> list[GuestQuestion]:
    """Return questions of which their hosts are to be told now, and note it; remove those whose askers have gone."""
    connection.execute(guest_questions.delete().where(row.asked_at <= now - FORGOTTEN_AFTER))
    chosen = sa.select(row.id).where(_unsaid(now)).limit(limit)
    told = guest_questions.update().where(row.id.in_(chosen)).values(sent_at=now).returning(row.question)
    return [load(one, GuestQuestion) for one in connection.execute(told).scalars()]


def answer(connection: sa.Connection, question: str, host: str, said: GuestAnswer) -> bool:
    """Note what a host answered; False when nobody waits for it any more, or it was asked of another host."""
    found = connection.execute(
        sa.select(row.question).where(row.id == question, row.answer.is_(None))
    ).scalar_one_or_none()
    if found is None or load(found, GuestQuestion).host != host:
        return False
    connection.execute(guest_questions.update().where(row.id == question).values(answer=dump(said)))
    return True


def answered(connection: sa.Connection, question: str) -> GuestAnswer | None:
    """Return the answer to a question; None while there is none."""
    found = connection.execute(sa.select(row.answer).where(row.id == question)).scalar_one_or_none()
    return None if found is None else load(found, GuestAnswer)


def keep(connection: sa.Connection, question: str, now: int) -> None:
    """Note that somebody waits for the answer to a question still."""
    connection.execute(guest_questions.update().where(row.id == question).values(asked_at=now))


def unanswered(connection: sa.Connection, question: str) -> GuestQuestion | None:
    """Return a question that its host has not answered; None where there is none."""
    query = sa.select(row.question).where(row.id == question, row.answer.is_(None))
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else load(found, GuestQuestion)


def stored(connection: sa.Connection, question: str) -> tuple[GuestQuestion, GuestAnswer | None] | None:
    """Return a question with its answer, if it has one; None where there is none such."""
    found = connection.execute(sa.select(row.question, row.answer).where(row.id == question)).first()
    if found is None:
        return None
    return load(found.question, GuestQuestion), None if found.answer is None else load(found.answer, GuestAnswer)


def forget(connection: sa.Connection, questions: Sequence[str]) -> None:
    """Remove questions: nobody waits for their answers any more."""
    connection.execute(guest_questions.delete().where(row.id.in_(questions)))


def of_instance(connection: sa.Connection, instance: InstanceUuid) -> list[str]:
    """Return the questions about a server that wait."""
    return list(connection.execute(sa.select(row.id).where(row.instance == instance)).scalars())


def _unsaid(now: int) -> sa.ColumnElement[bool]:
    fresh = sa.and_(row.answer.is_(None), row.asked_at > now - FORGOTTEN_AFTER)
    return sa.and_(fresh, sa.or_(row.sent_at.is_(None), row.sent_at < now - SLOW_AFTER))
