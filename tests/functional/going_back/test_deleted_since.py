"""A server whose build had not ended at the backup and that was deleted since: its host remembers, so it is not built
again behind the operator's back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api import recovery as above
from skep.domain.instances import State
from skep.domain.states import BUILD_STATES
from skep.super_conductor import recovery
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.timelines import Timelines, exchange
from tests.functional.going_back.story import CONFIG, Story, remembered
from tests.functional.going_back.test_since import charged, in_doubt
from tests.support.going_back import copied

UNDER_WAY = ("taken", "staged", "scheduled", "building", "spawning")


async def recorded(root: Path) -> Story:
    async with running_cloud(root / "now", CONFIG, cells=1, hosts=2) as cloud:
        with copied(cloud.plane.databases, root / "copies") as copies:
            servers = await cloud.create()
            [built] = await cloud.settled(servers)
        await cloud.delete(servers[0])
        await cloud.gone(servers)
        await remembered(cloud)
    return Story(CONFIG, root / "now", copies, tuple(servers), {built.uuid: built.host}, ())


@pytest.fixture(scope="module")
def deleted(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return asyncio.run(recorded(tmp_path_factory.mktemp("deleted")))


def moment(story: Story, state: str) -> dict[str, Path]:
    """Return copies of all databases from when the server was in a state of its build."""
    if state == "taken":
        return {name: copies.files[0] for name, copies in story.copies.items()} | {"api": story.copies["api"].files[2]}
    return story.at_moment_of(state)


async def told(cloud: Cloud, story: Story) -> None:
    """Wait until the operator is told of the server, which nobody builds."""
    [uuid] = story.servers

    async def look() -> bool:
        return {subject for kind, subject in await in_doubt(cloud) if kind == "server_deleted_since"} == {uuid}

    await eventually(look, "the operator is told")
    server = await cloud.find(uuid)
    assert server is not None
    assert server.state in BUILD_STATES
    assert not await cloud.guests()


@pytest.mark.parametrize("state", UNDER_WAY)
async def test_it_is_not_built_again_and_can_be_deleted(deleted: Story, state: str, tmp_path: Path) -> None:
    root = deleted.back(moment(deleted, state), tmp_path / "back")
    async with running_cloud(root, CONFIG, cells=1, hosts=2) as cloud:
        await told(cloud, deleted)
        await cloud.delete(deleted.servers[0])
        await cloud.gone(deleted.servers)

        async def nothing_left() -> bool:
            return not await in_doubt(cloud) and not await charged(cloud)

        await eventually(nothing_left, "nothing of it is left")
        assert not await cloud.guests()


async def test_a_server_that_failed_on_a_host_is_none_of_these(story: Story, tmp_path: Path) -> None:
    """The first host of each was told to undo an attempt, for another host was tried: that is no delete."""
    root = story.back(story.at_moment_of("rescheduling"), tmp_path / "back")
    async with running_cloud(root, story.config, cells=1, hosts=3) as cloud:
        known = [uuid for uuid in story.servers if await cloud.find(uuid) is not None]
        assert {server.state for server in await cloud.settled(known)} == {State.ACTIVE}
        assert not [one for one in await in_doubt(cloud) if one[0] == "server_deleted_since"]


async def test_a_cell_is_not_compared_before_the_api_database_was_judged(
    deleted: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell keeps its hosts' reports until the API database that went back with it has recovered."""

    noticed = asyncio.Event()

    async def noted(parts: Parts, access: CellAccess) -> None:
        await exchange(parts, access)
        if await parts.api.read(above.under_way) is not None:
            noticed.set()

    async def none(_timelines: Timelines) -> bool:
        return False

    async def judged(_timelines: Timelines) -> None:
        """Let no server be placed before."""
        await noticed.wait()

    monkeypatch.setattr(recovery, "exchange", noted)
    monkeypatch.setattr(Timelines, "run", none)
    monkeypatch.setattr(Timelines, "judged", judged)
    root = deleted.back(moment(deleted, "taken"), tmp_path / "back")
    async with running_cloud(root, CONFIG, cells=1, hosts=2) as cloud:
        await told(cloud, deleted)
