"""A server as a row: each fact is read from one place, and the last release can read the whole of it."""

from __future__ import annotations

import json
from functools import partial

import msgspec
import sqlalchemy as sa

from skep.database.cell import builds, instances
from skep.database.cell.tables import instances as rows
from skep.database.stored import dump, load
from skep.domain.instances import Instance, RequestedServer, State
from skep.domain.providers import Allocation, CellShare
from skep.messages.to_compute import build_order
from tests.support.assigned import assigned
from tests.support.rows import CELL, HOST, ONE, bring_to, context, server, spec, staged

NOW = 10**9


def body_of(cell: sa.Connection) -> bytes:
    body: bytes = cell.execute(sa.select(rows.c.body).where(rows.c.uuid == ONE)).scalar_one()
    return body


def test_of_the_body_only_what_was_asked_for_is_read(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    before = instances.get(cell, ONE)
    body = json.loads(body_of(cell))
    others = dict.fromkeys(body.keys() - set(RequestedServer.__struct_fields__), "of another fact")
    cell.execute(rows.update().values(body=dump({**body, **others})))
    assert instances.get(cell, ONE) == before


def test_the_last_release_reads_the_body_as_an_instance(cell: sa.Connection) -> None:
    bring_to(cell, State.SCHEDULED)
    changed = instances.change(cell, ONE, partial(msgspec.structs.replace, disk_config="AUTO"), NOW)
    assert changed is not None
    body: Instance = load(body_of(cell), Instance)
    assert (body.uuid, body.flavor, body.disk_config) == (ONE, server().flavor, "AUTO")


def test_a_build_is_dispatched_with_the_assignment_that_was_staged(cell: sa.Connection) -> None:
    wanted = spec()
    inside = Allocation(cells=(CellShare(cell=0, cpus=(1, 2)),))
    assignment = assigned(wanted.resources(), HOST, allocation=inside)
    builds.stage(cell, [msgspec.structs.replace(staged(), assignment=assignment)], NOW)
    builds.settle(cell, [(ONE, 1)], NOW)
    [due] = builds.dispatch_due(cell, CELL, NOW, NOW, 5)
    assert due.assignment == assignment
    order = build_order(due.work.instance, due.assignment, context(), b"sealed")
    assert (order.node, order.resources, order.allocation) == (assignment.node, wanted.resources(), inside)
