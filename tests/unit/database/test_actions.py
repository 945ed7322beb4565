"""Actions of a server as rows: what is read of many."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.admin import lives
from skep.database.cell import actions
from skep.database.cell.actions import Action, ActionEvent
from skep.domain.ids import InstanceUuid

ONE = InstanceUuid("i1")


def ask(cell: sa.Connection, number: int, *, ended: int | None = None) -> None:
    """Write an action that began at this number, and is over where that is said."""
    request = f"req-{number}"
    new = Action(instance=ONE, request_id=request, action="lock", user_id="u", project_id="p", started_at=number)
    actions.begin(cell, [new])
    if ended is not None:
        event = ActionEvent(instance=ONE, request_id=request, event="api_lock", started_at=number, finished_at=ended)
        actions.finish(cell, event)


def test_of_a_long_life_the_newest_is_read(cell: sa.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "MOST_ACTIONS", 3)
    for number in range(3):
        ask(cell, number, ended=9)
    assert not lives.read(cell, ONE).more_actions
    ask(cell, 3, ended=9)
    life = lives.read(cell, ONE)
    assert [one.request_id for one in life.actions] == ["req-1", "req-2", "req-3"]
    assert [one.request_id for one in life.events] == ["req-1", "req-2", "req-3"]
    assert life.more_actions
