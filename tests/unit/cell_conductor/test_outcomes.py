"""What hosts report at the end of a build, once, twice and from the wrong host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import sqlalchemy as sa

from skep.cell_conductor.builds import Builds
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.deletes import Deletes
from skep.cell_conductor.parts import Parts
from skep.config.sections import ConductorSettings
from skep.contracts.databases import new_database
from skep.database.cell import attempts, deletes, instances, reschedules
from skep.database.engine import Database
from skep.domain.builds import ABORTING, AttemptRecord, FailureKind, failure
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.ids import CellUuid
from skep.domain.instances import Instance, State
from skep.messages.to_cell_conductor import AttemptFailed, Built, Destroyed, MayBuild, MaySpawn
from skep.messages.to_compute import BuildAndRunInstance
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notification, Notifier
from skep.telemetry.steps import Steps
from skep.transport.base import compute
from skep.transport.memory import MemoryTransport
from tests.support.rows import HOST, ME, ONE, bring_to, context

T = TypeVar("T")


class Stage:
    """The builds and deletes of one cell over a real database, with nobody around them."""

    def __init__(self, database: Database, max_attempts: int = 3) -> None:
        self.events: list[Notification] = []
        transport, clock = MemoryTransport(), Clock()
        self.database = database
        self.parts = Parts(
            owner=ME,
            cell=Cell(uuid=CellUuid("c"), name="cell1"),
            database=database,
            transport=transport,
            above=transport,
            clock=clock,
            steps=Steps(Metrics()),
            notifier=Notifier(clock, sinks=(self.events.append,)),
            settings=ConductorSettings(),
            max_attempts=max_attempts,
        )
        releases = Releases(self.parts)
        self.builds = Builds(self.parts, releases)
        self.deletes = Deletes(self.parts, self.builds, releases)

    async def at(self, state: State) -> None:
        await self.do(lambda connection: bring_to(connection, state))

    async def do(self, unit: Callable[[sa.Connection], T]) -> T:
        return await self.database.write(unit)

    async def server(self) -> Instance:
        found = await self.do(lambda connection: instances.get(connection, ONE, deleted=True))
        assert found is not None
        return found

    async def history(self) -> list[AttemptRecord]:
        return await self.do(lambda connection: attempts.history(connection, ONE))

    async def fails(self, error: str = "SpawnFailed", *, host: str = HOST, attempt: int = 1) -> bool:
        message = AttemptFailed(instance=ONE, attempt=attempt, host=host, failure=failure(error, "it broke"))
        return (await self.builds.failed(message, None)).current


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = new_database(tmp_path / "cell1.db", "cell", readers=1)
    yield opened
    await opened.close()


@pytest.fixture
def stage(database: Database) -> Stage:
    return Stage(database)


async def test_a_failure_is_told_again_and_keeps_what_came_of_it(stage: Stage) -> None:
    await stage.at(State.BUILDING)
    assert await stage.fails() is True
    first = await stage.history()
    assert [(one.open, one.outcome, one.error, one.message) for one in first] == [
        (False, "failed", "SpawnFailed", "it broke")
    ]
    assert await stage.fails() is False
    assert await stage.history() == first
    assert (await stage.server()).state is State.RESCHEDULING


async def test_a_failure_of_a_replaced_attempt_is_noted_as_undone(stage: Stage) -> None:
    await stage.at(State.BUILDING)
    await stage.do(lambda connection: reschedules.take_from_host(connection, ONE, 1, 50))
    assert await stage.fails() is False
    [record] = await stage.history()
    assert (record.open, record.outcome, record.message) == (False, "undone", "it broke")


async def test_a_report_from_another_host_changes_nothing(stage: Stage) -> None:
    await stage.at(State.BUILDING)
    before = await stage.history()
    assert await stage.fails(host="host2") is False
    assert await stage.history() == before
    assert (await stage.server()).state is State.BUILDING


@pytest.mark.parametrize("error", sorted(ABORTING))
async def test_an_abort_is_error_at_once(stage: Stage, error: str) -> None:
    await stage.at(State.BUILDING)
    assert await stage.fails(error) is True
    server = await stage.server()
    assert (server.state, server.host) == (State.ERROR, None)
    assert server.fault is not None
    assert server.fault.message.endswith("it broke")
    assert HOST not in server.fault.message
    assert server.fault.details is not None
    assert server.fault.details.startswith(f"{HOST}: {error}: ")


async def test_what_a_host_could_not_clean_up_stays_open_until_it_has(stage: Stage) -> None:
    await stage.at(State.SPAWNING)
    assert await stage.fails("CleanupFailed") is True
    assert await stage.fails("CleanupFailed") is False
    assert (await stage.server()).state is State.ERROR
    assert [(one.open, one.outcome, one.error) for one in await stage.history()] == [(True, "failed", "CleanupFailed")]
    await stage.do(lambda connection: deletes.begin(connection, ONE, context("req-delete"), 50))
    await stage.do(lambda connection: deletes.finish_if_closed(connection, ONE, 50))
    assert (await stage.server()).state is State.ERROR, "its host may still have the guest"
    [stale] = await stage.do(lambda connection: attempts.stale_due(connection, 60, 55, 5))
    assert (stale.attempt, stale.host) == (1, HOST)
    await stage.deletes.destroyed(Destroyed(instance=ONE, host=HOST, attempts=(1,), up_to=2), None)
    assert (await stage.server()).state is State.DELETED


async def test_gone_is_no_failure(stage: Stage) -> None:
    await stage.at(State.BUILDING)
    await stage.do(lambda connection: deletes.begin(connection, ONE, context("req-delete"), 50))
    gone = failure("InstanceNotFound", "deleted")
    message = AttemptFailed(instance=ONE, attempt=1, host=HOST, failure=gone)
    assert gone.kind is FailureKind.RESCHEDULE
    assert (await stage.builds.failed(message, None)).current is False
    server = await stage.server()
    assert (server.state, server.fault) == (State.DELETED, None)


async def test_the_way_of_a_build_is_granted_again_and_again(stage: Stage) -> None:
    await stage.at(State.SCHEDULED)
    ask = {"instance": ONE, "attempt": 1, "host": HOST}
    for _ in range(2):
        assert (await stage.builds.may_build(MayBuild(**ask), None)).granted  # type: ignore[arg-type]  # one dict
    for _ in range(2):
        assert (await stage.builds.may_spawn(MaySpawn(**ask), None)).granted  # type: ignore[arg-type]  # one dict
    for _ in range(2):
        assert (await stage.builds.built(Built(**ask, launched_at=60), None)).current  # type: ignore[arg-type]  # one dict
    assert (await stage.server()).state is State.ACTIVE


async def test_a_destroyed_guest_deletes_its_row_once(stage: Stage) -> None:
    await stage.at(State.ACTIVE)
    await stage.do(lambda connection: deletes.begin(connection, ONE, context("req-delete"), 50))
    message = Destroyed(instance=ONE, host=HOST, attempts=(1,), up_to=1)
    for _ in range(2):
        await stage.deletes.destroyed(message, None)
    assert (await stage.server()).state is State.DELETED
    assert [event.event_type for event in stage.events].count("instance.delete.end") == 1


async def test_what_another_host_destroyed_says_nothing_of_this_one(stage: Stage) -> None:
    await stage.at(State.ACTIVE)
    await stage.do(lambda connection: deletes.begin(connection, ONE, context("req-delete"), 50))
    await stage.deletes.destroyed(Destroyed(instance=ONE, host="host2", attempts=(1,), up_to=9), None)
    assert (await stage.server()).state is State.ACTIVE


async def test_a_deleted_build_is_kept_in_mind_no_longer(stage: Stage) -> None:
    await stage.at(State.SCHEDULED)
    stage.builds.asserted = True
    await stage.builds._dispatch()
    work = stage.builds._sent[ONE]
    assert work.secrets is None, "secrets are for the host, not for events"
    await stage.do(lambda connection: deletes.begin(connection, ONE, context("req-delete"), 50))
    await stage.deletes.destroyed(Destroyed(instance=ONE, host=HOST, attempts=(), up_to=1), None)
    assert ONE not in stage.builds._sent


async def test_the_end_of_a_build_is_told_once_whichever_conductor_hears_of_it(stage: Stage) -> None:
    """Conductors share what hosts say, so one may send a build and another hear that its guest runs."""
    other = Builds(stage.parts, Releases(stage.parts))
    await stage.at(State.SCHEDULED)
    stage.builds.asserted = True
    await stage.builds._dispatch()
    assert (await other.may_spawn(MaySpawn(instance=ONE, attempt=1, host=HOST), None)).granted
    ended = Built(instance=ONE, attempt=1, host=HOST, launched_at=60)
    for conductor in (other, stage.builds, other):
        assert (await conductor.built(ended, None)).current
    assert [event.event_type for event in stage.events].count("instance.create.end") == 1
    assert not stage.builds._sent


async def test_a_conductor_remembers_the_builds_of_its_last_seconds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.cell_conductor.builds.REMEMBERED", 0)
    await stage.at(State.SCHEDULED)
    stage.builds.asserted = True
    await stage.builds._dispatch()
    assert not stage.builds._sent
    ask = {"instance": ONE, "attempt": 1, "host": HOST}
    assert (await stage.builds.may_build(MayBuild(**ask), None)).granted  # type: ignore[arg-type]  # one dict
    assert "instance.create.start" in [event.event_type for event in stage.events]


async def test_hosts_that_are_told_get_the_secrets(stage: Stage) -> None:
    taken: list[bytes | None] = []

    async def take(message: object, _context: object) -> None:
        taken.append(getattr(message, "secrets", None))

    subscription = await stage.parts.transport.serve(compute("c", HOST), {BuildAndRunInstance: take})
    await stage.at(State.SCHEDULED)
    stage.builds.asserted = True
    await stage.builds._dispatch()
    await subscription.close()
    assert taken == [b"sealed"]
