"""One conductor is held in the midst of an evacuation, another one finishes it, the first goes on: one guest, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.config.sections import ConductorSettings
from skep.contracts.cloud import quick_config, running_cloud
from skep.contracts.eventually import PATIENCE
from skep.domain.instances import State
from skep_lab.chaos.transport import ChaosTransport
from skep_lab.crash.takeover import Hold, SuspendedClock, second_process
from tests.functional.test_evacuations import becomes, built, dies, evacuate, events, only_attempt, returns

pytestmark = pytest.mark.crash

LEASE = ConductorSettings(lease_seconds=1.0, resend_seconds=0.2)


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["move_select", "may_move", "moved"])
async def test_another_conductor_finishes_and_the_first_changes_nothing(tmp_path: Path, step: str, when: str) -> None:
    clock = SuspendedClock()
    transport = ChaosTransport(longest_call=0.5)
    quick = quick_config(conductor=LEASE)
    async with running_cloud(tmp_path, quick, cells=1, hosts=2, clock=clock, transport=transport) as cloud:
        [before] = await built(cloud)
        lost = await dies(cloud, before.host)
        with Hold(step, when, clock.stop) as hold:
            cloud.plane.steps.crash_hook = hold.at_step
            await evacuate(cloud, before.uuid)
            async with asyncio.timeout(PATIENCE):
                await hold.reached.wait()
            async with second_process(cloud):
                after = await becomes(cloud, before.uuid, State.ACTIVE)
                clock.go_on()
                hold.release()
                await hold.went_on.wait()
                assert after.host is not None
                assert after.host != lost
                await returns(cloud, lost)
                await only_attempt(cloud, after)
        made = [event.event for host in (lost, after.host) for event in events(cloud, host)]
        assert made.count("spawned") == 2, "once on each host"
        assert made.count("destroyed") == 1
