"""A host whose hypervisor comes up after its agent: the role waits for it, and the host works then."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from skep.compute.drivers.registry import GROUP
from skep.config.compute import DriverLimits
from skep.config.sections import Config
from skep.contracts.eventually import PATIENCE, eventually
from skep.messages.to_cell_conductor import RegisterAgent, ReportHost
from skep.processes.compute import ComputeProcess
from skep.processes.process import new_process
from skep.transport.base import cell_conductor
from skep.transport.nats import NatsTransport
from tests.support.agents import CELL, HOST, ScriptedConductor
from tests.support.installing import install

pytestmark = [pytest.mark.needs_part("nats-server")]

LATE = """
import asyncio
from skep.compute.drivers.base import DriverError
from skep.compute.drivers.fake import FakeDriver

asked = 0
up = False

class Late(FakeDriver):
    closed = False
    silent = False

    def close(self):
        self.closed = True
        super().close()

    async def facts(self):
        global asked
        asked += 1
        if self.silent and not up:
            await asyncio.Event().wait()
        if not up or self.closed:
            raise DriverError("HypervisorUnavailable", "the hypervisor is not up")
        return await super().facts()

def make(setup):
    made = Late(setup.directory, setup.host)
    made.silent = setup.section.driver_options["silent"]
    return made
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    install(site, "late_driver", {GROUP: {"late": "late_driver:make"}})
    site.joinpath("late_driver.py").write_text(LATE)
    yield site
    sys.modules.pop("late_driver", None)


@pytest.fixture
async def conductor(config: Config) -> AsyncIterator[ScriptedConductor]:
    scripted = ScriptedConductor()
    transport = NatsTransport(config.transport)
    await transport.open()
    await transport.serve(cell_conductor(CELL), scripted.handlers())
    yield scripted
    await transport.close()


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.usefixtures("site")
async def test_the_host_registers_once_its_driver_answers(
    tmp_path: Path, config: Config, conductor: ScriptedConductor, silent: bool
) -> None:
    section = replace(
        config.compute,
        driver="late",
        driver_options={"silent": silent},
        driver_limits=DriverLimits(facts=0.5),
        cell=str(CELL),
        host=HOST,
    )
    config = replace(config, compute=section, state=replace(config.state, directory=str(tmp_path / "state")))
    role = ComputeProcess(new_process(config))
    async with AsyncExitStack() as stack:
        starting = asyncio.create_task(role.start())
        stack.push_async_callback(role.stop)

        async def waits() -> bool:
            return any("does not answer" in reason for reason in role.reasons())

        await eventually(waits, "the role waits for the driver")
        driver: Any = sys.modules["late_driver"]
        assert driver.asked > 0
        driver.up = True
        async with asyncio.timeout(PATIENCE):
            await starting
        await conductor.hears(RegisterAgent)
        await conductor.hears(ReportHost)

        async def ready() -> bool:
            return role.reasons() == []

        await eventually(ready, "the host is registered")
