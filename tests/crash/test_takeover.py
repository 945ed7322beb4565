"""One conductor is held at a point past its lease, another finishes its work, the first goes on: nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.config.sections import ConductorSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.builds import STEPS
from skep.domain.instances import State
from skep.messages.to_cell_conductor import ReportProgress
from skep.transport.base import Address
from skep_lab.chaos.transport import ChaosTransport, Fate
from skep_lab.crash.takeover import Hold, SuspendedClock, findings, second_process
from skep_lab.crash.walk import CELLS, FAILING, FAILURES, HOSTS, MEMBERS, MOVING
from skep_lab.witnesses.witness import Promised

pytestmark = pytest.mark.crash

LEASE = ConductorSettings(lease_seconds=1.0, resend_seconds=0.2)
NAMES = {"failed": FAILING, "reschedule": FAILING, "move": MOVING}
DELETING = {"delete", "deleted", "forget"}
ABOVE_HOSTS = [step.name for step in STEPS.values() if step.actor in ("super_conductor", "cell_conductor", "scheduler")]


def says_nothing(_address: Address, message: object) -> Fate:
    """A host that hangs as a whole says nothing of what it has in hand either."""
    return "lost" if isinstance(message, ReportProgress) else "delivered"


async def all_is_well(cloud: Cloud, asked: Promised) -> None:
    found = await findings(cloud, asked)
    assert found.clean, found.text()


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ABOVE_HOSTS)
async def test_another_conductor_finishes_and_the_first_changes_nothing(tmp_path: Path, step: str, when: str) -> None:
    clock = SuspendedClock()
    transport = ChaosTransport(longest_call=0.5)
    quick = quick_config(failures=FAILURES, conductor=LEASE)
    async with running_cloud(tmp_path, quick, cells=CELLS, hosts=HOSTS, clock=clock, transport=transport) as cloud:
        with Hold(step, when, clock.stop) as hold:
            if step in DELETING:
                uuids = await cloud.create(MEMBERS, name=NAMES.get(step, "server"))
                await cloud.settled(uuids)
                cloud.plane.steps.crash_hook = hold.at_step
                asked = Promised(deleted=set(uuids))
                for uuid in uuids:
                    await cloud.delete(uuid)
            else:
                cloud.plane.steps.crash_hook = hold.at_step
                uuids = await cloud.create(MEMBERS, name=NAMES.get(step, "server"))
                asked = Promised(created=set(uuids))
            async with asyncio.timeout(PATIENCE):
                await hold.reached.wait()
            async with second_process(cloud):
                if step in DELETING:
                    await cloud.gone(uuids)
                else:
                    servers = await cloud.settled(uuids)
                    assert {server.state for server in servers} == {State.ACTIVE}
                clock.go_on()
                hold.release()
                await hold.went_on.wait()
                await all_is_well(cloud, asked)
            for uuid in uuids:
                await cloud.delete(uuid)
            await cloud.nothing_left()


@pytest.mark.parametrize("step", ["claim", "prepare"])
async def test_a_host_that_is_held_too_long_loses_the_build_and_undoes_it(tmp_path: Path, step: str) -> None:
    quick = quick_config(
        conductor=ConductorSettings(
            lease_seconds=1.0, resend_seconds=0.2, scheduled_deadline=2.0, building_deadline=2.0
        )
    )
    async with running_cloud(tmp_path, quick, cells=1, hosts=2, transport=ChaosTransport(says_nothing)) as cloud:
        with Hold(step, "before") as hold:
            cloud.plane.steps.crash_hook = hold.at_step
            [uuid] = await cloud.create()
            [server] = await cloud.settled([uuid])
            assert hold.reached.is_set()
            assert server.state is State.ACTIVE
            assert server.attempt > 1
            hold.release()
            await all_is_well(cloud, Promised(created={uuid}))
            await cloud.delete(uuid)
            await cloud.nothing_left()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_past_the_point_of_no_return_only_that_host_goes_on(tmp_path: Path, when: str) -> None:
    quick = quick_config(conductor=ConductorSettings(lease_seconds=1.0, resend_seconds=0.2, spawning_deadline=0.5))
    async with running_cloud(tmp_path, quick, cells=1, hosts=2, transport=ChaosTransport(says_nothing)) as cloud:
        with Hold("spawn", when) as hold:
            cloud.plane.steps.crash_hook = hold.at_step
            [uuid] = await cloud.create()
            [server] = await cloud.settled([uuid])
            assert server.state is State.ERROR
            assert server.fault is not None
            assert "stopped answering while building" in server.fault.message
            assert server.attempt == 1
            hold.release()

            async def active() -> bool:
                found = await cloud.find(uuid)
                return found is not None and found.state is State.ACTIVE and found.fault is None

            await eventually(active, "the host was heard again")
            await all_is_well(cloud, Promised(created={uuid}))
            await cloud.delete(uuid)
            await cloud.nothing_left()
