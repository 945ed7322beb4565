"""The story of questions about guests: hosts are told of them, and their answers wait in rows for whoever asked.

Users ask most of them; the target of a cold move asks the source where it gets the disks.
"""

from __future__ import annotations

from functools import partial

from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import agents, disk_questions, guest_questions
from skep.domain.context import RequestContext
from skep.domain.questions import MOST_BYTES, MOST_CHARACTERS, GuestAnswer, GuestQuestion
from skep.messages.base import Done
from skep.messages.to_cell_conductor import AnswerAboutGuest, QuestionsAsked, RequestDisks, SealedDisks
from skep.messages.to_compute import AskAboutGuest
from skep.reconciler.loop import Loop
from skep.transport.base import compute

BATCH = 100


class GuestQuestions:
    """Passes questions on to hosts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.telling = Loop("questions", self._run, every=parts.settings.resend_seconds)

    async def asked(self, _message: QuestionsAsked, _context: RequestContext | None) -> None:
        """Look at once."""
        self.telling.nudge()

    async def answered(self, message: AnswerAboutGuest, _context: RequestContext | None) -> Done:
        """Note an answer. One that is too long is none; an error that is too long is cut."""
        error = None if message.error is None else message.error[:MOST_CHARACTERS]
        said = GuestAnswer(content=message.content, error=error)
        if len(message.content) > MOST_BYTES:
            said = GuestAnswer(error=f"AnswerTooLong: the answer of host {message.host} has too many bytes")
        unit = partial(guest_questions.answer, question=message.question, host=message.host, said=said)
        await self._parts.database.write(unit)
        return Done()

    async def disks(self, message: RequestDisks, context: RequestContext | None) -> SealedDisks:
        """Tell the target of a cold move what the source says of its disks."""
        unit = partial(disk_questions.answer, asked=message, context=context, now=self._parts.clock.now())
        said: SealedDisks = await self._parts.database.write(unit)
        if said.waits:
            self.telling.nudge()
        return said

    async def _run(self) -> bool:
        parts = self._parts
        now = parts.clock.now()
        if not await parts.database.read(partial(guest_questions.any_due, now=now)):
            return False

        def unit(connection: Connection) -> tuple[list[GuestQuestion], int]:
            due = guest_questions.due(connection, now, BATCH)
            taking = agents.taking(connection, {one.host for one in due}, AskAboutGuest.wire_name)
            for one in due:
                if one.host not in taking:
                    why = f"NotSupportedByAgent: the agent of host {one.host} is of a release without questions"
                    guest_questions.answer(connection, one.id, one.host, GuestAnswer(error=why))
            return [one for one in due if one.host in taking], len(due)

        told, found = await parts.database.write(unit)
        for one in told:
            order = AskAboutGuest(
                question=one.id, instance=one.instance, attempt=one.attempt, topic=one.topic, arguments=one.arguments
            )
            await parts.transport.cast(compute(parts.cell.uuid, one.host), order, one.context)
        return found >= BATCH
