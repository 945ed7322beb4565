"""Questions about guests in rows: told once, and again to a silent host; answered once, by the host that was asked."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import guest_questions
from skep.domain.ids import InstanceUuid
from skep.domain.questions import FORGOTTEN_AFTER, MOST_OF_ONE, SLOW_AFTER, GuestAnswer, GuestQuestion, Topic
from tests.support.rows import HOST, ONE, context

NOW = 10**15
SAID = GuestAnswer(content=b"\xff it booted")


def question(name: str = "q1", instance: InstanceUuid = ONE) -> GuestQuestion:
    return GuestQuestion(
        id=name,
        instance=instance,
        attempt=1,
        host=HOST,
        topic=Topic.CONSOLE_OUTPUT,
        context=context(),
        arguments={"length": 3},
    )


def test_a_question_is_told_and_answered_once(cell: sa.Connection) -> None:
    assert not guest_questions.any_due(cell, NOW)
    assert guest_questions.ask(cell, question(), NOW)
    assert guest_questions.any_due(cell, NOW)
    assert guest_questions.due(cell, NOW, 5) == [question()]
    assert (guest_questions.any_due(cell, NOW), guest_questions.due(cell, NOW, 5)) == (False, [])
    assert guest_questions.answered(cell, "q1") is None
    assert not guest_questions.answer(cell, "q1", "another host", SAID)
    assert not guest_questions.answer(cell, "q2", HOST, SAID)
    assert guest_questions.answer(cell, "q1", HOST, SAID)
    assert not guest_questions.answer(cell, "q1", HOST, GuestAnswer(error="a repeat"))
    assert guest_questions.answered(cell, "q1") == SAID
    guest_questions.forget(cell, ["q1"])
    assert guest_questions.of_instance(cell, ONE) == []
    assert not guest_questions.answer(cell, "q1", HOST, SAID), "whoever asked has gone"


def test_a_silent_host_is_told_again_until_it_has_answered(cell: sa.Connection) -> None:
    assert guest_questions.ask(cell, question(), NOW)
    later = NOW
    for _ in range(3):
        assert guest_questions.due(cell, later, 5) == [question()]
        later += SLOW_AFTER + 1
    assert guest_questions.answer(cell, "q1", HOST, SAID)
    assert not guest_questions.any_due(cell, later)


@pytest.mark.parametrize("answers", [True, False])
def test_what_nobody_fetched_is_forgotten(cell: sa.Connection, answers: bool) -> None:
    assert guest_questions.ask(cell, question(), NOW)
    if answers:
        assert guest_questions.answer(cell, "q1", HOST, SAID)
    assert guest_questions.any_due(cell, NOW + FORGOTTEN_AFTER)
    assert guest_questions.due(cell, NOW + FORGOTTEN_AFTER, 5) == []
    assert guest_questions.of_instance(cell, ONE) == []


def test_so_many_questions_about_one_server_wait_and_no_more(cell: sa.Connection) -> None:
    for number in range(MOST_OF_ONE):
        assert guest_questions.ask(cell, question(f"q{number}"), NOW)
    assert not guest_questions.ask(cell, question("more"), NOW)
    assert guest_questions.ask(cell, question("other", InstanceUuid("other")), NOW)
    assert guest_questions.ask(cell, question("later"), NOW + FORGOTTEN_AFTER), (
        "those of askers that have gone count no more"
    )


def test_a_question_that_is_kept_is_not_forgotten(cell: sa.Connection) -> None:
    assert guest_questions.ask(cell, question(), NOW)
    guest_questions.keep(cell, "q1", NOW + FORGOTTEN_AFTER)
    assert guest_questions.due(cell, NOW + FORGOTTEN_AFTER, 5) == [question()]
    assert guest_questions.unanswered(cell, "q1") == question()
    assert guest_questions.answer(cell, "q1", HOST, SAID)
    assert guest_questions.unanswered(cell, "q1") is None
    assert guest_questions.unanswered(cell, "q2") is None
