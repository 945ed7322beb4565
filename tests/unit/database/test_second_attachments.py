"""Servers that go to another host live have their volumes on both, by attachments that their row names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TypeVar, cast

import msgspec
import pytest
import sqlalchemy as sa

from skep.database import Connection
from skep.database.api import holders
from skep.database.api.tables import volume_holders
from skep.database.cell import cold_moves, instances, live_moves, move_steps, second_attachments, volumes
from skep.database.cell.cold_moves import WaitingMove
from skep.database.cell.tables import attempts
from skep.database.cell.tables import instances as rows
from skep.domain.actions import ACTIONS
from skep.domain.builds import failure
from skep.domain.clock import SECOND, Clock
from skep.domain.errors import Unavailable
from skep.domain.instances import PowerState, State
from skep.domain.volumes import ServerVolume
from skep.neighbours.volumes.base import VolumesRefused, WantedAttachments, WantedConnection
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.second_attachments import SecondAttachments
from skep.super_conductor.volumes import VolumesOfServers
from tests.support.memory_volumes import MemoryVolumes
from tests.support.rows import HOST, ME, ONE, bring_to, context, placed
from tests.unit.database.test_port_holders import server

T = TypeVar("T")
NOW = 100
OTHER = "host2"


class Stage:
    """A server with two volumes on a host, which another host is to have; the databases are those of a test."""

    def __init__(self, api: sa.Connection, cell: sa.Connection) -> None:
        self.api, self.cell = api, cell
        self.service = MemoryVolumes()
        access = SimpleNamespace(read=self._in(cell), write=self._in(cell), cell=SimpleNamespace(uuid="c", name="c"))
        self.access = cast(CellAccess, access)
        database = SimpleNamespace(read=self._in(api), write=self._in(api))
        parts = SimpleNamespace(
            api=database,
            volumes=self.service,
            clock=Clock(),
            cell=lambda _uuid: access,
            after=lambda seconds: Clock().now() + round(seconds * SECOND),
            volume_look_seconds=3600.0,
        )
        self.second, self.other = (SecondAttachments(cast(Parts, parts)) for _ in range(2))
        self.story = VolumesOfServers(cast(Parts, parts))

    def _in(self, connection: sa.Connection) -> Callable[[Callable[[Connection], T]], Awaitable[T]]:
        async def run(unit: Callable[[Connection], T]) -> T:
            return unit(connection)

        return run

    async def begin(self) -> None:
        """Have the server on its host with all its volumes."""
        server(self.api, cell="c", instance=ONE)
        bring_to(self.cell, State.ACTIVE)
        wanted = tuple(self.service.new_volume() for _ in range(2))
        [ids] = await self.service.reserve([WantedAttachments(instance=ONE, volume_ids=wanted)])
        assert not isinstance(ids, VolumesRefused)
        await self.service.connect([WantedConnection(attachment_id=one, connector={"host": HOST}) for one in ids])
        await self.service.complete(ids)
        given = tuple(
            ServerVolume(id=volume, volume_id=volume, attachment_id=attachment, device=f"/dev/vd{letter}", host=HOST)
            for volume, attachment, letter in zip(wanted, ids, "bc", strict=True)
        )
        self.cell.execute(rows.update().values(**volumes.columns(given)))

    def migrate(self) -> WaitingMove:
        """Begin a live migration, up to where its target makes ready."""
        row = instances.get(self.cell, ONE)
        assert row is not None
        assert live_moves.begin(self.cell, row, ACTIONS["live_migrate"], context("req-move"), NOW) is not None
        [waiting] = cold_moves.take(self.cell, ME, NOW, 5)
        assert cold_moves.placed(self.cell, waiting, placed(OTHER), NOW)
        live_moves.begin_queued(self.cell, NOW, 0)
        return waiting

    async def asked(
        self, waiting: WaitingMove, by: SecondAttachments | None = None
    ) -> tuple[ServerVolume, ...] | VolumesRefused:
        """Have the target ask how it reaches them."""
        return await (by or self.second).made(self.access, ONE, OTHER, waiting.attempt)

    def ends(self, waiting: WaitingMove, step: str, attempt: int, host: str) -> None:
        power, task_id = PowerState.RUNNING, waiting.move.context.request_id
        assert move_steps.done(self.cell, waiting.move.uuid, step, attempt, host, power, NOW, 3, task_id=task_id)

    def on(self, *hosts: str) -> None:
        """See that the service has each volume in use on these hosts, and that the row names all of it."""
        row = volumes.told(self.cell, [ONE])[ONE]
        for one in row.volumes:
            assert sorted(self.service.of(one.volume_id)) == sorted((ONE, "attached", host) for host in hosts)
        there = {one.id: one.volume_id for one in self.service.attachments.values()}
        assert row.attachments == there

    async def follow(self) -> bool:
        """Have volumes follow their server, where that is to be; False: it is not."""
        found = volumes.misplaced(self.cell, 5)
        for row in found:
            after = [await self.story.placed(self.access, row, one) for one in row.volumes]
            assert volumes.note(self.cell, row, after, NOW)
        assert volumes.misplaced(self.cell, 5) == []
        return bool(found)


@pytest.fixture
async def stage(api: sa.Connection, cell: sa.Connection) -> Stage:
    made = Stage(api, cell)
    await made.begin()
    made.on(HOST)
    return made


async def test_the_target_has_them_once_however_often_it_asks(stage: Stage) -> None:
    waiting = stage.migrate()
    first = await stage.asked(waiting)
    assert not isinstance(first, VolumesRefused)
    assert {(one.host, one.beside) for one in first} == {(OTHER, None)}
    stage.on(HOST, OTHER)
    assert await stage.asked(waiting) == first
    stage.on(HOST, OTHER)
    assert stage.api.scalar(sa.select(volume_holders.c.instance)) == ONE
    assert not await stage.follow()


async def test_after_the_switch_those_of_the_target_are_the_servers(stage: Stage) -> None:
    waiting = stage.migrate()
    told = await stage.asked(waiting)
    stage.ends(waiting, "live_prepare", waiting.attempt, OTHER)
    assert not second_attachments.are_wanted(stage.cell, ONE, waiting.attempt, OTHER)
    stage.ends(waiting, "live_copy", waiting.move.source_attempt, HOST)
    assert await stage.follow()
    stage.on(OTHER)
    assert volumes.told(stage.cell, [ONE])[ONE].volumes == told


async def test_those_of_a_target_that_failed_go_once_it_has_undone_its_attempt(stage: Stage) -> None:
    waiting = stage.migrate()
    await stage.asked(waiting)
    stage.ends(waiting, "live_prepare", waiting.attempt, OTHER)
    known, why = waiting.move, failure("MigrationError", "cut")
    task_id = known.context.request_id
    assert move_steps.failed(
        stage.cell, known.uuid, "live_copy", known.source_attempt, HOST, why, NOW, 3, task_id=task_id
    )
    stage.ends(waiting, "live_take_back", known.source_attempt, HOST)
    assert not await stage.follow()
    stage.on(HOST, OTHER)
    stage.cell.execute(attempts.update().where(attempts.c.host == OTHER).values(open=False))
    assert await stage.follow()
    stage.on(HOST)


async def test_a_refusal_leaves_nothing(stage: Stage) -> None:
    """Also of one volume of several."""
    waiting = stage.migrate()
    stage.service.unreached.add([*stage.service.volumes][1])
    refused = await stage.asked(waiting)
    assert isinstance(refused, VolumesRefused)
    stage.on(HOST)
    stage.service.unreached.clear()
    assert not isinstance(await stage.asked(waiting), VolumesRefused)
    stage.on(HOST, OTHER)


async def test_what_nobody_named_goes_before_others_are_made(stage: Stage) -> None:
    """A process died before the row named it."""
    waiting = stage.migrate()
    stage.service.failing["complete"] = Unavailable("it does not answer")
    with pytest.raises(Unavailable):
        await stage.asked(waiting)
    assert len(stage.service.attachments) == 4
    stage.service.failing.clear()
    assert not isinstance(await stage.asked(waiting), VolumesRefused)
    stage.on(HOST, OTHER)


async def test_another_process_leaves_alone_what_one_makes(stage: Stage) -> None:
    """The target has heard nothing for a while, and asks the other one."""
    waiting = stage.migrate()

    async def asks_again() -> None:
        with pytest.raises(Unavailable, match="being connected"):
            await stage.asked(waiting, stage.other)

    stage.service.once_beside = asks_again
    told = await stage.asked(waiting)
    assert not isinstance(told, VolumesRefused)
    stage.on(HOST, OTHER)
    assert await stage.asked(waiting, stage.other) == told


async def test_another_process_goes_on_once_all_has_ended_that_one_asked_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = stage.migrate()
    stage.service.failing["complete"] = Unavailable("it does not answer")
    with pytest.raises(Unavailable):
        await stage.asked(waiting)
    stage.service.failing.clear()
    with pytest.raises(Unavailable, match="being connected"):
        await stage.asked(waiting, stage.other)
    monkeypatch.setattr(holders, "SETTLE", 0)
    assert not isinstance(await stage.asked(waiting, stage.other), VolumesRefused)
    stage.on(HOST, OTHER)


async def test_another_process_goes_on_after_a_refusal(stage: Stage) -> None:
    waiting = stage.migrate()
    stage.service.unreached.add([*stage.service.volumes][1])
    assert isinstance(await stage.asked(waiting), VolumesRefused)
    stage.service.unreached.clear()
    assert not isinstance(await stage.asked(waiting, stage.other), VolumesRefused)
    stage.on(HOST, OTHER)


async def test_what_a_process_that_died_was_making_ends_with_the_migration(stage: Stage) -> None:
    waiting = stage.migrate()
    stage.service.failing["connect_beside"] = Unavailable("it does not answer")
    with pytest.raises(Unavailable):
        await stage.asked(waiting)
    stage.service.failing.clear()
    stage.cell.execute(attempts.update().where(attempts.c.host == OTHER).values(open=False))
    assert await stage.follow()
    stage.on(HOST)


async def test_nothing_is_made_for_a_migration_that_has_ended(stage: Stage) -> None:
    """A target has asked long ago, and the answer is late: another attachment might cut off its guest."""
    waiting = stage.migrate()

    async def goes_on() -> None:
        stage.ends(waiting, "live_prepare", waiting.attempt, OTHER)

    async def is_made() -> None:
        pytest.fail("another attachment is made")

    stage.service.before_listing, stage.service.once_beside = goes_on, is_made
    with pytest.raises(Unavailable, match="meanwhile"):
        await stage.asked(waiting)


async def test_a_row_that_changes_meanwhile_names_none_of_them(stage: Stage) -> None:
    """The migration has ended before they were made."""
    waiting = stage.migrate()

    async def ends() -> None:
        stage.ends(waiting, "live_prepare", waiting.attempt, OTHER)

    stage.service.before_listing = ends
    with pytest.raises(Unavailable, match="meanwhile"):
        await stage.asked(waiting)
    stage.on(HOST)


async def test_one_that_the_service_has_lost_is_made_anew(stage: Stage) -> None:
    waiting = stage.migrate()
    told = await stage.asked(waiting)
    assert not isinstance(told, VolumesRefused)
    await stage.service.detach([told[0].attachment_id])
    again = await stage.asked(waiting)
    assert not isinstance(again, VolumesRefused)
    assert again[1:] == told[1:]
    assert again[0] != told[0]
    stage.on(HOST, OTHER)


async def test_a_volume_that_is_not_on_its_own_host_goes_to_no_other(stage: Stage) -> None:
    waiting = stage.migrate()
    row = volumes.told(stage.cell, [ONE])[ONE]
    loose = (msgspec.structs.replace(row.volumes[0], host=""), row.volumes[1])
    stage.cell.execute(rows.update().values(**volumes.columns(loose)))
    refused = await stage.asked(waiting)
    assert isinstance(refused, VolumesRefused)
    assert "is not connected to host" in refused.message
