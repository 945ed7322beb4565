"""The writes of rebuilds for which a volume is filled anew."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import builds, instances, move_steps, rebuilds, reimages, silent_moves
from skep.database.cell import tables as cell_tables
from skep.database.cell import volumes as cell_volumes
from skep.database.cell.cold_moves import COLUMNS, Move, move_of
from skep.database.cell.reimages import Reimage
from skep.domain.actions import Rebuild
from skep.domain.block_devices import BlockDevice
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.images import Image
from skep.domain.instances import Instance, PowerState, State, Task
from skep.domain.volumes import ServerVolume
from tests.support.rows import CELL, HOST, ONE, bring_to, context

NOW, STALE = 100, 90
ROOT = ServerVolume(id="b", volume_id="v", attachment_id="a", device="/dev/vda", host=HOST, boot_index=0)
ASKED = Rebuild(changes={"name": "new"}, reimage=Image(id="image-2", size=7, properties={"os_type": "other"}))
BROKE = BuildFailure(kind=FailureKind.ABORT, error="VolumeNotReimaged", message="it broke")


@pytest.fixture
def known(cell: sa.Connection) -> Move:
    """A rebuild of a server that boots from a volume, whose guest is put aside."""
    bring_to(cell, State.ACTIVE)
    cell.execute(cell_tables.instances.update().values(**cell_volumes.columns((ROOT,))))
    assert rebuilds.begin(cell, server(cell), context("req-anew"), NOW, ASKED, None) is not None
    begun = at(cell)
    assert begun.step == "reimage_prepare"
    assert ends(cell, begun, "reimage_prepare", begun.dest_attempt or 0)
    assert ends(cell, begun, "reimage_put_aside", 1)
    return at(cell)


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def at(cell: sa.Connection) -> Move:
    return move_of(cell.execute(sa.select(*COLUMNS)).one())


def ends(cell: sa.Connection, known: Move, step: str, attempt: int, power: PowerState = PowerState.RUNNING) -> bool:
    found = move_steps.done(cell, known.uuid, step, attempt, HOST, power, NOW, 3, task_id=known.task_id or "")
    return found is not None


def due(cell: sa.Connection) -> list[Reimage]:
    return reimages.due(cell, "", 10)[0]


def test_what_waits_is_found_with_all_that_is_needed(cell: sa.Connection, known: Move) -> None:
    """No host is told of it; a process that asks is known until it is stale."""
    [one] = due(cell)
    assert (one.move, one.root, one.image, one.since, one.taken_at) == (known, ROOT, ASKED.reimage, NOW, None)
    assert move_steps.due(cell, CELL, NOW, NOW, 5, 0) == []
    assert silent_moves.overdue(cell, NOW + 1, 5) == [], "no host is silent"
    assert reimages.take(cell, known, NOW, STALE)
    assert [one.taken_at for one in due(cell)] == [NOW]
    assert not reimages.take(cell, known, NOW + 1, STALE)
    assert reimages.take(cell, known, NOW + 20, NOW + 10)
    reimages.leave(cell, known, NOW)
    assert [one.taken_at for one in due(cell)] == [NOW + 20], "another process has it by now"
    reimages.leave(cell, known, NOW + 20)
    assert reimages.take(cell, known, NOW + 21, STALE)


def test_what_is_taken_anew_is_not_stale(cell: sa.Connection, known: Move) -> None:
    assert reimages.take(cell, known, NOW, STALE)
    assert reimages.renew(cell, known, NOW, NOW + 20)
    assert not reimages.take(cell, known, NOW + 21, NOW + 10), "it was taken anew"
    assert not reimages.renew(cell, known, NOW, NOW + 22), "that was another time"
    assert reimages.done(cell, known, NOW + 23) is not None
    assert not reimages.renew(cell, known, NOW + 20, NOW + 24), "it is over"


def test_what_was_taken_by_a_clock_that_was_set_back_is_taken_anew(cell: sa.Connection, known: Move) -> None:
    assert reimages.take(cell, known, NOW + 3600, NOW + 3595)
    assert not reimages.take(cell, known, NOW + 3599, NOW + 3594), "another clock is a little behind"
    assert reimages.take(cell, known, NOW, NOW - 5)


def test_pages(cell: sa.Connection, known: Move) -> None:
    assert reimages.due(cell, "", 1)[1] == known.uuid
    assert reimages.due(cell, known.uuid, 1) == ([], None)


def test_its_volume_is_connected_by_nobody_else_meanwhile(cell: sa.Connection, known: Move) -> None:
    cell_volumes.loosen(cell, ONE)
    for _ in range(2):
        assert cell_volumes.misplaced(cell, 10) == []
        assert reimages.done(cell, at(cell), NOW) is not None
    assert [one.instance for one in cell_volumes.misplaced(cell, 10)] == [ONE]


def test_the_server_is_as_asked_for_once_its_guest_is_there(cell: sa.Connection, known: Move) -> None:
    disk = BlockDevice(source_type="image", destination_type="volume", uuid="image-1", boot_index=0)
    assert ASKED.rebuilt(server_with(cell, disk)).block_devices[0].uuid == "image-2"
    assert reimages.done(cell, known, NOW) is not None
    assert reimages.done(cell, known, NOW) is None, "it is elsewhere by now"
    assert reimages.done(cell, at(cell), NOW) is not None
    [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert (order.move.row.order, order.attempt, order.start) == ("rebuild_spawn", known.dest_attempt, True)
    assert ends(cell, at(cell), "reimage_spawn", known.dest_attempt or 0)
    work = builds.work(cell, ONE)
    assert work is not None
    assert work.spec.image == ASKED.reimage
    assert (work.instance.name, work.instance.state, work.instance.task) == ("new", State.ACTIVE, None)
    assert due(cell) == []


def server_with(cell: sa.Connection, disk: BlockDevice) -> Instance:
    return Instance(
        **{
            **{name: getattr(server(cell), name) for name in Instance.__struct_fields__},
            "block_devices": (disk,),
        }
    )


def test_what_is_refused_leaves_the_server_as_it_was(cell: sa.Connection, known: Move) -> None:
    assert reimages.failed(cell, known, BROKE, NOW) is not None
    assert reimages.failed(cell, known, BROKE, NOW) is None
    [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert (order.move.step, order.attempt, order.start) == ("rebuild_take_back", 1, True)
    assert ends(cell, at(cell), "rebuild_take_back", 1)
    assert (server(cell).state, server(cell).name, server(cell).task) == (State.ACTIVE, "server", None)


@pytest.mark.parametrize("step", ["reimage_await", "reimage_spawn"])
def test_what_failed_over_a_volume_that_changed_is_an_error(cell: sa.Connection, known: Move, step: str) -> None:
    """The guest is there, and does not run: its user rebuilds or deletes it."""
    assert reimages.done(cell, known, NOW) is not None
    if step == "reimage_await":
        assert reimages.failed(cell, at(cell), BROKE, NOW) is not None
    else:
        assert reimages.done(cell, at(cell), NOW) is not None
        attempt, task_id = known.dest_attempt or 0, known.task_id or ""
        failed = move_steps.failed(cell, known.uuid, step, attempt, HOST, BROKE, NOW, 3, task_id=task_id)
        assert failed is not None
    assert server(cell).task is Task.REBUILD_BLOCK_DEVICE_MAPPING
    [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert (order.move.row.order, order.attempt, order.start) == ("take_back", 1, False)
    assert ends(cell, at(cell), "reimage_take_back", 1, PowerState.SHUTDOWN)
    after = server(cell)
    assert (after.state, after.task, after.attempt, after.power_state) == (State.ERROR, None, 1, PowerState.SHUTDOWN)
    assert after.fault is not None
    assert "it broke" in after.fault.message


def test_a_server_that_is_taken_away_waits_for_nothing(cell: sa.Connection, known: Move) -> None:
    cell.execute(cell_tables.instances.update().values(task=Task.DELETING.value))
    assert due(cell) == []
    assert not reimages.take(cell, known, NOW, STALE)
    assert reimages.done(cell, known, NOW) is None
    assert reimages.failed(cell, known, BROKE, NOW) is None
