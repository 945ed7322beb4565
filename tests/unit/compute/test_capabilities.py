"""Capabilities of drivers: what a driver lacks is refused by name before anything is touched."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from skep.compute.drivers.base import Driver
from skep.compute.drivers.capabilities import PROTOCOLS, able, capabilities_of
from skep.compute.drivers.fake import FakeDriver, FakeSettings
from skep.compute.drivers.fake_setup import lacking
from skep.config.compute import FakeCapability
from skep.domain.capabilities import Capability
from skep.domain.instances import PowerState, Task
from skep.messages.to_cell_conductor import Built, MayAct, ReportHost, TaskDone
from tests.support.agents import AgentStage


class CoreOnly:
    """The core of a fake driver without any capability."""

    def __init__(self, inner: FakeDriver) -> None:
        self.on_change = inner.on_change
        self.facts = inner.facts
        self.guests = inner.guests
        self.plan = inner.plan
        self.prepare = inner.prepare
        self.undo = inner.undo
        self.spawn = inner.spawn
        self.destroy = inner.destroy
        self.close = inner.close


def test_a_driver_has_the_capabilities_whose_protocol_it_has(tmp_path: Path) -> None:
    whole = FakeDriver(tmp_path, "host-1")
    core: Driver = CoreOnly(whole)
    assert Capability.POWER in capabilities_of(whole)
    assert capabilities_of(core) == frozenset()
    whole.close()


async def test_an_action_of_a_missing_capability_is_refused_by_name_and_touches_nothing(stage: AgentStage) -> None:
    whole = stage.make_driver
    stage.make_driver = lambda: CoreOnly(whole())  # type: ignore[assignment,return-value]
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert told.error == "NotSupportedByDriver: the driver of host host-1 lacks the capability `power`"
    assert (told.begun, told.power_state) == (False, PowerState.RUNNING)
    assert stage.conductor.all(MayAct) == []
    assert stage.events() == ["spawn_begun", "spawned"]
    assert {report.usage.capabilities for report in stage.conductor.all(ReportHost)} == {("evacuate",)}


async def test_an_agent_reports_what_its_driver_can_do(stage: AgentStage) -> None:
    await stage.start()
    told = await stage.conductor.hears(ReportHost)
    assert set(told.usage.capabilities) == able(stage.driver, stores_images=False) >= {"power"}


@pytest.mark.parametrize("own", [True, False])
def test_a_driver_says_whether_its_interfaces_belong_to_the_host(tmp_path: Path, *, own: bool) -> None:
    """One of another package that says nothing has interfaces that any host may have."""
    with closing(FakeDriver(tmp_path, "host-1", FakeSettings(interfaces_of_host=own))) as driver:
        assert (Capability.HOST_INTERFACES in able(driver)) is own
        assert Capability.HOST_INTERFACES not in able(CoreOnly(driver))


@pytest.mark.parametrize("lost", [(), ("attach_volume",)])
def test_a_driver_says_whether_its_volumes_may_be_encrypted(tmp_path: Path, lost: tuple[str, ...]) -> None:
    with closing(lacking(lost)(tmp_path, "host-1")) as driver:
        assert (Capability.ENCRYPTED_VOLUME in able(driver)) is (not lost)
        assert Capability.ENCRYPTED_VOLUME not in able(CoreOnly(driver))


@pytest.mark.parametrize("wants", [True, False])
def test_a_driver_says_whether_it_brings_networks(tmp_path: Path, *, wants: bool) -> None:
    with closing(FakeDriver(tmp_path, "host-1", FakeSettings(networks=wants))) as driver:
        assert (Capability.NETWORKS in able(driver)) is wants
        assert Capability.NETWORKS not in able(CoreOnly(driver))


def test_each_capability_of_a_fake_driver_can_be_switched_off(tmp_path: Path) -> None:
    assert set(get_args(FakeCapability)) == set(PROTOCOLS)
    whole = capabilities_of(lacking(())(tmp_path, "host-1"))
    assert whole == set(PROTOCOLS)
    for capability in PROTOCOLS:
        lost = whole - capabilities_of(lacking([capability])(tmp_path, "host-1"))
        assert lost == {capability} | ({Capability.MOVE} if capability is Capability.REBUILD else set())
    core = lacking(get_args(FakeCapability))(tmp_path, "host-1")
    assert capabilities_of(core) == frozenset()
