"""Rows of a cell say which volumes their servers have, and to which host these are connected."""

from __future__ import annotations

import msgspec
import pytest
import sqlalchemy as sa

from skep.database.cell import instances, volumes
from skep.database.cell.tables import attempts
from skep.database.cell.tables import instances as rows
from skep.database.cell.volumes import VolumesOfRow
from skep.domain.instances import State
from skep.domain.volumes import NOWHERE, ServerVolume, VolumeBeside
from tests.support.rows import HOST, ONE, bring_to

VOLUME = ServerVolume(id="bdm", volume_id="volume", attachment_id="attachment", device="/dev/vdb")
SECOND = msgspec.structs.replace(VOLUME, id="other", volume_id="second", device="/dev/vdc")
OTHER = "other-host"


def on(host: str, *given: ServerVolume) -> tuple[ServerVolume, ...]:
    return tuple(msgspec.structs.replace(one, host=host) for one in given)


def has(cell: sa.Connection, *given: ServerVolume) -> VolumesOfRow:
    """Write volumes into the row as one write of an action does."""
    cell.execute(rows.update().values(**volumes.columns(given)))
    return volumes.told(cell, [ONE])[ONE]


def host_is(cell: sa.Connection, host: str | None) -> None:
    cell.execute(rows.update().values(host=host))


def misplaced(cell: sa.Connection) -> list[str]:
    return [one.instance for one in volumes.misplaced(cell, 10)]


