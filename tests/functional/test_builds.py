"""The way of a build through a whole cloud in one loop."""

from __future__ import annotations

from pathlib import Path

from skep.domain.instances import State
from skep.testing.cloud import running_cloud


async def test_servers_are_built_in_their_cells(tmp_path: Path) -> None:
    async with running_cloud(tmp_path) as cloud:
        uuids = await cloud.create(6)
        servers = await cloud.settled(uuids)
        assert {server.state for server in servers} == {State.ACTIVE}
        assert {guest.instance for guest in await cloud.guests()} == set(uuids)
        await cloud.no_claims()
        for uuid in uuids:
            await cloud.delete(uuid)
        await cloud.gone(uuids)
        assert await cloud.guests() == []
