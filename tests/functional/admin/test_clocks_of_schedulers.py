"""A scheduler whose clock is off is named, whichever of several answers for all, and says so itself."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from skep.cell_conductor.parts import Parts
from skep.cell_conductor.service import CellConductor
from skep.config.sections import ConductorSettings
from skep.contracts.databases import new_database
from skep.contracts.eventually import eventually
from skep.domain.cells import Cell
from skep.domain.clock import SECOND, Clock, Timestamp
from skep.domain.ids import CellUuid, Incarnation
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.memory import MemoryBackend
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.memory import MemoryTransport
from tests.support.admin import Admin

HOUR = 3600


class Behind(Clock):
    """The clock of a machine whose time is wrong."""

    def now(self) -> Timestamp:
        return Timestamp(super().now() - HOUR * SECOND)


async def clocks(admin: Admin) -> dict[str, float]:
    """Return by how many seconds each scheduler is ahead, as told."""
    told = (await admin.good("GET", "/clocks"))["clocks"]
    return {one["host"]: one["seconds_ahead"] for one in told if one["process"] == "scheduler"}


async def test_a_scheduler_an_hour_behind_is_named_whichever_answers(admin: Admin) -> None:
    assert admin.scheduler.subscription is not None
    await admin.scheduler.subscription.close()
    transport, backend = admin.services.transport, MemoryBackend()
    right = SchedulerService(transport, backend, SchedulerSettings(host="right"), Clock())
    wrong = SchedulerService(transport, backend, SchedulerSettings(host="wrong"), Behind())
    await right.start()
    await wrong.start()
    try:

        async def known() -> bool:
            return all(len(one._membership.living()) == 2 for one in (right, wrong))

        await eventually(known, "each knows the other")
        for by in (right, wrong):
            said = {one.host: one.now for one in by._membership.living()}
            assert said["right"] is not None
            assert said["wrong"] is not None
            assert abs(said["right"] - said["wrong"] - HOUR * SECOND) < 60 * SECOND
        told = await clocks(admin)
        assert told["right"] == 0
        assert abs(told["wrong"] + HOUR) < 60
    finally:
        await wrong.stop()
        await right.stop()


async def test_it_says_so_itself_by_what_the_beats_of_a_cell_tell(tmp_path: Path) -> None:
    database = new_database(tmp_path / "cell1.db", "cell", readers=1)
    transport, clock, backend = MemoryTransport(), Clock(), MemoryBackend()
    parts = Parts(
        owner=Incarnation("me"),
        cell=Cell(uuid=CellUuid("c"), name="cell1"),
        database=database,
        transport=transport,
        above=transport,
        clock=clock,
        steps=Steps(Metrics()),
        notifier=Notifier(clock),
        settings=ConductorSettings(),
    )
    told: dict[str, dict[str, float | None]] = {"right": {}, "wrong": {}}
    right = SchedulerService(
        transport, backend, SchedulerSettings(host="right"), Clock(), on_clock=told["right"].__setitem__
    )
    wrong = SchedulerService(
        transport, backend, SchedulerSettings(host="wrong"), Behind(), on_clock=told["wrong"].__setitem__
    )
    await right.start()
    await wrong.start()
    conductor = CellConductor(parts)
    with capture_logs() as logs:
        try:

            async def both_told() -> bool:
                await conductor._beats._beat()
                right._clocks.look()
                wrong._clocks.look()
                return all("cell1" in one for one in told.values())

            await eventually(both_told, "beats have told both the time")
        finally:
            await wrong.stop()
            await right.stop()
            await database.close()
    assert abs(told["right"]["cell1"] or 0) < 60
    assert abs((told["wrong"]["cell1"] or 0) + HOUR) < 60
    said = [one for one in logs if one["event"] == "the clock of this process is off"]
    assert [(one["database"], one["seconds_ahead"] < 60 - HOUR) for one in said] == [("cell1", True)]
