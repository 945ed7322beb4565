"""Passwords and files on a host that has no key for them: they come from above the cell, for this run of the agent."""

from __future__ import annotations

import msgspec
import structlog

from skep.compute.agent import JOURNAL_FILE
from skep.compute.drivers.contents import GuestContents, GuestFile
from skep.compute.drivers.fake import INSIDES
from skep.compute.drivers.fake_inside import GuestInsides
from skep.messages.to_cell_conductor import Built, MaySpawn, ReadContents
from tests.support.agents import AgentStage, uuid_of

CONTENTS = GuestContents(admin_password="of the guest", files=(GuestFile(path="/a", contents=b"of a user"),))
PLAIN = msgspec.json.encode(CONTENTS)


def inside(stage: AgentStage, number: int) -> GuestContents | None:
    return GuestInsides(stage.directory / INSIDES).read(uuid_of(number))


async def test_a_host_without_the_key_gets_them_for_itself(stage: AgentStage) -> None:
    stage.conductor.contents = PLAIN
    await stage.start()
    await stage.build(secrets=b"sealed by the API")
    await stage.conductor.hears(Built)
    assert inside(stage, 1) == CONTENTS
    assert "of the guest" not in (stage.directory / JOURNAL_FILE).read_text()
    asked = [type(one) for one in stage.conductor.heard if isinstance(one, ReadContents | MaySpawn)]
    assert asked == [ReadContents, MaySpawn], "it asks before the point of no return"


async def test_an_agent_that_begins_anew_before_the_spawn_gets_them_too(stage: AgentStage) -> None:
    stage.conductor.contents = PLAIN
    stage.conductor.withheld = {ReadContents}
    await stage.start()
    await stage.build(secrets=b"sealed by the API")
    await stage.conductor.hears(ReadContents)
    await stage.crash()
    assert not stage.conductor.all(MaySpawn)
    stage.conductor.withheld = set()
    await stage.start()
    await stage.conductor.hears(Built)
    assert inside(stage, 1) == CONTENTS


async def test_a_build_waits_while_nobody_answers_above_the_cell(stage: AgentStage) -> None:
    stage.conductor.contents = PLAIN
    stage.conductor.withheld = {ReadContents}
    await stage.start()
    await stage.build(secrets=b"sealed by the API")
    await stage.conductor.until(lambda: len(stage.conductor.all(ReadContents)) > 2)
    assert not stage.conductor.all(MaySpawn)
    await stage.terminate()
    await stage.acknowledged("destroyed")
    assert stage.events() == []


async def test_where_nobody_has_the_key_the_guest_is_built_and_it_is_said_once(stage: AgentStage) -> None:
    await stage.start()
    with structlog.testing.capture_logs() as logged:
        for number in (1, 2):
            await stage.build(number, secrets=b"sealed by the API")
        await stage.conductor.until(lambda: len(stage.conductor.all(Built)) == 2)
    assert [inside(stage, number) for number in (1, 2)] == [None, None]
    assert len([line for line in logged if "not given to guests" in line["event"]]) == 1
