"""The API database goes back in time, alone or with the cells: every server is found again, none is made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.domain.instances import State
from tests.functional.going_back.story import STATES, Story, labels


async def all_found(cloud: Cloud, story: Story) -> None:
    for server in await cloud.settled(story.servers):
        assert (server.state, server.host) == (State.ACTIVE, story.hosts[server.uuid])
    assert await labels(cloud) == story.guests


@pytest.mark.parametrize("back", ["before the request", "requested", "taken", "mapped"])
async def test_mappings_follow_the_rows(story: Story, back: str, tmp_path: Path) -> None:
    """Before the request nothing is known of a server, then it waits for a cell, then it has one."""
    files = story.copies["api"].files
    number = {"before the request": 0, "requested": 1, "taken": 2, "mapped": 3}[back]
    async with running_cloud(
        story.back({"api": files[number]}, tmp_path / "back"), story.config, cells=1, hosts=3
    ) as cloud:

        async def found() -> bool:
            return all([await cloud.find(uuid) for uuid in story.servers])

        await eventually(found, "mappings follow their rows")
        await all_found(cloud, story)


@pytest.mark.parametrize("state", STATES)
async def test_all_databases_of_one_moment(story: Story, state: str, tmp_path: Path) -> None:
    root = story.back(story.at_moment_of(state), tmp_path / "back")
    async with running_cloud(root, story.config, cells=1, hosts=3) as cloud:
        # The second server may be unknown to all of them then; its guest stays all the same.
        known = [uuid for uuid in story.servers if await cloud.find(uuid) is not None]
        assert known
        for server in await cloud.settled(known):
            assert (server.state, server.host) == (State.ACTIVE, story.hosts[server.uuid])
        assert await labels(cloud) == story.guests
