"""Offloaded servers that go to another cell: what goes with their rows, and who may still write what they left."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, attempts, builds, instances, moves, reschedules, tasks, travels, unshelves
from skep.database.cell.builds import Staged
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances as instance_rows
from skep.domain.actions import UnshelveServer
from skep.domain.ids import CELL0, InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import State, Task
from tests.support.rows import FAULT, ME, ONE, bring_to, context, staged

NOW = 100
IMAGE = Image(id="image", size=7)


def hand_back(cell: sa.Connection) -> int:
    """Have an offloaded server wait for another cell; return its attempt."""
    bring_to(cell, State.SHELVED_OFFLOADED)
    known = instances.get(cell, ONE)
    assert known is not None
    assert unshelves.begin(cell, known, context("req-un"), IMAGE, UnshelveServer(), None, NOW, elsewhere=True)
    [work] = reschedules.take(cell, ME, NOW, 10)
    assert moves.hand_back(cell, ONE, work.instance.attempt, FAULT, NOW, shelved=True)
    return work.instance.attempt


def columns(cell: sa.Connection) -> dict[str, object]:
    return dict(cell.execute(sa.select(instance_rows).where(instance_rows.c.uuid == ONE)).mappings().one())


def come(cell: sa.Connection, traveller: travels.Traveller, attempt: int) -> bool:
    """Stage a server that comes from another cell."""
    plain = staged(attempt=attempt)
    coming = msgspec.structs.replace(plain, left_cells=(CELL0,), traveller=traveller)
    assert isinstance(coming, Staged)
    return builds.stage(cell, [coming], NOW) == {ONE}


def test_releases_before_0_8_never_take_it(cell: sa.Connection) -> None:
    """They take rows whose time has come: that of this one never comes to them."""
    attempt = hand_back(cell)
    row = instance_rows.c
    by_older = sa.select(row.uuid).where(sa.or_(row.sent_at.is_(None), row.sent_at <= 2**61))
    assert cell.execute(by_older).all() == []
    assert [one.instance for one in moves.waiting(cell, NOW, 10)] == [ONE]
    assert moves.freeze(cell, ONE, attempt, attempt + 1, NOW) is not None
    assert moves.thaw(cell, ONE, attempt, attempt + 1, NOW + 5)
    assert moves.waiting(cell, NOW, 10) == [], "not yet"
    assert [one.instance for one in moves.waiting(cell, NOW + 5, 10)] == [ONE]
    assert cell.execute(by_older).all() == []
    [forsaken] = moves.forsaken(cell, NOW + 1, 10)
    assert unshelves.give_up(cell, ONE, forsaken.attempt, "nobody", None, NOW) is not None
    assert columns(cell)["state"] == State.SHELVED_OFFLOADED


def test_who_was_replaced_above_neither_thaws_it_nor_lets_it_stay(cell: sa.Connection) -> None:
    attempt = hand_back(cell)
    assert moves.freeze(cell, ONE, attempt, attempt + 1, NOW) is not None
    assert moves.freeze(cell, ONE, attempt, attempt + 2, NOW) is not None
    assert not moves.thaw(cell, ONE, attempt, attempt + 1, NOW)
    assert unshelves.give_up(cell, ONE, attempt, "no", None, NOW, attempt + 1) is None
    assert unshelves.give_up(cell, ONE, attempt, "no", None, NOW) is None, "nor does its cell while it is frozen"
    assert unshelves.give_up(cell, ONE, attempt, "no", None, NOW, attempt + 2) is not None
    assert columns(cell)["fault"] is not None


def test_it_comes_back_over_the_row_that_it_left(cell: sa.Connection) -> None:
    attempt = hand_back(cell)
    work = moves.freeze(cell, ONE, attempt, attempt + 1, NOW)
    assert work is not None
    packed = travels.pack(cell, ONE)
    before = columns(cell)
    past = [(one.action, one.request_id, one.started_at) for one in actions.list_of(cell, ONE, limit=9)]
    events = [actions.events_of(cell, ONE, request) for _, request, _ in past]

    assert moves.linger(cell, ONE, attempt + 1, NOW + 5)
    assert not moves.linger(cell, ONE, attempt + 1, NOW + 9), "once"
    assert moves.waiting(cell, NOW, 10) == []
    assert not moves.left(cell, ONE, NOW + 5, upto=attempt - 1), "it has come back since then"
    assert not moves.left(cell, ONE, NOW, upto=attempt + 1), "it lingers"
    assert moves.left(cell, ONE, NOW + 5, upto=attempt + 1)
    known = tasks.known(cell, [(ONE, "req-un")])
    assert known.busy == {ONE}, "another cell says whether its image is needed"

    opened = attempt_rows.update().where(attempt_rows.c.attempt == 1)
    cell.execute(opened.values(open=True))
    assert not come(cell, packed, attempt + 9), "a host has something of it"
    cell.execute(opened.values(open=False))
    assert not come(cell, packed, attempt), "an older number"
    other = InstanceUuid("22222222-2222-4222-8222-222222222222")
    assert builds.stage(cell, [staged(other)], NOW) == {other}, "its attempt is open, and nothing to this one"
    assert come(cell, packed, attempt + 9)
    after = columns(cell)
    kept = {name for name in packed.columns if name != "body"}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert (after["state"], after["task"], after["attempt"], after["highest"]) == (
        State.STAGED,
        None,
        attempt + 9,
        attempt + 9,
    )
    assert [(one.action, one.request_id, one.started_at) for one in actions.list_of(cell, ONE, limit=9)] == past
    assert [actions.events_of(cell, ONE, request) for _, request, _ in past] == events
    assert attempts.history(cell, ONE)[-1].role == "unshelve"
    server = instances.get(cell, ONE)
    assert server is not None
    assert (server.state, server.task) == (State.SHELVED_OFFLOADED, Task.UNSHELVING)

    builds.unstage(cell, ONE, attempt + 9)
    assert actions.list_of(cell, ONE, limit=9) == []
    assert [actions.events_of(cell, ONE, request) for _, request, _ in past] == [[] for _ in past]
