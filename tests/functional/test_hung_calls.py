"""A hypervisor that hangs, in a whole cloud: others get what it cannot build, and nothing of it is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import msgspec

from skep.config.compute import DriverLimits, FakeFailure
from skep.config.sections import ConductorSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.domain.hosts import HostUsage
from skep.domain.instances import PowerState, State
from skep.transport.host_states import host_states

SICK, WELL = "cell1-host1", "cell1-host2"


async def usage(cloud: Cloud, host: str) -> HostUsage:
    return next(state.usage for state in await host_states(cloud.plane.transport) if state.usage.host == host)


async def test_a_host_whose_hypervisor_hangs_gets_no_builds_until_it_answers(tmp_path: Path) -> None:
    config = quick_config(
        failures=[FakeFailure(operation="spawn", host=SICK, hangs=True)],
        conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.2, spawning_deadline=2.0),
    )
    compute = msgspec.structs.replace(config.compute, driver_limits=DriverLimits(spawn=0.05), max_hung_calls=1)
    config = msgspec.structs.replace(config, compute=compute)
    async with running_cloud(tmp_path, config, cells=1, hosts=2) as cloud:
        first = await cloud.create(2)
        found = {server.host: server for server in await cloud.settled(first)}
        assert {host: server.state for host, server in found.items()} == {SICK: State.ERROR, WELL: State.ACTIVE}

        async def unfit() -> bool:
            return bool((await usage(cloud, SICK)).unfit)

        await eventually(unfit, "the host says that it takes no builds")
        sick = await usage(cloud, SICK)
        assert f"spawn of {found[SICK].uuid}" in sick.unfit
        assert sick.used["VCPU"] == 1, "what hangs stays held"
        metrics = cloud.plane.process.metrics.registry
        labels = {"host": SICK, "call": "spawn"}
        assert metrics.get_sample_value("skep_driver_calls_hung", labels) == 1
        later = await cloud.settled(await cloud.create(3))
        assert [(server.state, server.host) for server in later] == [(State.ACTIVE, WELL)] * 3

        cloud.fakes[SICK].release()

        async def built() -> bool:
            server = await cloud.find(found[SICK].uuid)
            return server is not None and server.state is State.ACTIVE

        await eventually(built, "the guest that was made after all makes its server active")
        assert metrics.get_sample_value("skep_driver_calls_hung", labels) == 0
        guests = await cloud.guests()
        assert len(guests) == 5
        assert {guest.power_state for guest in guests} == {PowerState.RUNNING}

        async def fit() -> bool:
            told = await usage(cloud, SICK)
            return not told.unfit and told.inventory["VCPU"].reserved == 0

        await eventually(fit, "the host takes builds again")
