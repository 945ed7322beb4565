"""Words of the program become text of statements; nothing else does."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.constants import constants
from skep.domain.instances import State, Task
from skep.domain.states import stored

COLUMN = sa.column("state", sa.String)


def test_words_are_written_once() -> None:
    compiled = COLUMN.in_(constants(["active", "powering-off", "changePassword"])).compile()
    assert str(compiled) == "state IN ('active', 'changePassword', 'powering-off')"
    assert compiled.params == {}


def test_all_states_and_tasks_are_words() -> None:
    assert len(constants(stored(frozenset(State)))) == len(State)
    assert len(constants(task.value for task in Task)) == len(Task)


@pytest.mark.parametrize("word", ["", "it's", "a b", "a;b", "ä", "a\n", "'", "1a", ":a", "%s"])
def test_anything_else_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="expected a word"):
        constants(["active", word])
