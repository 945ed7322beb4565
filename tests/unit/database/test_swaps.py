"""What the row of a server says of a volume in whose place another one is to stand."""

from __future__ import annotations

import msgspec
import pytest
import sqlalchemy as sa

from skep.database.cell import agents, deletes, evacuations, fences, listing, swaps, tasks, volumes
from skep.database.cell.tables import instances
from skep.domain.actions import ACTIONS, ASSIST, SWAP, UNASSIST, EvacuateTo
from skep.domain.guests import GuestKnown, GuestSeen, correction
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import PowerState, State, Task
from skep.domain.volumes import (
    AssistedSnapshot,
    AssistSnapshot,
    EndedSnapshot,
    EndedSwap,
    ServerVolume,
    SwapVolume,
    VolumeEnds,
    VolumeSwap,
)
from tests.support.rows import HOST, ONE, bring_to, context

NOW = 100
TASK = "req-swap"
OLD = ServerVolume(id="bdm", volume_id="old", attachment_id="of-old", device="/dev/vdb", host=HOST)
MEANT = VolumeSwap(volume_id="new", attachment_id="of-new", host=HOST, task_id=TASK)
ASKED = SwapVolume(
    device="/dev/vdb",
    old_volume_id="old",
    old_attachment_id="of-old",
    new_volume_id="new",
    new_attachment_id="of-new",
)