def test_a_server_that_gets_a_volume_is_to_be_connected(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert misplaced(cell) == [], "it has no volume"
    before = has(cell, VOLUME)
    assert misplaced(cell) == [ONE]
    assert volumes.note(cell, before, on(HOST, VOLUME), 5)
    assert misplaced(cell) == []
    found = instances.get(cell, ONE)
    assert found is not None
    assert found.volumes == on(HOST, VOLUME)
    has(cell, *on(HOST, VOLUME), SECOND)
    assert misplaced(cell) == [ONE], "one of two is connected"
    has(cell)
    assert (misplaced(cell), volumes.told(cell, [ONE])[ONE].stored) == ([], None)


@pytest.mark.parametrize("host", [OTHER, None])
def test_volumes_follow_the_host(cell: sa.Connection, host: str | None) -> None:
    bring_to(cell, State.ACTIVE)
    volumes.note(cell, has(cell, VOLUME), on(HOST, VOLUME), 5)
    host_is(cell, host)
    [found] = volumes.misplaced(cell, 10)
    assert (found.host, found.volumes) == (host or NOWHERE, on(HOST, VOLUME))
    assert volumes.note(cell, found, on(host or NOWHERE, VOLUME), 6)
    assert misplaced(cell) == []


def test_a_row_that_was_written_meanwhile_stays(cell: sa.Connection) -> None:
    """A user took a volume away while it was connected to another host."""
    bring_to(cell, State.ACTIVE)
    before = has(cell, VOLUME, SECOND)
    has(cell, SECOND)
    assert not volumes.note(cell, before, on(HOST, VOLUME, SECOND), 5)
    assert volumes.told(cell, [ONE])[ONE].volumes == (SECOND,)
    assert misplaced(cell) == [ONE]


def test_what_was_connected_to_a_host_before_is_connected_once_more(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    before = has(cell, VOLUME)
    host_is(cell, OTHER)
    assert volumes.note(cell, before, on(HOST, VOLUME), 5)
    [found] = volumes.misplaced(cell, 10)
    assert (found.host, found.volumes) == (OTHER, on(HOST, VOLUME))


def test_a_server_on_no_host_is_not_taken_for_one_whose_volumes_are_on_none(cell: sa.Connection) -> None:
    """One of two is connected; one was connected too late; one has lost its attachment; one is to be looked at."""
    bring_to(cell, State.ACTIVE)
    host_is(cell, None)
    before = has(cell, *on(HOST, VOLUME), SECOND)
    assert misplaced(cell) == [ONE]
    host_is(cell, HOST)
    volumes.note(cell, before, on(HOST, VOLUME, SECOND), 5)
    host_is(cell, None)
    volumes.note(cell, volumes.told(cell, [ONE])[ONE], (VOLUME, SECOND), 6)
    assert misplaced(cell) == []
    volumes.note(cell, msgspec.structs.replace(volumes.told(cell, [ONE])[ONE], host=HOST), (VOLUME, SECOND), 7)
    assert misplaced(cell) == [ONE]
    has(cell, VOLUME, msgspec.structs.replace(SECOND, attachment_id=""))
    assert misplaced(cell) == [ONE]
    has(cell, VOLUME, SECOND)
    assert misplaced(cell) == []
    volumes.loosen(cell, ONE)
    assert misplaced(cell) == [ONE]


def test_what_is_refused_waits_for_another_host(cell: sa.Connection) -> None:
    """It is not asked for again and again."""
    bring_to(cell, State.ACTIVE)
    assert volumes.note(cell, has(cell, VOLUME), (VOLUME,), 5)
    assert misplaced(cell) == []
    host_is(cell, OTHER)
    assert misplaced(cell) == [ONE]


def test_volumes_that_another_process_connected(cell: sa.Connection) -> None:
    """All are attached anew: which attachment leads to which host is not known."""
    bring_to(cell, State.ACTIVE)
    volumes.connect_again(cell, ONE, 4)
    assert misplaced(cell) == [], "it has no volume"
    volumes.note(cell, has(cell, VOLUME), on(HOST, VOLUME), 5)
    volumes.connect_again(cell, ONE, 6)
    [found] = volumes.misplaced(cell, 10)
    assert found.volumes == (msgspec.structs.replace(VOLUME, attachment_id=""),)


@pytest.mark.parametrize("state", [State.MOVED, State.AWAY, State.LEAVING])
def test_a_row_that_does_not_count_is_left_alone(cell: sa.Connection, state: State) -> None:
    bring_to(cell, State.ACTIVE)
    has(cell, VOLUME)
    cell.execute(rows.update().values(state=state.value))
    assert misplaced(cell) == []
    assert volumes.told(cell, [ONE]) == {}


def beside(host: str, *given: ServerVolume) -> tuple[ServerVolume, ...]:
    second = VolumeBeside(attachment_id="second", host=host)
    return tuple(msgspec.structs.replace(one, beside=second) for one in given)


def awaited(cell: sa.Connection, attempt: int, *, is_open: bool = True) -> None:
    """Have another host make ready for the server, or have undone that."""
    cell.execute(attempts.delete().where(attempts.c.attempt == attempt))
    values = {"instance": ONE, "attempt": attempt, "node": "other-node", "host": OTHER, "started_at": 1}
    cell.execute(attempts.insert().values(**values, open=is_open))


def test_volumes_on_two_hosts_wait_until_the_server_is_on_one(cell: sa.Connection) -> None:
    """Whether it came to the other or not, and until that has undone what was made there."""
    bring_to(cell, State.ACTIVE)
    mine = volumes.told(cell, [ONE])[ONE]
    assert not mine.is_awaited
    number = cell.execute(sa.select(rows.c.attempt)).scalar_one()
    volumes.note(cell, has(cell, VOLUME), on(HOST, VOLUME), 5)
    awaited(cell, number + 1)
    before = volumes.told(cell, [ONE])[ONE]
    assert before.is_awaited
    assert volumes.note(cell, before, beside(OTHER, *before.volumes), 6)
    assert misplaced(cell) == []
    assert volumes.told(cell, [ONE])[ONE].attachments == {"attachment": "volume", "second": "volume"}
    volumes.loosen(cell, ONE)
    [found] = volumes.misplaced(cell, 10)
    assert found.is_awaited, "whoever looks leaves the second attachment alone"
    assert volumes.note(cell, found, found.volumes, 7)
    assert misplaced(cell) == []
    awaited(cell, number + 1, is_open=False)
    [found] = volumes.misplaced(cell, 10)
    assert not found.is_awaited
    awaited(cell, number + 1)
    cell.execute(rows.update().values(host=OTHER, attempt=number + 1))
    [found] = volumes.misplaced(cell, 10)
    assert not found.is_awaited
    here = ServerVolume(id="bdm", volume_id="volume", attachment_id="second", device="/dev/vdb", host=OTHER)
    assert volumes.note(cell, found, (here,), 8)
    assert misplaced(cell) == []
