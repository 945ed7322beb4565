"""Calls of the driver past their limit: unknown is not failed, and what hangs holds nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import structlog

from skep.compute.calls import CallLimits
from skep.compute.drivers.base import NamedResource
from skep.compute.drivers.fake import DISKS, FailureRule, FakeDriver, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.domain.errors import Unavailable
from skep.domain.hosts import HostUsage
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, Task
from skep.domain.resources import VCPU
from skep.messages.to_cell_conductor import (
    AttemptFailed,
    Built,
    Destroyed,
    MayAct,
    MayBuild,
    MaySpawn,
    ReportGuests,
    ReportHost,
    ReportProgress,
    TaskDone,
)
from tests.support.agents import AgentStage, uuid_of

SHORT = CallLimits(facts=0.01, guests=0.01, prepare=0.01, spawn=0.01, destroy=0.01, action=0.01)


def hang(stage: AgentStage, operation: str, server: str = "server-1", **more: Any) -> None:
    """Let an operation of one server hang at its short limit."""
    rule = FailureRule(operation=operation, server=server, hangs=True)
    stage.fake = FakeSettings(failures=(rule,))
    stage.settings = msgspec.structs.replace(stage.settings, limits=SHORT, **more)


async def hung(stage: AgentStage, call: str) -> ReportHost:
    """Wait until the host reports that a call of this kind hangs."""
    return await stage.conductor.hears(
        ReportHost, lambda told: any(one.startswith(call) for one in told.usage.hung_calls)
    )


async def reports(stage: AgentStage, wanted: Callable[[HostUsage], bool]) -> HostUsage:
    """Wait until the latest report is as wanted."""
    await stage.conductor.until(lambda: wanted(stage.conductor.all(ReportHost)[-1].usage))
    return stage.conductor.all(ReportHost)[-1].usage


def quiet(usage: HostUsage) -> bool:
    return not usage.hung_calls


async def test_a_spawn_that_hangs_stays_open_and_held_and_is_built_when_it_returns(stage: AgentStage) -> None:
    hang(stage, "spawn")
    await stage.start()
    uuid = await stage.build()
    told = await hung(stage, "spawn")
    assert told.usage.hung_calls[0].startswith(f"spawn of {uuid} since ")
    assert (told.usage.used[VCPU], told.usage.unfit) == (1, "")
    assert stage.conductor.all(Built) == []
    assert stage.conductor.all(AttemptFailed) == []
    stage.driver.release()
    await stage.conductor.hears(Built)
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_build_that_hangs_takes_no_turn_of_others_and_is_not_told_as_in_hand(stage: AgentStage) -> None:
    hang(stage, "prepare", max_concurrent_builds=1)
    await stage.start()
    first = await stage.build(1)
    await hung(stage, "prepare")
    second = await stage.build(2)
    assert (await stage.conductor.hears(Built)).instance == second
    stage.conductor.silent = {MayBuild}
    heard = len(stage.conductor.all(ReportProgress))
    third = await stage.build(3)
    await stage.conductor.until(
        lambda: any(third in _builds(told) for told in stage.conductor.all(ReportProgress)[heard:])
    )
    assert all(first not in _builds(told) for told in stage.conductor.all(ReportProgress)[heard:])
    stage.conductor.silent = set()
    stage.driver.release()
    await stage.conductor.hears(Built, lambda told: told.instance == first)


def _builds(told: ReportProgress) -> set[str]:
    return {build.instance for build in told.builds}


async def test_beyond_the_bound_the_host_takes_no_builds_and_says_why(stage: AgentStage) -> None:
    hang(stage, "spawn", max_hung_calls=1)
    await stage.start()
    uuid = await stage.build(1)
    told = await stage.conductor.hears(ReportHost, lambda told: bool(told.usage.unfit))
    assert told.usage.unfit.startswith(f"a call of the driver hangs: spawn of {uuid} since ")
    assert {one.reserved == one.total for one in told.usage.inventory.values()} == {True}
    await stage.build(2)
    refused = await stage.conductor.hears(AttemptFailed)
    assert (refused.instance, refused.failure.error) == (uuid_of(2), "HypervisorUnavailable")
    stage.driver.release()
    await stage.conductor.hears(Built)
    usage = await reports(stage, quiet)
    assert (usage.unfit, usage.inventory[VCPU].reserved) == ("", 0)
    await stage.build(3)
    await stage.conductor.hears(Built, lambda built: built.instance == uuid_of(3))


async def test_a_build_that_had_begun_nothing_when_the_room_closed_fails_at_once(stage: AgentStage) -> None:
    hang(stage, "spawn", max_hung_calls=1)
    await stage.start()
    stage.conductor.withheld = {MaySpawn}
    await stage.build(1)
    await stage.conductor.hears(MaySpawn)
    stage.conductor.withheld = {MaySpawn, MayBuild}
    second = await stage.build(2)
    await stage.conductor.hears(MayBuild, lambda asked: asked.instance == second)
    stage.conductor.withheld = {MayBuild}
    await stage.conductor.hears(ReportHost, lambda told: bool(told.usage.unfit))
    stage.conductor.withheld = set()
    refused = await stage.conductor.hears(AttemptFailed)
    assert (refused.instance, refused.failure.error) == (second, "HypervisorUnavailable")
    assert stage.conductor.all(ReportHost)[-1].usage.unfit
    stage.driver.release()
    await stage.conductor.hears(Built)


async def test_a_build_that_waits_for_room_to_be_undone_is_not_told_as_in_hand(stage: AgentStage) -> None:
    hang(stage, "prepare", max_hung_calls=1)
    await stage.start()
    stage.conductor.withheld = {MaySpawn, MayAct}
    second = await stage.build(2)
    await stage.conductor.hears(MaySpawn)
    await stage.build(1)
    await stage.conductor.hears(ReportHost, lambda told: bool(told.usage.unfit))
    # A task that stays in hand, so that there is always something to tell.
    await stage.change_power(Task.POWERING_OFF, "task-1", 3)
    await stage.conductor.hears(ReportProgress, lambda told: bool(told.tasks) and second in _builds(told))
    stage.conductor.withheld = {MayAct}
    await stage.conductor.hears(ReportProgress, lambda told: bool(told.tasks) and second not in _builds(told))
    assert stage.conductor.all(AttemptFailed) == []
    stage.driver.release()
    undone = await stage.conductor.hears(AttemptFailed)
    assert (undone.instance, undone.failure.error) == (second, "HypervisorUnavailable")


async def test_a_delete_waits_for_room_and_is_done_then(stage: AgentStage) -> None:
    hang(stage, "spawn", server="server-2", max_hung_calls=1)
    await stage.start()
    await stage.build(1)
    await stage.conductor.hears(Built)
    await stage.build(2)
    await hung(stage, "spawn")
    await stage.terminate(1)
    await stage.turn()
    assert stage.conductor.all(Destroyed) == []
    stage.driver.release()
    await stage.conductor.hears(Destroyed)
    assert stage.events().count("destroyed") == 1


async def test_a_restarted_agent_asks_the_hypervisor_what_came_of_a_call_that_hung(stage: AgentStage) -> None:
    hang(stage, "spawn")
    await stage.start()
    uuid = await stage.build()
    await hung(stage, "spawn")
    await stage.crash()
    stage.fake = FakeSettings()
    await stage.start()
    assert (await stage.conductor.hears(Built)).instance == uuid
    assert stage.events() == ["spawn_begun", "destroyed", "spawn_begun", "spawned"]
    assert FakeDisks(stage.directory / DISKS).labels() == ((uuid, 1),)


async def test_an_action_that_hangs_has_no_result_before_it_returns(stage: AgentStage) -> None:
    hang(stage, "power_off")
    await stage.start()
    uuid = await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await hung(stage, "action")
    heard, looks = len(stage.conductor.all(ReportProgress)), len(stage.conductor.all(ReportGuests))
    stage.driver._told()
    await stage.build(2)
    await stage.conductor.hears(Built, lambda built: built.instance == uuid_of(2))
    assert [task for told in stage.conductor.all(ReportProgress)[heard:] for task in told.tasks] == []
    assert all(seen.instance != uuid for told in stage.conductor.all(ReportGuests)[looks:] for seen in told.guests)
    assert stage.conductor.all(TaskDone) == []
    stage.driver.release()
    told = await stage.conductor.hears(TaskDone)
    assert (told.power_state, told.error) == (PowerState.SHUTDOWN, None)


async def test_an_action_for_which_there_is_no_room_is_not_told_as_begun(stage: AgentStage) -> None:
    hang(stage, "spawn", server="server-2", max_hung_calls=1)
    await stage.start()
    uuid = await stage.build(1)
    await stage.conductor.hears(Built)
    await stage.build(2)
    await hung(stage, "spawn")
    await stage.change_power(Task.POWERING_OFF, "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert (told.begun, told.power_state) == (False, PowerState.RUNNING)
    assert str(told.error).startswith("HypervisorUnavailable: host host-1 begins no call now: ")
    await stage.acknowledged("task")
    assert stage.events() == ["spawn_begun", "spawned", "spawn_begun"]
    await stage.crash()
    stage.fake = FakeSettings()
    await stage.start()
    heard = len(stage.conductor.all(ReportGuests))
    stage.driver._told()
    await stage.conductor.until(
        lambda: any(seen.instance == uuid for told in stage.conductor.all(ReportGuests)[heard:] for seen in told.guests)
    )
    later = [seen for told in stage.conductor.all(ReportGuests)[heard:] for seen in told.guests]
    assert {seen.tasks for seen in later if seen.instance == uuid} == {()}
    await stage.change_power(Task.POWERING_OFF, "task-2")
    done = await stage.conductor.hears(TaskDone, lambda one: one.task_id == "task-2")
    assert (done.begun, done.power_state, done.error) == (True, PowerState.SHUTDOWN, None)


async def test_what_waits_behind_a_call_that_hangs_is_not_told_as_in_hand(stage: AgentStage) -> None:
    """Another action on the guest, or a newer attempt of the server."""
    rules = (
        FailureRule(operation="power_off", server="server-1", hangs=True),
        FailureRule(operation="spawn", server="server-2", hangs=True),
    )
    stage.fake = FakeSettings(failures=rules)
    stage.settings = msgspec.structs.replace(stage.settings, limits=SHORT)
    await stage.start()
    await stage.build(1)
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await hung(stage, "action")
    second = await stage.build(2)
    await hung(stage, "spawn")
    stage.conductor.withheld = {MayBuild}
    third = await stage.build(3)
    await stage.conductor.hears(ReportProgress, lambda told: third in _builds(told))
    await stage.change_power(Task.POWERING_ON, "task-2")
    await stage.conductor.hears(MayAct, lambda asked: asked.task_id == "task-2")
    await stage.build(2, attempt=2)
    await stage.turn()
    heard = len(stage.conductor.all(ReportProgress))
    await stage.conductor.until(lambda: len(stage.conductor.all(ReportProgress)) > heard + 1)
    told = stage.conductor.all(ReportProgress)[-1]
    assert (_builds(told), told.tasks) == ({third}, ())
    stage.conductor.withheld = set()
    stage.driver.release()
    await stage.conductor.hears(TaskDone, lambda done: done.task_id == "task-2")
    await stage.conductor.hears(Built, lambda built: (built.instance, built.attempt) == (second, 2))


async def test_what_waits_behind_a_delete_that_waits_for_room_is_not_told_as_in_hand(stage: AgentStage) -> None:
    """An action on the guest, and a newer attempt of the server."""
    hang(stage, "prepare", server="server-2", max_hung_calls=1)
    await stage.start()
    first = await stage.build(1)
    await stage.conductor.hears(Built)
    stage.conductor.withheld = {MaySpawn}
    third = await stage.build(3)
    await stage.conductor.hears(MaySpawn, lambda asked: asked.instance == third)
    await stage.build(2)
    await hung(stage, "prepare")
    await stage.terminate(1)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await stage.conductor.hears(MayAct, lambda asked: asked.task_id == "task-1")
    await stage.build(1, attempt=3)
    await stage.turn()
    heard = len(stage.conductor.all(ReportProgress))
    await stage.conductor.until(lambda: len(stage.conductor.all(ReportProgress)) > heard + 1)
    told = stage.conductor.all(ReportProgress)[-1]
    assert (_builds(told), told.tasks) == ({third}, ())
    stage.conductor.withheld = set()
    stage.driver.release()
    await stage.conductor.hears(Destroyed)
    await stage.conductor.hears(TaskDone, lambda done: done.task_id == "task-1")
    await stage.conductor.hears(Built, lambda built: (built.instance, built.attempt) == (first, 3))


async def test_a_list_of_guests_that_hangs_is_asked_for_once_and_holds_nobody(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, limits=SHORT, report_interval_seconds=0.01)
    await stage.start()
    stage.driver.settings = FakeSettings(
        failures=(FailureRule(operation="guests", server="", hangs=True), FailureRule(operation="facts", hangs=True))
    )
    with structlog.testing.capture_logs() as lines:
        stage.driver._told()
        await stage.conductor.hears(ReportHost, lambda told: len(told.usage.hung_calls) == 2)
        stage.driver._told()
        await stage.build()
        await stage.conductor.hears(Built)
        hangs = [line["call"] for line in lines if line["event"] == "driver call hung"]
    assert sorted(hangs) == ["facts", "guests"]
    stage.driver.release()
    await reports(stage, quiet)


async def test_lists_of_guests_that_are_asked_for_together_leave_one_hung_call(stage: AgentStage) -> None:
    """Four actions that fail each ask how the guest is: that must not make the host unfit."""
    rules = (
        FailureRule(operation="power_off"),
        FailureRule(operation="guests", after=2, hangs=True),
    )
    stage.settings = msgspec.structs.replace(stage.settings, max_hung_calls=2)
    stage.conductor.takes_guests = False
    stage.fake = FakeSettings(failures=rules)
    agent = await stage.start()
    assert agent._host is not None
    calls = agent._host.calls
    calls._limits = SHORT
    assert await calls.read("guests", stage.driver.guests) == ()
    for number in (1, 2, 3, 4):
        await stage.build(number)
    await stage.conductor.until(lambda: len({built.instance for built in stage.conductor.all(Built)}) == 4)
    for number in (1, 2, 3, 4):
        await stage.change_power(Task.POWERING_OFF, f"task-{number}", number)
    await stage.conductor.until(lambda: len({done.task_id for done in stage.conductor.all(TaskDone)}) == 4)
    assert [call.call for call in calls.hung()] == ["guests"]
    assert calls.unfit() == ""
    stage.driver.release()


async def test_what_hangs_is_counted_by_kind(stage: AgentStage) -> None:
    hang(stage, "spawn", server="*")
    counted: list[tuple[str, int]] = []
    gone = asyncio.Event()

    def count(call: str, number: int) -> None:
        counted.append((call, number))
        if not number:
            gone.set()

    agent = await stage.start()
    assert agent._host is not None
    agent._host.calls.on_hung = count
    await stage.build(1)
    await stage.build(2)
    await stage.conductor.hears(ReportHost, lambda told: len(told.usage.hung_calls) == 2)
    stage.driver.release()
    await gone.wait()
    assert counted == [("spawn", 1), ("spawn", 2), ("spawn", 1), ("spawn", 0)]


@pytest.mark.parametrize("operation", ["facts", "guests"])
async def test_an_agent_whose_driver_does_not_answer_does_not_start(stage: AgentStage, operation: str) -> None:
    hang(stage, operation, server="*")
    with pytest.raises(Unavailable, match="the driver of host host-1 does not answer within"):
        await stage.start()
    stage.fake = FakeSettings()
    await stage.start()


async def test_a_build_that_was_given_up_while_it_hung_is_undone_when_it_returns(stage: AgentStage) -> None:
    hang(stage, "prepare")
    await stage.start()
    await stage.build()
    told = await hung(stage, "prepare")
    assert told.usage.used[VCPU] == 1
    await stage.terminate()
    await stage.turn()
    assert stage.conductor.all(Destroyed) == []
    stage.driver.release()
    await stage.conductor.hears(Destroyed)
    assert stage.events() == []
    assert FakeDisks(stage.directory / DISKS).labels() == ()
    await reports(stage, lambda usage: quiet(usage) and usage.used[VCPU] == 0)


async def test_calls_that_hold_all_threads_of_the_loop_do_not_hold_the_journal(stage: AgentStage) -> None:
    """A driver that hangs in `asyncio.to_thread`: another build is written down and made all the same."""
    free, held = threading.Event(), asyncio.Event()

    class InThread(FakeDriver):
        async def undo(self, instance: InstanceUuid, attempt: int, resource: NamedResource) -> None:
            held.set()
            await asyncio.to_thread(free.wait)
            await super().undo(instance, attempt, resource)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    stage.make_driver = lambda: InThread(stage.directory, "host-1")
    await stage.start()
    await stage.build(1)
    await stage.conductor.hears(Built)
    await stage.terminate(1)
    try:
        await held.wait()
        second = await stage.build(2)
        await stage.conductor.hears(Built, lambda built: built.instance == second)
    finally:
        free.set()
    await stage.conductor.hears(Destroyed)
