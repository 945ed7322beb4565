"""A cloud that stops at any step goes on at its next start."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.config.networks import NetworksSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.database.api import server_ports
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.domain.networking import Port
from skep.telemetry.steps import CrashPoint


async def ports_of(cloud: Cloud, uuid: InstanceUuid) -> list[Port]:
    return await cloud.plane.databases.api.read(partial(server_ports.ports_of, instances=[uuid]))


class _Stopped(Exception):
    """What a step raises where a test holds the build."""


@pytest.mark.parametrize(
    "step", ["take", "select", "ports", "stage", "map", "settle", "dispatch", "may_build", "may_spawn", "built"]
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_build_that_stopped_goes_on_after_a_restart(tmp_path: Path, step: str, when: str) -> None:
    config = replace(quick_config(), networks=NetworksSettings(kind="embedded"))
    async with running_cloud(tmp_path, config, cells=1, hosts=2) as cloud:

        async def fail_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when:
                raise _Stopped

        cloud.plane.steps.crash_hook = fail_there
        [uuid] = await cloud.create()
        await cloud.restart()
        [server] = await cloud.settled([uuid])
        assert server.state is State.ACTIVE
        assert len(server.vifs) == 1
        assert [port.id for port in await ports_of(cloud, uuid)] == [server.vifs[0].id]
        assert [guest.instance for guest in await cloud.guests()] == [uuid]
        await cloud.no_claims()
        await cloud.delete(uuid)
        await cloud.gone([uuid])
        await cloud.nothing_left()


async def test_active_servers_are_counted_after_a_restart(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=1) as cloud:
        uuids = await cloud.create(4)
        await cloud.settled(uuids)
        await cloud.restart()
        assert {guest.instance for guest in await cloud.guests()} == set(uuids)
        assert await cloud.used_vcpus() == 4
