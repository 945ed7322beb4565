"""An agent measures the guests of a driver that can, and says nothing of them when it cannot any more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from skep.compute.agent import Agent
from skep.compute.drivers.base import DriverError
from skep.compute.drivers.fake import FakeDriver
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid
from skep.domain.measures import GuestMeasures
from tests.support.agents import CELL, HOST, AgentStage

ONE = InstanceUuid("one")


class _Measuring(FakeDriver):
    fails = False

    async def measures(self) -> Mapping[InstanceUuid, GuestMeasures]:
        if self.fails:
            raise DriverError("HypervisorUnavailable", "it is gone")
        return {ONE: GuestMeasures(memory_bytes=1)}


async def test_the_latest_measures_are_told(stage: AgentStage, tmp_path: Path) -> None:
    told: list[Mapping[InstanceUuid, GuestMeasures]] = []
    driver = _Measuring(tmp_path / "host", HOST)
    settings = msgspec.structs.replace(stage.settings, report_interval_seconds=0.01)
    agent = Agent(
        settings, CELL, HOST, tmp_path / "host", driver, stage.transport, stage.clock, on_measured=told.append
    )
    await agent.start()
    try:

        async def heard(wanted: Mapping[InstanceUuid, GuestMeasures]) -> None:
            async def so() -> bool:
                return bool(told) and told[-1] == wanted

            await eventually(so, f"{wanted} is told")

        await heard({ONE: GuestMeasures(memory_bytes=1)})
        driver.fails = True
        await heard({})
    finally:
        await asyncio.shield(agent.stop(0))
        driver.close()
