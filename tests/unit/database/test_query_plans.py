"""What runs again and again finds its rows by an index: passes stay quick however many settled servers there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from skep.database.api import build_requests, instance_mappings, task_charges
from skep.database.cell import (
    abandoned_moves,
    assertions,
    attempts,
    builds,
    cold_moves,
    deletes,
    fences,
    interfaces,
    listing,
    move_steps,
    moves,
    renewals,
    reschedules,
    residents,
    silent_moves,
    soft_deletes,
    tasks,
)
from skep.domain.ids import Incarnation, InstanceUuid, NodeUuid
from skep.domain.instances import State
from skep.domain.patterns import Pattern
from tests.support.rows import CELL, ONE, bring_to

ME = Incarnation("me")
TWO = InstanceUuid("two")
HOST1 = fences.FencedHost(node=NodeUuid("node-host1"), host="host1")
LARGE = (
    "migrations",
    "instances",
    "instance_mappings",
    "attempts",
    "build_requests",
    "actions",
    "action_events",
    "requests",
)
"""Tables with a row or more for each server."""

CELL_PASSES: dict[str, Callable[[sa.Connection], object]] = {
    "staged_before": partial(builds.staged_before, before=1, limit=5),
    "dispatch_due": partial(builds.dispatch_due, home=CELL, now=1, resend_before=1, limit=5),
    "renewals.note": renewals.note,
    "renewals.are_noted": renewals.are_noted,
    "renewals.waiting": partial(renewals.waiting, now=1, limit=5),
    "misbound": partial(interfaces.misbound, limit=5),
    "reschedules.take": partial(reschedules.take, owner=ME, now=1, limit=5),
    "overdue": partial(reschedules.overdue, state=State.SPAWNING, before=1, limit=5),
    "moves.waiting": partial(moves.waiting, now=1, limit=5),
    "stale": partial(attempts.stale_due, now=1, resend_before=1, limit=5),
    "deleting": partial(deletes.deleting, limit=5),
    "soft_deletes.any_due": partial(soft_deletes.any_due, before=1),
    "soft_deletes.reclaim": partial(soft_deletes.reclaim, before=1, limit=5, now=1),
    "unforgotten": partial(deletes.unforgotten, limit=5),
    "tasks.due": partial(tasks.due, now=1, resend_before=1, limit=5),
    "tasks.overdue": partial(tasks.overdue, before=1, limit=5),
    "progressed": partial(builds.progressed, host="a", builds=[(ONE, 1), (TWO, 2)], now=1),
    "tasks.progressed": partial(tasks.progressed, host="a", tasks=[(ONE, "r"), (TWO, "s")], now=1),
    "fenced": fences.fenced,
    "fences.close": partial(fences.close, host=HOST1, now=1, limit=5),
    "purge": partial(deletes.purge, before=1, limit=5),
    "assertions": assertions.read,
    "moves to choose hosts for": partial(cold_moves.take, owner=ME, now=1, limit=5),
    "steps of moves": partial(move_steps.due, home=CELL, now=1, resend_before=1, limit=5, progress_before=1),
    "moves of silent hosts": partial(silent_moves.overdue, since=1, limit=5),
    "moves without a server": partial(abandoned_moves.abandon, now=1, limit=5),
    "moves to confirm": partial(cold_moves.to_confirm, before=1, limit=5),
    "on_hosts": partial(residents.on_hosts, hosts=["a", "b"]),
}

API_PASSES: dict[str, Callable[[sa.Connection], object]] = {
    "any_waiting": partial(instance_mappings.any_waiting, owner=ME, now=1),
    "task_charges.waiting": task_charges.waiting,
    "take": partial(instance_mappings.take, owner=ME, now=1, limit=5),
    "deletes_due": partial(instance_mappings.deletes_due, now=1, again_at=2, limit=5),
    "deleting": instance_mappings.deleting,
    "purge": partial(instance_mappings.purge, before=1, limit=5),
    "get_many": partial(instance_mappings.get_many, instances=["a", "b"]),
    "build requests of a project": partial(build_requests.list_all, project_id="p", limit=5),
}

LISTS = {
    "of a project": listing.ListQuery(project_id="p", limit=5),
    "of a project after a marker": listing.ListQuery(project_id="p", after=(5, "a"), limit=5),
    "of all projects": listing.ListQuery(limit=5),
    "of all projects with a status": listing.ListQuery(limit=5, statuses=frozenset({"ACTIVE"})),
    "of a host": listing.ListQuery(host="a", limit=5),
    "changed since": listing.ListQuery(project_id="p", changed_since=7, limit=5),
    "deleted": listing.ListQuery(deleted=True, limit=5),
    "by name": listing.ListQuery(project_id="p", name=Pattern("a"), limit=5),
}


@contextmanager
def statements(connection: sa.Connection) -> Iterator[list[tuple[str, Any]]]:
    """Collect what is executed meanwhile."""
    seen: list[tuple[str, Any]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: Any, _context: object, _many: bool) -> None:
        seen.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(connection, "before_cursor_execute", note)


def plan(connection: sa.Connection, statement: str, parameters: Any) -> list[str]:
    return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]


def plans(connection: sa.Connection, unit: Callable[[sa.Connection], object]) -> list[str]:
    """Return the steps of the plans of all statements of a unit."""
    with statements(connection) as seen:
        unit(connection)
    return [step for statement, parameters in seen for step in plan(connection, statement, parameters)]


def scans(connection: sa.Connection, unit: Callable[[sa.Connection], object]) -> list[str]:
    """Return the steps of a unit's plans that read every row of a large table."""
    steps = plans(connection, unit)
    return [step for step in steps if any(step.startswith(f"SCAN {table}") for table in LARGE) and not _partial(step)]


def _partial(step: str) -> bool:
    """Tell whether a scan goes along an index that holds only rows with work in progress, or in a list's order."""
    good = ("instances_work", "instances_tasks", "instances_unforgotten", "attempts_unsettled", "attempts_open")
    bound = ("instances_misbound",)
    ordered = ("instances_all", "instance_mappings_waiting", "instance_mappings_deleting", "instances_purge")
    return any(f"INDEX {name}" in step for name in (*good, *bound, *ordered))


@pytest.mark.parametrize("cell", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", CELL_PASSES)
def test_a_pass_inside_a_cell_reads_no_whole_table(cell: sa.Connection, name: str) -> None:
    bring_to(cell, State.ACTIVE)
    assert scans(cell, CELL_PASSES[name]) == []


@pytest.mark.parametrize("api", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", API_PASSES)
def test_a_pass_above_the_cells_reads_no_whole_table(api: sa.Connection, name: str) -> None:
    assert scans(api, API_PASSES[name]) == []


@pytest.mark.parametrize("cell", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", LISTS)
def test_a_list_reads_no_whole_table(cell: sa.Connection, name: str) -> None:
    assert scans(cell, partial(listing.list_all, query=LISTS[name])) == []


@pytest.mark.parametrize("cell", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("lists", [listing.list_all, listing.next_names])
def test_frozen_rows_of_a_list_are_found_among_those_under_way(
    cell: sa.Connection, lists: Callable[..., object], name: str
) -> None:
    steps = plans(cell, partial(lists, query=LISTS[name]))
    by_state = [step.partition(" (")[0] for step in steps if "(state=?" in step]
    assert by_state == [f"SEARCH instances USING INDEX {index}" for index in ("instances_work", "instances_away")]
