"""Encrypted volumes: a host that has no guest read them gets none, and nothing is kept for the server."""

from __future__ import annotations

from functools import partial

import msgspec

from skep.database.cell import agents
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep_lab.compute_api.servers import CELL1, ServersUnderTest
from tests.functional.servers.test_volume_attachments import attach, built, cloud, row, volumes
from tests.support.memory_volumes import MemoryVolumes

__all__ = ["cloud", "volumes"]


async def able(cloud: ServersUnderTest, *capabilities: str) -> None:
    """Have the host of all servers say what it can do."""
    identity = AgentIdentity(node=NodeUuid("node-host-1"), host="host-1", process=Incarnation("p-1"))
    unit = partial(
        agents.register, identity=identity, now=1, understands=("RunAction",), capabilities=("power", *capabilities)
    )
    await cloud.services.cells[CELL1].write(unit)


async def test_an_encrypted_volume_is_refused_where_the_host_has_no_guest_read_it(
    cloud: ServersUnderTest, volumes: MemoryVolumes
) -> None:
    server, secret = await built(cloud), volumes.new_volume()
    volumes.volumes[secret] = msgspec.structs.replace(volumes.volumes[secret], encrypted=True)
    await able(cloud, "attach_volume")
    status, message = await attach(cloud, server, secret)
    assert (status, "is encrypted" in message, "`encrypted_volume`" in message) == (409, True, True)
    assert (volumes.of(secret), (await row(cloud, server)).volumes) == ([], ())
    await able(cloud, "attach_volume", "encrypted_volume")
    assert (await attach(cloud, server, secret))[0] == 200
    [kept] = volumes.of(secret)
    assert kept[2] == "host-1"


async def test_a_host_that_has_volumes_on_paper_is_not_asked(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server, secret = await built(cloud), volumes.new_volume()
    volumes.volumes[secret] = msgspec.structs.replace(volumes.volumes[secret], encrypted=True)
    await able(cloud)
    assert (await attach(cloud, server, secret))[0] == 200
