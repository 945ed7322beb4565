"""A cell's database goes back in time, to every state of a build: guests stay, and none is made twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.contracts.cloud import running_cloud
from skep.contracts.eventually import eventually
from skep.database.cell import recovery
from skep.database.cell.tables import instances
from skep.domain.instances import State
from tests.functional.going_back.story import STATES, Story, labels, remembered
from tests.support.going_back import put_back


@pytest.mark.parametrize("state", STATES)
async def test_a_build_that_ended_since_stays_as_it_ended(story: Story, state: str, tmp_path: Path) -> None:
    root = story.back({"cell1": story.copy_of("cell1", state)}, tmp_path / "back")
    async with running_cloud(root, story.config, cells=1, hosts=3) as cloud:
        for server in await cloud.settled(story.servers):
            assert (server.state, server.host) == (State.ACTIVE, story.hosts[server.uuid])
        assert await labels(cloud) == story.guests


async def test_a_deleted_server_does_not_rise_again_from_its_staged_row(story: Story, tmp_path: Path) -> None:
    now, back = story.back({}, tmp_path / "now"), tmp_path / "back"
    async with running_cloud(now, story.config, cells=1, hosts=3) as cloud:
        for uuid in story.servers:
            await cloud.delete(uuid)
        await cloud.gone(story.servers)
        await remembered(cloud)
    put_back(now, {"cell1": story.copy_of("cell1", "staged")}, back)
    async with running_cloud(back, story.config, cells=1, hosts=3) as cloud:

        def settled(connection: sa.Connection) -> bool:
            rows = sa.select(instances.c.uuid).where(instances.c.deleted_at.is_(None))
            return recovery.under_way(connection) is None and connection.execute(rows).first() is None

        async def over() -> bool:
            return await cloud.plane.databases.cells["cell1"].read(settled)

        await eventually(over, "the cell has recovered, and nothing of them is left")
        assert await labels(cloud) == ()
