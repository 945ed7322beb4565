"""A host is told of a guest once its ports are bound there and its volumes are connected, or after a while."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from skep.database.cell import builds, cold_moves, instances, interfaces, move_steps, reschedules, unshelves
from skep.database.cell import volumes as of_servers
from skep.domain.actions import ACTIONS, UnshelveServer
from skep.domain.images import Image
from skep.domain.instances import Instance, PowerState, State
from skep.domain.vifs import Vif
from skep.domain.volumes import ServerVolume
from tests.support.rows import CELL, HOST, ME, ONE, bring_to, context, placed

NOW = 100
OTHER = "host2"
VIF = Vif(id="port", mac_address="fa:16:3e:00:00:01", network_id="net", network_name="private", mtu=1500)


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def has_ports_on(cell: sa.Connection, host: str) -> None:
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    interfaces.note_bound(cell, {ONE: host})


def has_a_volume_on(cell: sa.Connection, host: str) -> None:
    before = of_servers.told(cell, [ONE])[ONE]
    volume = ServerVolume(id="id", volume_id="volume", attachment_id="attachment", device="/dev/vdb", host=host)
    assert of_servers.note(cell, before, [volume], NOW)


def told(cell: sa.Connection, unfollowed_before: int = NOW) -> list[str | None]:
    """Return the steps of moves of which hosts are told now."""
    return [one.move.step for one in move_steps.due(cell, CELL, NOW, NOW, 5, NOW, unfollowed_before)]


def switched(cell: sa.Connection) -> None:
    """Move a server up to where its target has it."""
    assert cold_moves.begin(cell, server(cell), ACTIONS["migrate"], context("req-move"), NOW) is not None
    [waiting] = cold_moves.take(cell, ME, NOW, 5)
    assert cold_moves.placed(cell, waiting, placed(OTHER), NOW)
    target = (waiting.attempt, OTHER)
    for step, (attempt, host) in (("prepare", target), ("put_aside", (1, HOST)), ("transfer", target)):
        assert told(cell) == [step], "before the switch nothing is to follow"
        uuid, power = waiting.move.uuid, PowerState.RUNNING
        assert move_steps.done(cell, uuid, step, attempt, host, power, NOW, 3, task_id="req-move") is not None


def unshelved(cell: sa.Connection) -> None:
    """Unshelve a server up to where it has a host."""
    image, wanted = Image(id="image", size=7), UnshelveServer()
    assert unshelves.begin(cell, server(cell), context("req-un"), image, wanted, None, NOW)
    [work] = reschedules.take(cell, ME, NOW, 10)
    assert reschedules.rescheduled(cell, ONE, work.instance.attempt, placed(OTHER), NOW, "unshelve")


def dispatched(cell: sa.Connection, unfollowed_before: int = NOW) -> int:
    """Return of how many builds hosts are told now."""
    return len(builds.dispatch_due(cell, CELL, NOW, NOW, 5, unfollowed_before=unfollowed_before))


@pytest.mark.parametrize("follows", [has_ports_on, has_a_volume_on])
def test_the_target_of_a_move(cell: sa.Connection, follows: Callable[[sa.Connection, str], None]) -> None:
    bring_to(cell, State.ACTIVE)
    follows(cell, HOST)
    switched(cell)
    assert told(cell) == []
    follows(cell, OTHER)
    assert told(cell) == ["take_up"]


def test_the_target_of_a_move_waits_not_for_good(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    has_a_volume_on(cell, HOST)
    switched(cell)
    assert told(cell) == []
    assert told(cell, NOW + 1) == ["take_up"]


def test_the_host_of_an_unshelve(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED_OFFLOADED)
    has_a_volume_on(cell, "")
    unshelved(cell)
    assert dispatched(cell) == 0
    has_a_volume_on(cell, OTHER)
    assert dispatched(cell) == 1


def test_the_host_of_an_unshelve_waits_not_for_good(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED_OFFLOADED)
    has_a_volume_on(cell, "")
    unshelved(cell)
    assert dispatched(cell, NOW + 1) == 1