def begin(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    cell.execute(instances.update().values(volumes.columns([OLD])))
    assert tasks.begin(cell, ONE, ACTIONS[SWAP], context(TASK), NOW, arguments=ASKED)
    assert swaps.name(cell, ONE, OLD, MEANT)


def may_act(cell: sa.Connection) -> bool:
    return tasks.may_act(cell, ONE, 1, HOST, Task.SWAPPING_VOLUME.value, TASK, NOW)


def done(cell: sa.Connection, error: str | None = None) -> bool:
    return tasks.done(cell, ONE, 1, TASK, PowerState.RUNNING, error, NOW) is not None


def said(cell: sa.Connection) -> VolumeSwap | None:
    [volume] = volumes.told(cell, [ONE])[ONE].volumes
    return volume.swap


def waits(cell: sa.Connection) -> bool:
    """Tell whether a super conductor finds something to do with the volumes of the server."""
    return bool(volumes.misplaced(cell, 9))


@pytest.mark.parametrize("error", [None, "VolumeNotCopied: it cannot be written"])
def test_what_came_of_a_copy_stands_in_the_row(cell: sa.Connection, error: str | None) -> None:
    begin(cell)
    assert (said(cell), waits(cell)) == (MEANT, False)
    assert may_act(cell)
    assert done(cell, error)
    assert said(cell) == msgspec.structs.replace(MEANT, over=True, copied=error is None)
    assert waits(cell)
    server = listing.find(cell, ONE)
    assert server is not None
    assert (server.state, server.task) == (State.ACTIVE, None)
    assert not done(cell, "another word of a repeat")
    assert said(cell) == msgspec.structs.replace(MEANT, over=True, copied=error is None)


def test_a_host_that_was_silent_too_long_copies_again(cell: sa.Connection) -> None:
    """No report of its guests ends the task meanwhile: it shows not which volume the guest uses."""
    begin(cell)
    assert may_act(cell)
    [task] = tasks.of(cell, instances.c.uuid == ONE)
    doubted = tasks.give_up(cell, task, NOW)
    assert doubted is not None
    assert doubted.in_doubt
    assert (said(cell), waits(cell)) == (MEANT, False)
    known = GuestKnown(
        instance=ONE,
        attempt=1,
        state=State.ACTIVE,
        power_state=PowerState.RUNNING,
        task=task.task,
        in_doubt=True,
        acted_id=TASK,
    )
    assert correction(known, GuestSeen(ONE, 1, PowerState.RUNNING, (TASK,))) is None
    assert may_act(cell)
    assert cell.execute(sa.select(instances.c.in_doubt_at)).scalar_one() is None
    assert done(cell)
    assert said(cell) == msgspec.structs.replace(MEANT, over=True, copied=True)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_host_that_is_marked_as_dead_may_come_back_with_the_other_volume(
    cell: sa.Connection, comes_back: bool
) -> None:
    """Neither volume is let go of before that, or before the fence takes effect."""
    begin(cell)
    assert may_act(cell)
    node = NodeUuid(f"node-{HOST}")
    agents.register(cell, AgentIdentity(node=node, host=HOST, process=Incarnation("a")), 1)
    assert fences.mark(cell, node, NOW, NOW)
    fences.settle(cell, fences.FencedHost(node=node, host=HOST, in_effect=False), NOW, 10)
    assert (said(cell), waits(cell)) == (MEANT, False)
    if comes_back:
        fences.came_back(cell, node)
        assert done(cell)
    else:
        assert fences.take_effect(cell, node, NOW)
        fences.close(cell, fences.FencedHost(node=node, host=HOST), NOW, 10)
        assert not done(cell)
    assert said(cell) == msgspec.structs.replace(MEANT, over=True, copied=comes_back)
    assert waits(cell)


def test_a_task_that_never_began_leaves_the_old_volume(cell: sa.Connection) -> None:
    begin(cell)
    [task] = tasks.of(cell, instances.c.uuid == ONE)
    assert tasks.give_up(cell, task, NOW) is not None
    assert said(cell) == msgspec.structs.replace(MEANT, over=True)
    assert not may_act(cell)


def test_a_delete_ends_it_and_what_is_left_to_tell_goes_with_the_row(cell: sa.Connection) -> None:
    begin(cell)
    assert may_act(cell)
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None
    [row] = volumes.told(cell, [ONE]).values()
    assert row.is_ending
    assert VolumeEnds.of(row.volumes) == VolumeEnds(kept=("old",), swaps=(EndedSwap("old", "new", copied=False),))
    assert not done(cell)
    assert said(cell) == msgspec.structs.replace(MEANT, over=True)


def test_an_evacuation_ends_it_and_leaves_the_old_volume(cell: sa.Connection) -> None:
    begin(cell)
    assert may_act(cell)
    server = listing.find(cell, ONE)
    assert server is not None
    assert evacuations.begin(cell, server, ACTIONS["evacuate"], context("req-move"), NOW, to=EvacuateTo())
    assert (said(cell), waits(cell)) == (msgspec.structs.replace(MEANT, over=True), True)
    assert not may_act(cell)
    assert not done(cell)
    assert said(cell) == msgspec.structs.replace(MEANT, over=True)


@pytest.mark.parametrize(
    "there",
    [
        (),
        (msgspec.structs.replace(OLD, attachment_id="another"),),
        (msgspec.structs.replace(OLD, host="another"),),
        (msgspec.structs.replace(OLD, swap=MEANT),),
    ],
)
def test_it_is_named_only_where_the_row_has_the_volume_as_it_was(
    cell: sa.Connection, there: tuple[ServerVolume, ...]
) -> None:
    bring_to(cell, State.ACTIVE)
    cell.execute(instances.update().values(volumes.columns(there)))
    assert not swaps.name(cell, ONE, OLD, msgspec.structs.replace(MEANT, task_id="req-another"))
    assert volumes.told(cell, [ONE])[ONE].volumes == there


def test_what_becomes_of_the_volume_at_the_end_may_have_changed_meanwhile(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    ends = msgspec.structs.replace(OLD, delete_on_termination=True)
    cell.execute(instances.update().values(volumes.columns([ends])))
    assert swaps.name(cell, ONE, OLD, MEANT)
    assert volumes.told(cell, [ONE])[ONE].volumes == (msgspec.structs.replace(ends, swap=MEANT),)


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("error", [None, "SnapshotNotMade: no room"])
def test_what_came_of_a_snapshot_stands_in_the_row(cell: sa.Connection, deletes: bool, error: str | None) -> None:
    bring_to(cell, State.STOPPED)
    cell.execute(instances.update().values(volumes.columns([OLD])))
    meant = AssistedSnapshot(snapshot_id="shot", task_id=TASK, deletes=deletes)
    action = ACTIONS[UNASSIST if deletes else ASSIST]
    asked = AssistSnapshot(device="/dev/vdb", volume_id="old", attachment_id="of-old", snapshot_id="shot")
    assert tasks.begin(cell, ONE, action, context(TASK), NOW, arguments=asked)
    assert swaps.assist(cell, ONE, OLD, meant)
    assert not swaps.assist(cell, ONE, OLD, msgspec.structs.replace(meant, task_id="req-another"))
    assert not swaps.name(cell, ONE, OLD, MEANT)
    assert not waits(cell)
    assert tasks.done(cell, ONE, 1, TASK, PowerState.SHUTDOWN, error, NOW) is not None
    [volume] = volumes.told(cell, [ONE])[ONE].volumes
    done = error is None
    assert (volume.snapshot, waits(cell)) == (msgspec.structs.replace(meant, over=True, done=done), True)
    assert VolumeEnds.of([volume]).snapshots == (EndedSnapshot("shot", deletes, done),)
