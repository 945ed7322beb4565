"""Actions of a server as rows: what is read of many."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.admin import lives
from skep.database.cell import actions
from skep.database.cell.actions import CREATE, Action, ActionEvent, ActionQuery
from skep.domain.ids import InstanceUuid

ONE = InstanceUuid("i1")


def ask(cell: sa.Connection, number: int, *, began: int | None = None, ended: int | None = None) -> None:
    """Write an action that began at a time, its number unless told, and is over where that is said."""
    request, began = f"req-{number}", number if began is None else began
    what = "lock" if number else CREATE
    new = Action(instance=ONE, request_id=request, action=what, user_id="u", project_id="p", started_at=began)
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


def requests(found: list[Action] | None) -> list[str]:
    assert found is not None
    return [one.request_id for one in found]


def test_pages_together_are_the_whole_list(cell: sa.Connection) -> None:
    for number in range(9):
        ask(cell, number, began=number // 4)
    whole = requests(actions.list_of(cell, ONE, limit=99))
    assert whole == [f"req-{number}" for number in (8, 4, 5, 6, 7, 0, 1, 2, 3)]
    for limit in (1, 2, 4, 9):
        walked: list[str] = []
        while True:
            query = ActionQuery(limit=limit, marker=walked[-1] if walked else None)
            page = requests(actions.page_of(cell, ONE, query))
            assert len(page) <= limit
            if not page:
                break
            walked += page
        assert walked == whole
    assert actions.page_of(cell, ONE, ActionQuery(limit=9, marker="req-none")) is None
    assert actions.page_of(cell, InstanceUuid("i2"), ActionQuery(limit=9, marker="req-1")) is None


def test_of_a_time_is_what_changed_in_it_and_any_create(cell: sa.Connection) -> None:
    for number in range(6):
        ask(cell, number, ended=20 if number == 2 else None)
    query = ActionQuery(limit=9, since=4, before=19)
    found = actions.page_of(cell, ONE, query)
    assert requests(found) == ["req-5", "req-4", "req-0"]
    assert [query.takes(one) for one in found or ()] == [True, True, False]
    assert requests(actions.page_of(cell, ONE, ActionQuery(limit=9, since=20))) == ["req-2", "req-0"]
    assert requests(actions.page_of(cell, ONE, ActionQuery(limit=1, since=4, marker="req-5"))) == ["req-4"]


def test_one_is_found_by_its_request(cell: sa.Connection) -> None:
    ask(cell, 3)
    found = actions.one_of(cell, ONE, "req-3")
    assert found is not None
    assert found.started_at == 3
    assert actions.one_of(cell, ONE, "req-4") is None
    assert actions.one_of(cell, InstanceUuid("i2"), "req-3") is None
