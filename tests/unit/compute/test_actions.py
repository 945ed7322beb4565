"""Orders to act on guests, as conductors of this release give them; those of older ones are in test_power.py."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from skep.compute.actions import COPIES, COPYINGS, OPERATIONS, TOLD
from skep.compute.agent import JOURNAL_FILE
from skep.compute.drivers.fake import FakeSettings
from skep.compute.entries import TaskOver, stand_in
from skep.domain.actions import ACTIONS, Kind
from skep.domain.instances import PowerState, Task
from skep.messages.to_cell_conductor import Built, Destroyed, MayAct, RegisterAgent, TaskDone
from skep.messages.to_compute import OF_CHANGE_POWER
from tests.support.agents import AgentStage, uuid_of

SNAPSHOT = {"device": "/dev/vdb", "volume_id": "v", "attachment_id": "a", "snapshot_id": "s", "new_file": "f"}


PLUG = {"volume_id": "v", "attachment_id": "a"}


VIF = {"id": "p", "mac_address": "fa:16:3e:00:00:01", "network_id": "n", "network_name": "net", "mtu": 1500}


def arguments_of(action: str) -> dict[str, Any] | None:
    if action == "unplug_interface":
        return {"vif": VIF}
    if action == "unplug_volume":
        return PLUG
    return SNAPSHOT if action.startswith("volume_snapshot") else None


def test_every_action_of_hosts_has_an_operation() -> None:
    known = {*OPERATIONS, *TOLD, *COPIES, *COPYINGS}
    assert known == {name for name, action in ACTIONS.items() if action.kind is Kind.GUEST}


@pytest.mark.parametrize("action", OPERATIONS)
async def test_an_action_is_asked_for_carried_out_once_and_told(stage: AgentStage, action: str) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.run_action(action, "task-1", arguments=arguments_of(action))
    told = await stage.conductor.hears(TaskDone)
    asked = await stage.conductor.hears(MayAct)
    assert (asked.task, asked.task_id) == (ACTIONS[action].task, "task-1")
    assert (told.task_id, told.error, told.begun) == ("task-1", None, True)
    [guest] = await stage.driver.guests()
    assert guest.power_state is told.power_state
    events = stage.events()
    await stage.acknowledged("task")
    await stage.run_action(action, "task-1")
    await stage.conductor.until(lambda: len(stage.conductor.all(TaskDone)) == 2)
    assert stage.events() == events


async def test_an_action_of_a_newer_release_is_refused_by_its_name(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.run_action("levitate", "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert told.error == "NotSupportedByAgent: the agent of host host-1 knows no action `levitate`"
    assert (told.begun, told.power_state) == (False, PowerState.RUNNING)
    assert stage.conductor.all(MayAct) == []


async def test_an_agent_says_which_orders_it_takes(stage: AgentStage) -> None:
    await stage.start()
    said = await stage.conductor.hears(RegisterAgent)
    assert {"RunAction", "ChangePower", "BuildAndRunInstance", "TerminateInstance"} <= set(said.understands)
    assert said.capabilities is not None
    assert {"power", "pause", "suspend"} <= set(said.capabilities)


async def test_an_agent_of_which_the_cell_does_not_know_that_registers_once_more(stage: AgentStage) -> None:
    stage.conductor.understood = False
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(RegisterAgent)) > 1)


class OlderTaskOver(msgspec.Struct, frozen=True, kw_only=True, tag="task", tag_field="entry"):
    """How 0.6.0 reads the end of a task: a name that it does not know would keep its agent from starting."""

    task_id: str
    task: Task


@pytest.mark.parametrize("action", OPERATIONS)
async def test_what_it_writes_down_can_be_read_by_older_agents(stage: AgentStage, action: str) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.run_action(action, "task-1", arguments=arguments_of(action))
    await stage.conductor.hears(TaskDone)
    lines = (stage.directory / JOURNAL_FILE).read_text().splitlines()
    [line] = [line for line in lines if json.loads(line)["entry"] == "task"]
    assert msgspec.json.decode(line, type=OlderTaskOver).task in OF_CHANGE_POWER
    assert msgspec.json.decode(line, type=TaskOver).action == action
    assert stand_in(action) in OF_CHANGE_POWER


SWAP = {
    "device": "/dev/vdb",
    "old_volume_id": "old",
    "old_attachment_id": "of-old",
    "new_volume_id": "new",
    "new_attachment_id": "of-new",
}


async def swaps(stage: AgentStage) -> None:
    """Have a host begin to copy a volume."""
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.run_action("swap_volume", "task-1", arguments=SWAP)
    await stage.conductor.hears(MayAct)


async def test_an_agent_that_died_while_it_copied_a_volume_does_it_when_it_is_told_again(stage: AgentStage) -> None:
    stage.fake = FakeSettings(copy_delay=3600.0)
    await swaps(stage)
    await stage.crash()
    stage.fake = FakeSettings()
    await stage.start()
    await stage.run_action("swap_volume", "task-1", arguments=SWAP)
    told = await stage.conductor.hears(TaskDone)
    assert (told.error, told.begun, told.power_state) == (None, True, PowerState.RUNNING)
    used = stage.driver.uses(uuid_of(1), "/dev/vdb")
    assert used is not None
    assert used.attachment_id == "of-new"


async def test_the_end_of_a_guest_aborts_what_is_copied_of_it(stage: AgentStage) -> None:
    stage.fake = FakeSettings(copy_delay=3600.0)
    await swaps(stage)
    await stage.terminate()
    told = await stage.conductor.hears(TaskDone)
    assert told.error == "VolumeSwapAborted: the copying was aborted"
    await stage.conductor.hears(Destroyed)
    assert await stage.driver.guests() == ()


async def plugs(stage: AgentStage) -> None:
    """Have a host begin to give an interface to a guest."""
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.run_action("plug_interface", "task-1", arguments={"vif": VIF})
    await stage.conductor.hears(MayAct)


async def test_an_agent_that_died_while_it_gave_an_interface_does_it_when_it_is_told_again(stage: AgentStage) -> None:
    stage.fake = FakeSettings(attaches_interfaces=True, power_delay=3600.0)
    await plugs(stage)
    await stage.crash()
    stage.fake = FakeSettings(attaches_interfaces=True)
    await stage.start()
    await stage.run_action("plug_interface", "task-1", arguments={"vif": VIF})
    told = await stage.conductor.hears(TaskDone)
    assert (told.error, told.begun, told.power_state) == (None, True, PowerState.RUNNING)
    assert stage.driver.interfaces(uuid_of(1)) == {"p"}


async def test_a_host_that_gives_no_interfaces_to_guests_refuses(stage: AgentStage) -> None:
    """Where it was configured so, though its driver knows how."""
    stage.fake = FakeSettings()
    await stage.start()
    said = await stage.conductor.hears(RegisterAgent)
    assert said.capabilities is not None
    assert "attach_interface" not in said.capabilities
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.run_action("plug_interface", "task-1", arguments={"vif": VIF})
    told = await stage.conductor.hears(TaskDone)
    assert (told.begun, told.error) == (
        False,
        "NotSupportedByDriver: the driver of host host-1 lacks the capability `attach_interface`",
    )
