"""Questions of the targets of cold moves for the disks that their sources have put aside: rows as other questions are.

What the source answers is sealed for the run of the target's agent, so that no row holds what opens its door.
"""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.cell import guest_questions, move_steps, sessions
from skep.database.cell.cold_moves import Move
from skep.domain.context import RequestContext
from skep.domain.disk_doors import DisksQuestion
from skep.domain.questions import GuestQuestion, Topic
from skep.messages.to_cell_conductor import RequestDisks, SealedDisks

STEP = "transfer"
"""The step at which a target needs disks."""

WAITS = SealedDisks(waits=True)


def answer(connection: sa.Connection, asked: RequestDisks, context: RequestContext | None, now: int) -> SealedDisks:
    """Return what the source has answered to a target; where it was not asked yet, ask it."""
    who = "" if context is None else context.request_id
    found = move_steps.found_at(connection, asked.move, STEP, asked.attempt, asked.host, who)
    if found is None or context is None:
        return SealedDisks(reason=f"host {asked.host} is not the target of a move that needs disks")
    known, _ = found
    if known.is_between_cells:
        return SealedDisks(reason="no disks go by wire to another cell (`[compute] exchange_directory`)")
    session = sessions.of_host(connection, asked.host)
    if session is None or session.exchange_key is None:
        return SealedDisks(reason=f"the agent of host {asked.host} has no session")
    told = DisksQuestion(move=known.uuid, certificate=asked.certificate, key=session.exchange_key)
    question = GuestQuestion(
        id=asked.question,
        instance=known.instance,
        attempt=known.source_attempt,
        host=known.source_host,
        topic=Topic.DISKS,
        context=context,
        arguments=msgspec.to_builtins(told),
    )
    there = guest_questions.stored(connection, asked.question)
    if there is None:
        # An agent that ended meanwhile left its question; where users wait for too many, this one is asked later.
        guest_questions.forget(connection, _former(connection, known))
        guest_questions.ask(connection, question, now)
        return WAITS
    stored, said = there
    if (stored.topic, stored.arguments) != (question.topic, question.arguments):
        return SealedDisks(reason="this question is another one")
    if said is None:
        guest_questions.keep(connection, asked.question, now)
        return WAITS
    guest_questions.forget(connection, [asked.question])
    return SealedDisks(reason=said.error) if said.error is not None else SealedDisks(sealed=said.content)


def _former(connection: sa.Connection, known: Move) -> list[str]:
    """Return the questions for the disks of a move: one is asked at a time."""
    waiting = guest_questions.of_instance(connection, known.instance)
    found = {one: guest_questions.stored(connection, one) for one in waiting}
    return [one for one, there in found.items() if there is not None and there[0].topic == Topic.DISKS]
