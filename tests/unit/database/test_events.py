"""The event log: what rows become, one order, cursors that miss nothing, pruning, databases that went back."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from skep.database import schema
from skep.database.api import build_requests, events
from skep.database.api.event_tables import events as rows
from skep.database.api.events import EventsWanted, Page
from skep.database.api.tables import instance_mappings
from skep.database.cell import actions, attempts, builds, event_facts, travels
from skep.database.cell.tables import event_facts as fact_rows
from skep.database.cell.tables import instances
from skep.database.dialects import dialect_of
from skep.database.stored import dump
from skep.domain.errors import BadRequest, Withdrawn
from skep.domain.ids import InstanceUuid, ProjectId, UserId
from skep.domain.instances import State
from skep.domain.server_events import REFUSED, REPLACED, NewEvent, event_of, is_news
from skep.processes.servers.postgres import PostgresServer
from tests.support.rows import CELL, FAULT, HOST, ONE, PROJECT, USER, bring_to, context, request, staged

ALL = EventsWanted()
BIG = 1 << 60
TWO = InstanceUuid("00000000-0000-4000-8000-000000000002")


def noted(key: str, *, project: str = "p", type_: str = "server.active") -> NewEvent:
    return NewEvent(
        event_key=key,
        time=1,
        type=type_,
        instance=ONE,
        project_id=project,
        user_id="u",
        request_id=None,
        cell="c",
        host="h",
        attempt=1,
        data={"before": "spawning"},
        hidden={},
    )


def keys(page: Page) -> list[str]:
    return [one.event_key for one in page.events]


def told(cell: sa.Connection) -> list[tuple[str, str | None]]:
    """Return types and requests of what waits in a cell, and copy no more of it."""
    facts = event_facts.oldest(cell, 100)
    found = [event_of(fact, CELL) for fact in facts if is_news(fact)]
    event_facts.forget(cell, facts) if facts else None
    return [(one.type, one.request_id) for one in found]


def test_a_build_is_told_by_its_rows(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert told(cell) == [("server.host_chosen", "req-1"), ("server.active", "req-1")]
    assert told(cell) == []


def test_a_failed_build_says_where_and_why(cell: sa.Connection) -> None:
    bring_to(cell, State.SPAWNING)
    told(cell)
    attempts.finish(cell, ONE, 1, HOST, 9, "failed", keep_open=False, error="SpawnFailed", message=f"{HOST} is full")
    assert builds.fail(cell, ONE, 1, HOST, FAULT, 9)
    failed, error = (event_of(fact, CELL) for fact in event_facts.oldest(cell, 10))
    assert (failed.type, failed.host, failed.attempt) == ("server.attempt_failed", HOST, 1)
    assert (failed.data, failed.hidden) == (
        {"outcome": "failed", "error": "SpawnFailed"},
        {"message": f"{HOST} is full"},
    )
    assert (error.type, error.data["reason"]) == ("server.error", FAULT.message)


@pytest.mark.parametrize(("until", "news"), [(State.ACTIVE, 0), (State.SPAWNING, 2)])
def test_a_guest_that_is_left_behind_did_not_fail(cell: sa.Connection, until: State, news: int) -> None:
    """An attempt that is given up before it has a guest did."""
    bring_to(cell, until)
    told(cell)
    assert attempts.give_up(cell, ONE, 1, 20)
    facts = event_facts.oldest(cell, 9)
    attempts.finish(cell, ONE, 1, HOST, 21, "undone", keep_open=False, error=REPLACED, message="it was given up")
    assert [one.what for one in event_facts.oldest(cell, 9)] == [*(one.what for one in facts), "undone"]
    assert [type_ for type_, _ in told(cell)] == ["server.attempt_failed"] * news


def test_a_guest_that_fails_after_it_was_built_is_told(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    told(cell)
    attempts.finish(cell, ONE, 1, HOST, 21, "fenced", keep_open=False)
    assert [type_ for type_, _ in told(cell)] == ["server.attempt_failed"]


def test_a_build_that_is_refused_its_ports_is_told_by_its_error_alone(cell: sa.Connection) -> None:
    one = staged()
    none = msgspec.structs.replace(one.instance, state=State.ERROR, fault=FAULT)
    no_port = "Port p1 could not be found."
    refused = msgspec.structs.replace(one, instance=none, assignment=None, explanation=None, refusal=no_port)
    builds.stage(cell, [refused], 9)
    [record] = attempts.history(cell, ONE)
    assert (record.open, record.outcome, record.message, record.explanation) == (False, REFUSED, no_port, None)
    assert told(cell) == []


def test_an_action_is_told_when_it_begins_and_ends(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    told(cell)
    actions.begin(cell, [actions.action_of(ONE, "stop", context("req-2"), 20)])
    part = actions.ActionEvent(
        instance=ONE,
        request_id="req-2",
        event="compute_stop_instance",
        started_at=20,
        finished_at=21,
        result="Error",
        host=HOST,
        details=f"{HOST} refused",
    )
    actions.finish(cell, part)
    actions.finish(cell, msgspec.structs.replace(part, result="Success", details=None, finished_at=22))
    facts = event_facts.oldest(cell, 10)
    assert [event_of(fact, CELL).type for fact in facts] == ["action.begun", "action.failed", "action.ended"]
    failed = event_of(facts[1], CELL)
    assert failed.data["action"] == "stop"
    assert HOST not in failed.data["reason"], "its owner reads it"


def test_an_action_of_an_admin_is_told_to_the_project_of_the_server(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    told(cell)
    admin = msgspec.structs.replace(context("req-2"), project_id=ProjectId("admins"), user_id=UserId("root"))
    actions.begin(cell, [actions.action_of(ONE, "stop", admin, 20)])
    part = actions.ActionEvent(instance=ONE, request_id="req-2", event="compute_stop_instance", started_at=20)
    actions.finish(cell, msgspec.structs.replace(part, finished_at=21, result="Success"))
    facts = [event_of(fact, CELL) for fact in event_facts.oldest(cell, 10)]
    assert [(one.type, one.project_id, one.user_id) for one in facts] == [
        ("action.begun", PROJECT, "root"),
        ("action.ended", PROJECT, "root"),
    ]


def test_what_is_undone_is_not_told(cell: sa.Connection) -> None:
    bring_to(cell, State.SPAWNING)
    told(cell)
    inner = cell.begin_nested()
    cell.execute(instances.update().values(state=State.ACTIVE.value))
    assert len(event_facts.oldest(cell, 10)) == 1
    inner.rollback()
    assert told(cell) == []


def test_the_api_database_tells_of_requests_moves_and_deletes(api: sa.Connection) -> None:
    build_requests.store(api, request([ONE]))
    api.execute(instance_mappings.update().values(cell=CELL))
    api.execute(instance_mappings.update().values(cell="d"))
    page = events.page(api, ALL)
    assert [one.type for one in page.events] == ["server.requested", "server.moved_cell"]
    asked, moved = page.events
    assert (asked.user_id, asked.project_id, asked.request_id) == (USER, PROJECT, "req-1")
    assert (moved.before_cell, moved.cell) == (CELL, "d")


def test_a_delete_without_a_cell_is_told(api: sa.Connection) -> None:
    build_requests.store(api, request([ONE]))
    api.execute(instance_mappings.update().values(deleted_at=7))
    assert [one.type for one in events.page(api, ALL).events] == ["server.requested", "server.deleted"]


def test_copying_again_changes_nothing(api: sa.Connection) -> None:
    assert events.add(api, [noted("a"), noted("b")], 1) == 2
    assert events.add(api, [noted("b"), noted("c")], 2) == 1
    assert keys(events.page(api, ALL)) == ["a", "b", "c"]


def test_a_reader_goes_on_where_it_stood(api: sa.Connection) -> None:
    empty = events.page(api, ALL)
    assert (empty.events, empty.next, empty.more) == ((), events.BEGINNING, False)
    events.add(api, [noted(key) for key in "abc"], 1)
    first = events.page(api, EventsWanted(after=empty.next, limit=2))
    assert (keys(first), first.more) == (["a", "b"], True)
    second = events.page(api, EventsWanted(after=first.next, limit=2))
    assert (keys(second), second.more) == (["c"], False)
    assert events.page(api, EventsWanted(after=second.next)).next == second.next


def test_a_filter_moves_the_cursor_past_what_it_leaves_out(api: sa.Connection) -> None:
    events.add(api, [noted("a", project="q"), noted("b", type_="server.error"), noted("c")], 1)
    assert keys(events.page(api, EventsWanted(project="q"))) == ["a"]
    assert keys(events.page(api, EventsWanted(types=frozenset({"server.error"})))) == ["b"]
    none = events.page(api, EventsWanted(server="other"))
    assert (keys(none), none.more) == ([], False)
    events.add(api, [noted("d")], 1)
    assert keys(events.page(api, EventsWanted(after=none.next))) == ["d"]


def test_an_answer_looks_at_a_bounded_number(api: sa.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_SCANNED", 2)
    events.add(api, [noted("a"), noted("b"), noted("c", project="q")], 1)
    first = events.page(api, EventsWanted(project="q"))
    assert (keys(first), first.more) == ([], True)
    assert keys(events.page(api, EventsWanted(after=first.next, project="q"))) == ["c"]


def test_pruning_is_told_to_who_comes_too_late(api: sa.Connection) -> None:
    start = events.page(api, ALL).next
    events.add(api, [noted("a")], 1)
    a = events.page(api, ALL).next
    events.add(api, [noted("b")], 5)
    events.add(api, [noted("c")], 3)
    assert not events.any_before(api, 1, 9)
    assert events.any_before(api, 4, 9)
    assert events.prune(api, 4, 9, 10) == 1, "what was stored later stays, and what is behind it"
    assert keys(events.page(api, EventsWanted(after=a))) == ["b", "c"], "it has read all that is gone"
    assert keys(events.page(api, ALL)) == ["b", "c"]
    with pytest.raises(Withdrawn, match=f"the oldest are behind {a}"):
        events.page(api, EventsWanted(after=start))
    assert events.prune(api, BIG, BIG, 10) == 2
    last = events.page(api, ALL)
    assert last.events == ()
    events.add(api, [noted("d")], 9)
    assert keys(events.page(api, EventsWanted(after=last.next))) == ["d"], "serials are not given again"
    with pytest.raises(Withdrawn):
        events.page(api, EventsWanted(after=a))


def test_what_a_wrong_clock_stored_holds_up_no_pruning(api: sa.Connection) -> None:
    for key, stored_at in (("a", 1), ("ahead", BIG), ("b", 2), ("ahead too", BIG), ("c", 8)):
        events.add(api, [noted(key)], stored_at)
    assert events.prune(api, 5, 9, 10) == 3
    assert keys(events.page(api, ALL)) == ["ahead too", "c"]
    assert not events.any_before(api, 5, 9)
    assert events.any_before(api, 9, 9), "the next look finds what is old by then"
    assert events.prune(api, 9, 9, 10) == 2


def test_a_cursor_of_a_lost_history_is_refused(api: sa.Connection) -> None:
    events.add(api, [noted("a")], 1)
    backup = events.page(api, ALL).next
    events.add(api, [noted("lost")], 1)
    ahead = events.page(api, ALL)
    api.execute(rows.delete().where(rows.c.event_key == "lost"))
    with pytest.raises(Withdrawn, match="went back in time"):
        events.page(api, EventsWanted(after=ahead.next))
    events.add(api, [noted("other"), noted("more")], 1)
    api.execute(rows.update().where(rows.c.event_key == "other").values(serial=ahead.events[-1].serial))
    with pytest.raises(Withdrawn, match="went back in time"):
        events.page(api, EventsWanted(after=ahead.next))
    assert len(events.page(api, EventsWanted(after=backup)).events) == 2


def test_a_restored_cell_tells_nothing_twice_and_loses_nothing(cell: sa.Connection, api: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    facts = event_facts.oldest(cell, 10)
    copied = [event_of(fact, CELL) for fact in facts]
    assert events.add(api, copied, 1) == 2
    # Restored from before it forgot them: the same facts are there again, and one more that was lost and done anew.
    assert events.add(api, [event_of(fact, CELL) for fact in event_facts.oldest(cell, 10)], 2) == 0
    event_facts.forget(cell, [msgspec.structs.replace(fact, fact_key="of another history") for fact in facts])
    assert len(event_facts.oldest(cell, 10)) == 2, "the numbers alone do not say which facts they are"
    event_facts.forget(cell, facts)
    assert event_facts.oldest(cell, 10) == []


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1", "1-", "1²-a", "9" * 30 + "-a", "0-"])
def test_what_is_no_cursor_is_refused_by_name(api: sa.Connection, cursor: str) -> None:
    with pytest.raises(BadRequest, match="after:"):
        events.page(api, EventsWanted(after=cursor))


def _write(location: Path | str, writer: int) -> None:
    dialect = dialect_of(location, 30.0)
    engine = dialect.engine()
    for number in range(20):
        with engine.begin() as connection:
            dialect.begin_write(connection)
            events.add(connection, [noted(f"{writer}-{number}")], 1)
    engine.dispose()


def _read_against_writers(location: Path | str) -> None:
    engine = dialect_of(location, 30.0).engine()
    schema.upgrade(engine, "api")
    writers = [threading.Thread(target=_write, args=(location, one)) for one in range(3)]
    for one in writers:
        one.start()
    seen: list[str] = []
    cursor = events.BEGINNING
    while True:
        over = not any(one.is_alive() for one in writers)
        with engine.connect() as connection:
            page = events.page(connection, EventsWanted(after=cursor, limit=7))
        seen += keys(page)
        cursor = page.next
        if over and not page.more:
            break
    engine.dispose()
    for one in writers:
        one.join()
    assert len(seen) == len(set(seen)) == 60
    for writer in range(3):
        assert [one for one in seen if one.startswith(f"{writer}-")] == [f"{writer}-{number}" for number in range(20)]


def test_a_reader_beside_writers_misses_nothing_on_sqlite(tmp_path: Path) -> None:
    _read_against_writers(tmp_path / "api.db")


@pytest.mark.needs_part("postgres")
def test_a_reader_beside_writers_misses_nothing_on_postgresql(postgres: PostgresServer) -> None:
    _read_against_writers(postgres.create_database("events_beside_writers"))


def test_a_server_staged_without_a_host_says_why(cell: sa.Connection) -> None:
    builds.stage(cell, [staged(host=None)], 1)
    assert [kind for kind, _ in told(cell)] == ["server.no_host"]


def test_what_cannot_be_read_is_told_as_such_and_holds_up_nothing(cell: sa.Connection, api: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    noted_first = sa.select(fact_rows.c.id).order_by(fact_rows.c.id).limit(1).scalar_subquery()
    cell.execute(fact_rows.update().where(fact_rows.c.id == noted_first).values(kind="of a newer release", what="so"))
    cell.execute(instances.update().values(state=State.ERROR.value, fault=dump(FAULT)))
    damaged = fact_rows.c.what == State.ERROR.value
    assert cell.execute(fact_rows.update().where(damaged).values(fault=b"{")).rowcount == 1
    found = [event_of(fact, CELL) for fact in event_facts.oldest(cell, 100)]
    assert [one.type for one in found].count("event.unreadable") == 2
    assert len(found) == 3
    assert found[0].data == {"kind": "of a newer release"}
    assert found[0].hidden == {"what": "so"}
    assert found[1].type == "server.active"
    assert (found[-1].type, found[-1].data) == ("event.unreadable", {"kind": "state"})
    assert events.add(api, found, 1) == len(found)


def test_the_past_of_a_server_is_not_told_again_where_it_comes_to(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    actions.begin(cell, [actions.action_of(ONE, "shelve", context("req-2"), 20)])
    part = actions.ActionEvent(instance=ONE, request_id="req-2", event="compute_shelve_instance", started_at=20)
    actions.finish(cell, msgspec.structs.replace(part, finished_at=21, result="Success"))
    before = [fact.fact_key for fact in event_facts.oldest(cell, 100)]
    assert len(before) == 4
    travels.unpack(cell, ONE, travels.pack(cell, ONE))
    assert [fact.fact_key for fact in event_facts.oldest(cell, 100)] == before
    assert len(actions.list_of(cell, ONE, limit=9)) == 2


def test_the_facts_of_one_server_can_go_first(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    cell.execute(fact_rows.update().where(fact_rows.c.kind == "state").values(instance=TWO))
    facts = event_facts.of_server(cell, TWO, 10)
    assert [(fact.instance, fact.kind) for fact in facts] == [(TWO, "state")]
    event_facts.forget(cell, facts)
    assert {fact.instance for fact in event_facts.oldest(cell, 100)} == {ONE}


@pytest.mark.parametrize("number", [1, 50])
def test_a_page_and_a_copy_take_as_many_statements_whatever_they_hold(api: sa.Connection, number: int) -> None:
    statements: list[str] = []

    def seen(_c: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    sa.event.listen(api, "before_cursor_execute", seen)
    try:
        events.add(api, [noted(str(one)) for one in range(number)], 1)
        assert len(statements) == 1
        statements.clear()
        assert len(events.page(api, ALL).events) == number
        assert len(statements) == 4
    finally:
        sa.event.remove(api, "before_cursor_execute", seen)
