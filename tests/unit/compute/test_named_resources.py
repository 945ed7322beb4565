"""What is prepared for an attempt: journaled before it is made, undone whatever becomes of the attempt."""

from __future__ import annotations

import msgspec
import pytest

from skep.compute.agent import JOURNAL_FILE
from skep.compute.attempts import Attempts
from skep.compute.drivers.base import DriverError, NamedResource
from skep.compute.drivers.fake import DISKS, FailureRule, FakeDriver, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.entries import BuildAccepted, BuildFailed, Entry, GuestDestroyed, LeftoverRemoved
from skep.domain.builds import failure
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep.messages.to_cell_conductor import AttemptFailed, Built, Destroyed, MayBuild
from tests.support.agents import CONTEXT, HOST, AgentStage, HaltingSteps, instance

FIRST, SECOND = NamedResource(name="disk", kind="disk"), NamedResource(name="tap", kind="port", data={"dev": "tap0"})


class Listing(FakeDriver):
    """Makes two resources for each guest and remembers what it was asked for."""

    asked: list[str]
    fails_at = ""

    def plan(self, instance: Instance, attempt: int) -> tuple[NamedResource, ...]:  # noqa: ARG002
        return FIRST, SECOND

    async def prepare(self, instance: Instance, attempt: int, resource: NamedResource) -> None:  # noqa: ARG002
        self.asked.append(f"prepare {resource.name}")
        if resource.name == self.fails_at:
            raise DriverError("NoSpaceLeft", "the disk is full")

    async def undo(self, instance: InstanceUuid, attempt: int, resource: NamedResource) -> None:  # noqa: ARG002
        self.asked.append(f"undo {resource.name} of {attempt}")

    async def destroy(self, instance: InstanceUuid, attempt: int | None = None) -> None:
        self.asked.append("destroy")
        await super().destroy(instance, attempt)


@pytest.fixture
def asked(stage: AgentStage) -> list[str]:
    said: list[str] = []

    def make() -> FakeDriver:
        driver = Listing(stage.directory, HOST, stage.fake, stage.clock)
        driver.asked = said
        return driver

    stage.make_driver = make
    return said


async def test_they_are_made_in_order_and_undone_the_newest_first(stage: AgentStage, asked: list[str]) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    assert asked == ["prepare disk", "prepare tap", "destroy", "undo tap of 1", "undo disk of 1"]


async def test_the_journal_names_them_before_the_first_is_made(stage: AgentStage, asked: list[str]) -> None:
    stage.conductor.silent = {MayBuild}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(MayBuild)
    [line] = (stage.directory / JOURNAL_FILE).read_bytes().splitlines()
    assert msgspec.json.decode(line, type=BuildAccepted).prepares == (FIRST, SECOND)
    assert asked == []


async def test_one_that_cannot_be_made_has_all_of_them_undone(stage: AgentStage, asked: list[str]) -> None:
    await stage.start()
    assert isinstance(stage.driver, Listing)
    stage.driver.fails_at = "tap"
    await stage.build()
    assert (await stage.conductor.hears(AttemptFailed)).failure.error == "NoSpaceLeft"
    assert asked == ["prepare disk", "prepare tap", "destroy", "undo tap of 1", "undo disk of 1"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_the_preparation_undoes_what_may_never_have_been_made(
    stage: AgentStage, asked: list[str], when: str
) -> None:
    steps = HaltingSteps("prepare", when)
    await stage.start(steps)
    await stage.build()
    await steps.halted.wait()
    await stage.crash()
    asked.clear()
    await stage.start()
    await stage.conductor.hears(Built)
    assert asked == ["destroy", "undo tap of 1", "undo disk of 1", "prepare disk", "prepare tap"]


async def test_a_guest_that_was_built_is_undone_by_another_run_of_the_agent(
    stage: AgentStage, asked: list[str]
) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.crash()
    asked.clear()
    await stage.start()
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    assert asked == ["destroy", "undo tap of 1", "undo disk of 1"]


async def test_a_plan_that_is_refused_ends_the_attempt_before_anything_is_asked(stage: AgentStage) -> None:
    class Refusing(FakeDriver):
        def plan(self, instance: Instance, attempt: int) -> tuple[NamedResource, ...]:  # noqa: ARG002
            raise DriverError("ImageUnacceptable", "hw_tpm_model is not supported")

    stage.make_driver = lambda: Refusing(stage.directory, HOST)
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.failure.error, told.failure.message) == ("ImageUnacceptable", "hw_tpm_model is not supported")
    assert stage.conductor.all(MayBuild) == []
    assert stage.events() == []


async def test_an_order_that_an_older_agent_accepted_is_planned_anew(stage: AgentStage, asked: list[str]) -> None:
    stage.conductor.silent = {MayBuild}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(MayBuild)
    await stage.crash()
    journal = stage.directory / JOURNAL_FILE
    line = msgspec.json.decode(journal.read_bytes())
    del line["prepares"]
    journal.write_bytes(msgspec.json.encode(line) + b"\n")
    stage.conductor.silent = set()
    await stage.start()
    await stage.conductor.hears(Built)
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    assert asked[-5:] == ["prepare disk", "prepare tap", "destroy", "undo tap of 1", "undo disk of 1"]


async def test_a_failed_undo_is_a_failed_clean_up_and_tried_again(stage: AgentStage) -> None:
    broken = [True]

    class Stuck(FakeDriver):
        async def undo(self, instance: InstanceUuid, attempt: int, resource: NamedResource) -> None:
            if broken:
                raise DriverError("InternalError", "busy")
            await super().undo(instance, attempt, resource)

    stage.fake = FakeSettings(failures=(FailureRule(operation="spawn", error="SpawnFailed", times=1),))
    stage.make_driver = lambda: Stuck(stage.directory, HOST, stage.fake)
    await stage.start()
    await stage.build()
    told = await stage.conductor.hears(AttemptFailed)
    assert told.failure.error == "CleanupFailed"
    assert "disk disk: busy" in told.failure.message
    await stage.crash()
    broken.clear()
    await stage.start()
    await stage.conductor.hears(Destroyed)
    assert FakeDisks(stage.directory / DISKS).labels() == ()


def accepted() -> BuildAccepted:
    made = instance()
    return BuildAccepted(
        at=1,
        instance=made,
        attempt=1,
        resources=made.flavor.resources(),
        context=CONTEXT,
        prepares=(FIRST, SECOND),
    )


def test_what_is_left_behind_keeps_its_resources_through_a_compaction_until_it_is_removed() -> None:
    uuid = instance().uuid
    why = failure("CleanupFailed", "busy")
    entries: list[Entry] = [accepted(), BuildFailed(at=2, instance=uuid, attempt=1, failure=why, left_behind=True)]
    for _ in range(2):
        attempts = Attempts()
        for entry in entries:
            attempts.apply(entry)
        assert attempts.records[uuid].prepared == {1: (FIRST, SECOND)}
        entries = [msgspec.json.decode(msgspec.json.encode(entry), type=type(entry)) for entry in attempts.snapshot()]
    for end in (LeftoverRemoved(instance=uuid, attempt=1), GuestDestroyed(at=3, instance=uuid, attempt=1)):
        attempts = Attempts()
        for entry in [*entries, end]:
            attempts.apply(entry)
        assert attempts.records[uuid].prepared == {}


def test_an_attempt_that_failed_without_a_rest_has_no_resources() -> None:
    attempts = Attempts()
    attempts.apply(accepted())
    attempts.apply(BuildFailed(at=2, instance=instance().uuid, attempt=1, failure=failure("SpawnFailed", "no")))
    assert attempts.records[instance().uuid].prepared == {}
