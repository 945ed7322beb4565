"""A machine that boots: its agent starts the guests that are to run, if it is to, before it tells how they are."""

from __future__ import annotations

import msgspec
import pytest

from skep.compute.boots import FILE
from skep.compute.drivers.fake import FailureRule
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.messages.to_cell_conductor import Built, MayResume, ReportGuests
from tests.support.agents import AgentStage, uuid_of


async def two_guests(stage: AgentStage, *, resume: bool = True) -> None:
    """Have two guests, of which the cell wants the first to run."""
    stage.settings = msgspec.structs.replace(stage.settings, resume_guests=resume)
    stage.conductor.active = {uuid_of(1)}
    await stage.start()
    for number in (1, 2):
        await stage.build(number)
    await stage.conductor.until(lambda: len(stage.conductor.all(Built)) == 2)

    async def noted() -> bool:
        return (stage.directory / FILE).exists()

    await eventually(noted, "the boot is noted")


async def booted(stage: AgentStage, boot: str) -> dict[InstanceUuid, PowerState]:
    """Let the machine boot, and return what the next agent tells first."""
    await stage.crash()
    for number in (1, 2):
        await stage.driver.power_off(uuid_of(number))
    stage.conductor.heard.clear()
    stage.boot = boot
    await stage.start()
    told = await stage.conductor.hears(ReportGuests)
    return {one.instance: one.power_state for one in told.guests}


@pytest.mark.parametrize(
    ("resume", "boot", "then"),
    [
        (True, "second", PowerState.RUNNING),
        (False, "second", PowerState.SHUTDOWN),
        (True, "first", PowerState.SHUTDOWN),
        (True, "", PowerState.SHUTDOWN),
    ],
)
async def test_what_is_to_run_runs_again_after_a_boot(
    stage: AgentStage, resume: bool, boot: str, then: PowerState
) -> None:
    await two_guests(stage, resume=resume)
    assert await booted(stage, boot) == {uuid_of(1): then, uuid_of(2): PowerState.SHUTDOWN}
    asked = {one.instance for one in stage.conductor.all(MayResume)}
    assert asked == ({uuid_of(1), uuid_of(2)} if then is PowerState.RUNNING else set())


async def test_it_is_done_once_for_each_boot(stage: AgentStage) -> None:
    await two_guests(stage)
    assert (await booted(stage, "second"))[uuid_of(1)] is PowerState.RUNNING
    assert (await booted(stage, "second"))[uuid_of(1)] is PowerState.SHUTDOWN
    assert (await booted(stage, "third"))[uuid_of(1)] is PowerState.RUNNING


async def test_an_agent_of_a_release_before_starts_nothing_at_its_upgrade(stage: AgentStage) -> None:
    await two_guests(stage)
    (stage.directory / FILE).unlink()
    assert (await booted(stage, "second"))[uuid_of(1)] is PowerState.SHUTDOWN


async def test_a_look_that_fails_after_a_boot_is_repeated_before_anything_is_told(stage: AgentStage) -> None:
    await two_guests(stage)
    stage.settings = msgspec.structs.replace(stage.settings, report_interval_seconds=0.05)
    # The agent looks once before all else.
    failing = FailureRule(operation="guests", after=1, times=3)
    stage.fake = msgspec.structs.replace(stage.fake, failures=(failing,))
    assert (await booted(stage, "second"))[uuid_of(1)] is PowerState.RUNNING
    assert (stage.directory / FILE).read_text() == "second"
    assert (stage.directory / FILE).stat().st_mode & 0o777 == 0o600
