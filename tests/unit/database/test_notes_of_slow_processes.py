"""A process whose clock is behind notes servers all the same by the clock that looks at them go by: the database's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest
import sqlalchemy as sa

from skep.api.handlers import servers, volume_swaps
from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.api import port_holders, volume_holders
from skep.database.api.holders import SETTLE
from skep.database.api.network_tables import port_holders as port_rows
from skep.database.api.tables import volume_holders as volume_rows
from skep.database.engine import Database
from skep.domain.clock import SECOND, Clock
from skep.domain.ids import InstanceUuid
from skep.neighbours.volumes.base import VolumesRefused, WantedAttachments
from skep.processes.own_services import ApiPortLedger
from tests.support.rows import ONE, context
from tests.unit.database.test_clocks import Skewed, has_clock
from tests.unit.database.test_port_holders import server
from tests.unit.database.test_second_attachments import Stage

T = TypeVar("T")
BEHIND = Skewed(-SETTLE - 60 * SECOND)


def written(connection: sa.Connection) -> SimpleNamespace:
    """Return a database whose units run in the connection of a test."""

    async def write(unit: Callable[[Connection], T], **_said: object) -> T:
        return unit(connection)

    return SimpleNamespace(write=write)


def request(api: sa.Connection) -> ApiRequest:
    """Return a request to a process whose clock is behind; a file is of one machine, whose processes share theirs."""
    clock = BEHIND if has_clock(api) else Clock()
    return cast(ApiRequest, SimpleNamespace(services=SimpleNamespace(database=written(api), clock=clock)))


def is_now(connection: sa.Connection, at: int) -> bool:
    """Tell whether that is the time of the database; of the process where the database has none."""
    clock = Clock() if has_clock(connection) else BEHIND
    return abs(at - clock.now()) < 60 * SECOND


async def test_a_look_leaves_what_such_a_process_keeps_for_a_server(api: sa.Connection, cell: sa.Connection) -> None:
    stage = Stage(api, cell)
    await stage.begin()
    await volume_swaps.hold(request(api), ONE)
    volume = stage.service.new_volume()
    [kept] = await stage.service.reserve([WantedAttachments(instance=ONE, volume_ids=(volume,))])
    assert not isinstance(kept, VolumesRefused)
    await stage.story.look()
    assert kept[0] in stage.service.attachments, "its row is to name it"


NOTING: dict[str, Callable[[ApiPortLedger, InstanceUuid], Awaitable[object]]] = {
    "hold": lambda ledger, one: ledger.hold({one: 1}),
    "hold_living": lambda ledger, one: ledger.hold_living(one),
    "hold_ended": lambda ledger, one: ledger.hold_ended({one: True}),
}


@pytest.mark.parametrize("noting", NOTING)
async def test_ports_are_noted_by_the_database_s_clock(api: sa.Connection, noting: str) -> None:
    one, ledger = server(api), ApiPortLedger(cast(Database, written(api)), BEHIND)
    await NOTING[noting](ledger, one)
    assert is_now(api, api.execute(sa.select(port_rows.c.since)).scalar_one())
    await ledger.look_soon([one])
    assert is_now(api, api.execute(sa.select(port_rows.c.look_at)).scalar_one())


async def test_ports_of_a_server_that_is_gone_are_noted_likewise(api: sa.Connection) -> None:
    one, ledger = server(api, deleted_at=1), ApiPortLedger(cast(Database, written(api)), BEHIND)
    assert await ledger.hold_gone(one)
    assert is_now(api, api.execute(sa.select(port_rows.c.since)).scalar_one())


def test_the_end_of_a_server_that_no_cell_has_is_noted_likewise(api: sa.Connection) -> None:
    """What a super conductor asks for just then is looked for until it must have ended."""
    one = server(api)
    port_holders.hold_living(api, one, 1)
    volume_holders.hold_living(api, one, 1)
    servers._delete(api, one, context(), BEHIND, unless_locked=False)
    for table in (port_rows, volume_rows):
        assert is_now(api, api.execute(sa.select(table.c.since)).scalar_one())
