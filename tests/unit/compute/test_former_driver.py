"""An agent whose driver is another one than that which made what its host has."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from skep.compute import identity
from skep.compute.drivers.fake import FailureRule, FakeDriver, FakeSettings
from skep.domain.errors import Misconfigured
from skep.messages.to_cell_conductor import AttemptFailed, Built, Destroyed
from tests.support.agents import HOST, AgentStage


def named(stage: AgentStage, driver: str) -> None:
    """Have the agent started next note this name."""
    stage.settings = msgspec.structs.replace(stage.settings, driver=driver)


def elsewhere(stage: AgentStage, directory: Path) -> None:
    """Give the agent started next a driver that finds nothing of what is there."""
    directory.mkdir()
    named(stage, "other")
    stage.make_driver = lambda: FakeDriver(directory, HOST, stage.fake)


async def test_it_does_not_start_over_servers_that_it_does_not_find(stage: AgentStage, tmp_path: Path) -> None:
    named(stage, "first")
    await stage.start()
    uuid = await stage.build()
    await stage.conductor.hears(Built)
    await stage.crash()
    first = stage.make_driver
    elsewhere(stage, tmp_path / "other")
    with pytest.raises(Misconfigured) as raised:
        await stage.start()
    for part in ("compute.driver", '"first"', '"other"', uuid, str(stage.directory), "state.directory"):
        assert part in str(raised.value)
    named(stage, "first")
    stage.make_driver = first
    await stage.start()
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    await stage.acknowledged("destroyed")
    await stage.crash()
    elsewhere(stage, tmp_path / "another")
    await stage.start()
    kept = identity.load(stage.directory)
    assert kept is not None
    assert kept.driver == "other", "nothing is left that the first one made"


async def test_it_does_not_start_over_what_a_failed_clean_up_left(stage: AgentStage, tmp_path: Path) -> None:
    named(stage, "first")
    stage.fake = FakeSettings(failures=(FailureRule(operation="spawn"), FailureRule(operation="destroy")))
    await stage.start()
    await stage.build()
    await stage.conductor.hears(AttemptFailed)
    await stage.crash()
    elsewhere(stage, tmp_path / "other")
    with pytest.raises(Misconfigured, match=r"compute\.driver"):
        await stage.start()


async def test_one_that_finds_the_guests_under_another_name_takes_them_over(stage: AgentStage) -> None:
    named(stage, "first")
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.crash()
    named(stage, "renamed")
    await stage.start()


async def test_a_host_of_a_release_that_noted_no_driver_starts(stage: AgentStage, tmp_path: Path) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.crash()
    elsewhere(stage, tmp_path / "other")
    await stage.start()
