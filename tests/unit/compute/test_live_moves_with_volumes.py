"""Volumes of servers that go to another host live: each host has them for as long as it may have the guest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from skep.compute.exchange import Exchange
from skep.domain.instances import PowerState
from skep.domain.volumes import ConnectedVolume, ServerVolume
from skep.messages.to_cell_conductor import AttemptFailed, Built, MoveStepDone, RequestConnections
from tests.support.agents import AgentStage, uuid_of
from tests.unit.compute.test_live_moves import STEPS, copying, failing, moved_with_a_crash, take

VOLUME = ServerVolume(id="bdm", volume_id="volume", attachment_id="first", device="/dev/vda", boot_index=0)
HERE = ConnectedVolume(
    volume_id="volume", attachment_id="first", device="/dev/vda", boot_index=0, driver="paper", data={"secret": "word"}
)
THERE = msgspec.structs.replace(HERE, attachment_id="second")

Stages = tuple[AgentStage, AgentStage]


@pytest.fixture
async def stages(tmp_path: Path) -> AsyncIterator[Stages]:
    """Two hosts that see one exchange; the first has the guest of attempt 1, which boots from a volume."""
    exchange = Exchange(tmp_path / "exchange")
    async with AsyncExitStack() as stack:
        both = []
        for name, connected in (("source", HERE), ("target", THERE)):
            stage = await stack.enter_async_context(AgentStage(tmp_path / name))
            stage.exchange, stage.volumes, stage.conductor.volumes = exchange, (VOLUME,), (connected,)
            await stage.start()
            both.append(stage)
        source, target = both
        await source.build()
        await source.conductor.hears(Built)
        assert used(source) == ["first"]
        yield source, target


def used(stage: AgentStage) -> list[str]:
    """Return the attachments of the volumes that the guest of a host uses."""
    return [one.attachment_id for one in stage.driver.volumes(uuid_of(1))]


def promised(stage: AgentStage, attempt: int) -> list[str]:
    """Return those that an attempt has connected for a guest that is still to come."""
    return [one.attachment_id for one in stage.driver.promised(uuid_of(1), attempt)]


async def test_the_target_has_them_before_the_guest_is_copied(stages: Stages) -> None:
    source, target = stages
    await copying(source, target)
    assert (used(source), used(target), promised(target, 2)) == (["first"], [], ["second"])
    asked = await target.conductor.hears(RequestConnections)
    assert (asked.attempt, asked.attachments) == (2, ())
    await source.move("live_copy", 1, target=2, wish="complete")
    assert (await source.conductor.hears(MoveStepDone)).failure is None
    assert used(source) == []
    assert (await take(target, "live_take_up", 2)).power_state is PowerState.RUNNING
    assert (used(target), promised(target, 2)) == (["second"], [])


@pytest.mark.parametrize("step", [step for step, _, _ in STEPS])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_crash_in_any_step_a_repeat_goes_on(stages: Stages, step: str, when: str) -> None:
    source, target = stages
    await moved_with_a_crash(stages, step, when)
    assert (used(source), used(target), promised(target, 2)) == ([], ["second"], [])


async def test_what_the_target_has_outlives_its_agent(stages: Stages) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    await target.crash()
    await target.start()
    assert promised(target, 2) == ["second"]
    await take(source, "live_copy", 1)
    assert (await take(target, "live_take_up", 2)).failure is None
    assert used(target) == ["second"]


@pytest.mark.parametrize("crash", [False, True])
async def test_a_target_that_is_given_up_lets_go_of_them(stages: Stages, crash: bool) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    failing(source, "copy_guest")
    assert (await take(source, "live_copy", 1)).failure is not None
    assert (await take(source, "live_take_back", 1)).failure is None
    assert used(source) == ["first"]
    if crash:
        await target.crash()
        await target.start()
    await target.undo(attempt=2)
    await target.conductor.hears(AttemptFailed)
    assert promised(target, 2) == []
    assert [path for path in target.directory.rglob("*") if path.name == f"{uuid_of(1)}_2"] == []


async def test_a_target_that_is_not_told_how_to_reach_them_is_refused(stages: Stages) -> None:
    _, target = stages
    target.conductor.volumes = None
    told = await take(target, "live_prepare", 2)
    assert told.failure is not None
    assert told.failure.error == "VolumesNotConnected"


async def test_a_guest_that_was_handed_over_to_a_lost_host_boots_again_with_them(stages: Stages) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    await take(source, "live_copy", 1)
    assert used(source) == []
    told = await take(source, "live_take_back", 1)
    assert (told.failure, told.power_state) == (None, PowerState.RUNNING)
    assert used(source) == ["first"]


async def test_no_password_is_on_the_disk_of_a_host(stages: Stages) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    files = [path for stage in (source, target) for path in stage.directory.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"word" in path.read_bytes()]
