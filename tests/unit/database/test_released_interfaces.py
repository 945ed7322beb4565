"""Ports of interfaces that leave their servers are released, each once, and hold up nothing else of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import sqlalchemy as sa

from skep.database import Connection
from skep.database.cell import interfaces
from skep.database.cell.tables import instances as rows
from skep.domain.clock import Clock
from skep.domain.errors import Unavailable
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.domain.vifs import Vif
from skep.super_conductor.interfaces import Interfaces
from skep.super_conductor.parts import Parts
from tests.support.rows import HOST, ONE, bring_to

T = TypeVar("T")
STAYS, FIRST, SECOND = (
    Vif(id=name, mac_address=f"fa:16:3e:00:00:0{number}", network_id="net", network_name="private", mtu=1500)
    for number, name in enumerate(("stays", "first", "second"))
)


class Stage:
    """A server of which two interfaces leave; it notes what the network service is asked for."""

    elsewhere = False

    def __init__(self, cell: sa.Connection) -> None:
        self.cell = cell
        self.released: list[str] = []
        self.bound: list[dict[InstanceUuid, str]] = []
        self.once_released: Callable[[], object] = list
        """What happens once, before the next answer to `release_port`."""
        self.refuses = False
        access = SimpleNamespace(
            read=self._run, write=self._run, cell=SimpleNamespace(uuid="c", name="c", is_cell0=False)
        )

        async def in_each_cell(_what: str, work: Callable[[Any], Awaitable[bool]]) -> bool:
            return await work(access)

        async def nudge(*_told: str) -> None:
            return None

        parts = SimpleNamespace(networks=self, clock=Clock(), in_each_cell=in_each_cell, nudge=nudge)
        self.story = Interfaces(cast(Parts, parts))
        bring_to(cell, State.ACTIVE)
        interfaces.tell(cell, {ONE: (STAYS, FIRST, SECOND)}, 5)
        interfaces.note_bound(cell, {ONE: HOST})
        for one in (FIRST, SECOND):
            interfaces.leave(cell, ONE, one.id)

    async def _run(self, unit: Callable[[Connection], T]) -> T:
        return unit(self.cell)

    async def release_port(self, _instance: InstanceUuid, port_id: str) -> None:
        self.released.append(port_id)
        then, self.once_released = self.once_released, list
        then()
        if self.refuses:
            raise Unavailable("the port is kept")

    async def bind(self, hosts: Mapping[InstanceUuid, str], _beside: object, _providers: object) -> None:
        self.bound.append(dict(hosts))

    def ports(self) -> list[tuple[str, bool]]:
        """Return what the row says of ports, and whether each leaves."""
        said = self.cell.execute(sa.select(rows.c.vifs).where(rows.c.uuid == ONE)).scalar_one()
        return [(one.id, one.leaving) for one in msgspec.json.decode(said, type=tuple[Vif, ...])]


async def test_ports_that_leave_are_released_once(cell: sa.Connection) -> None:
    stage = Stage(cell)
    assert await stage.story.bind()
    assert (stage.released, stage.ports()) == (["first", "second"], [("stays", False)])
    await stage.story.bind()
    assert (stage.released, stage.bound) == (["first", "second"], [{ONE: HOST}])
    assert not await stage.story.bind()


async def test_a_port_that_the_server_got_again_is_not_released(cell: sa.Connection) -> None:
    """Another process had it released meanwhile."""
    stage = Stage(cell)

    def comes_back() -> None:
        interfaces.left(cell, ONE, "second", 6)
        assert interfaces.plug(cell, ONE, SECOND)

    stage.once_released = comes_back
    await stage.story.bind()
    assert (stage.released, stage.ports()) == (["first"], [("stays", False), ("second", False)])


async def test_the_row_keeps_a_port_that_comes_back_while_it_is_released(cell: sa.Connection) -> None:
    stage = Stage(cell)
    stage.once_released = lambda: interfaces.plug(cell, ONE, FIRST)
    await stage.story.bind()
    assert stage.ports() == [("stays", False), ("first", False)]


async def test_a_port_that_is_not_released_keeps_no_other_from_the_host_of_the_server(cell: sa.Connection) -> None:
    stage = Stage(cell)
    stage.refuses = True
    cell.execute(rows.update().values(host="other"))
    await stage.story.bind()
    assert stage.bound == [{ONE: "other"}]
    assert stage.ports() == [("stays", False), ("first", True), ("second", True)]
    assert interfaces.misbound(cell, 10) == {ONE: "other"}, "it is tried again"
