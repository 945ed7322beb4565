"""Questions about guests on one host: answered from the hypervisor, bounded, and in nobody's way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.compute.console_lines import LINES
from skep.compute.drivers.fake import FailureRule, FakeSettings
from skep.compute.guest_questions import ANSWERS
from skep.domain.decoding import json_decoder
from skep.domain.instances import Task
from skep.domain.questions import MOST_BYTES, NEEDS, GuestDiagnostics, Topic
from skep.messages.to_cell_conductor import AnswerAboutGuest, Built, TaskDone
from skep.messages.to_compute import AskAboutGuest
from skep.transport.base import compute
from tests.support.agents import CELL, HOST, AgentStage, uuid_of
from tests.unit.compute.test_capabilities import CoreOnly


async def built(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)


async def ask(
    stage: AgentStage, topic: str = Topic.CONSOLE_OUTPUT, name: str = "q1", attempt: int = 1, **arguments: Any
) -> AnswerAboutGuest:
    question = AskAboutGuest(question=name, instance=uuid_of(1), attempt=attempt, topic=topic, arguments=arguments)
    await stage.transport.cast(compute(CELL, HOST), question)
    return await stage.conductor.hears(AnswerAboutGuest, lambda one: one.question == name)


def test_every_topic_has_an_answer_and_a_capability() -> None:
    assert {*ANSWERS, *LINES, Topic.CACHE_IMAGES, Topic.DISKS} == set(NEEDS) == set(Topic)


async def test_what_a_guest_wrote_to_its_console(stage: AgentStage) -> None:
    await built(stage)
    await stage.driver.rescue(uuid_of(1))
    await stage.driver.power_off(uuid_of(1))
    said = await ask(stage)
    assert said.error is None
    lines = [line.split(b" ", 2)[2] for line in said.content.splitlines()]
    booted = [line for line in lines if line.startswith(b"booted")]
    assert booted == [b"booted from its own disk", b"booted from its rescue disk and its own disk"]
    assert (len(lines), lines[-1]) == (26, b"halted")
    for number, (length, expected) in enumerate([(1, [b""]), (2, [b"halted", b""]), (-1, [*lines[1:], b""])]):
        got = (await ask(stage, name=f"some-{number}", length=length)).content
        assert [line.split(b" ", 2)[-1] for line in got.split(b"\n")] == expected


async def test_a_console_tells_the_life_of_its_guest(stage: AgentStage) -> None:
    await built(stage)
    driver, uuid = stage.driver, uuid_of(1)
    await driver.pause(uuid)
    await driver.unpause(uuid)
    await driver.suspend(uuid)
    await driver.resume(uuid)
    await driver.reboot(uuid, hard=False)
    await driver.power_off(uuid)
    await driver.power_on(uuid)
    await driver.reboot(uuid, hard=True)
    lines = [line.split(b" ", 2)[2] for line in (await ask(stage)).content.splitlines()]
    boot = len(lines[: lines.index(b"booted from its own disk") + 1])
    assert boot > 10, "as many as clients of Nova look for"
    assert {b"firmware: boot 1 of attempt 1", f"firmware: server {uuid}".encode()} <= set(lines[:boot])
    assert [
        line for line in lines if not line.startswith((b"kernel: ", b"init: ", b"firmware: server", b"firmware: st"))
    ] == [
        b"firmware: boot 1 of attempt 1",
        b"booted from its own disk",
        b"was paused",
        b"goes on where it was",
        b"stored its memory and was suspended",
        b"goes on where it was",
        b"goes down for a reboot",
        b"firmware: boot 2 of attempt 1",
        b"booted from its own disk",
        b"halted",
        b"firmware: boot 3 of attempt 1",
        b"booted from its own disk",
        b"was reset",
        b"firmware: boot 4 of attempt 1",
        b"booted from its own disk",
    ]


async def test_an_answer_is_bounded(stage: AgentStage) -> None:
    await built(stage)
    for _ in range(MOST_BYTES // 50):
        await stage.driver.reboot(uuid_of(1), hard=False)
    assert len((await ask(stage)).content) == MOST_BYTES


async def test_what_the_hypervisor_measures(stage: AgentStage) -> None:
    await built(stage)
    said = await ask(stage, Topic.DIAGNOSTICS)
    found = json_decoder(GuestDiagnostics).decode(said.content)
    assert (found.driver, found.state, len(found.cpus), len(found.disks)) == ("libvirt", "running", 1, 1)
    assert found.raw["memory"] == (found.memory_maximum or 0) * 1024 > 0
    await stage.driver.power_off(uuid_of(1))
    said = await ask(stage, Topic.DIAGNOSTICS, "q2")
    assert (said.content, said.error) == (b"", f"InstanceNotRunning: {uuid_of(1)} is shutdown, not running")


async def test_what_cannot_be_answered_is_said(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="console_output", message="broken"),))
    await built(stage)
    assert (await ask(stage)).error == "InternalError: broken"
    assert (await ask(stage, name="q2", attempt=2)).error == (
        f"InstanceNotFound: there is no guest of {uuid_of(1)} on host host-1"
    )
    assert (await ask(stage, "mood", "q3")).error == (
        "NotSupportedByAgent: the agent of host host-1 knows no question `mood`"
    )


async def test_a_driver_without_the_capability_is_not_asked(stage: AgentStage) -> None:
    whole = stage.make_driver
    stage.make_driver = lambda: CoreOnly(whole())  # type: ignore[assignment,return-value]
    await built(stage)
    assert (await ask(stage)).error == (
        "NotSupportedByDriver: the driver of host host-1 lacks the capability `console_output`"
    )


async def test_a_console_that_hangs_is_in_the_way_of_nothing(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="console_output", hangs=True),))
    limits = msgspec.structs.replace(stage.settings.limits, question=0.01)
    stage.settings = msgspec.structs.replace(stage.settings, limits=limits)
    await built(stage)
    assert (await ask(stage)).error == (
        "HypervisorUnavailable: the call `question` of the driver has not returned for 0.01 s"
    )
    assert (await ask(stage, name="q2")).error == (
        "HypervisorUnavailable: an earlier call `question` of the driver hangs"
    )
    await stage.change_power(Task.POWERING_OFF, "task-1")
    assert (await stage.conductor.hears(TaskDone)).error is None
    stage.driver.release()


@pytest.mark.parametrize("repeats", [3])
async def test_a_question_that_is_told_again_is_answered_again(stage: AgentStage, repeats: int) -> None:
    await built(stage)
    for _ in range(repeats):
        question = AskAboutGuest(question="q1", instance=uuid_of(1), attempt=1, topic=Topic.CONSOLE_OUTPUT)
        before = len(stage.conductor.all(AnswerAboutGuest))
        await stage.transport.cast(compute(CELL, HOST), question)
        await stage.conductor.until(lambda before=before: len(stage.conductor.all(AnswerAboutGuest)) > before)  # type: ignore[misc]
    assert len({one.content for one in stage.conductor.all(AnswerAboutGuest)}) == 1
