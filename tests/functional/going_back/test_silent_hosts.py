"""A host that has not told what it has holds up what may be on it, until it tells or an operator releases it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from click.testing import CliRunner

from skep.cli.main import skep
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.database.cell import recovery
from skep.domain.instances import State
from skep.domain.states import BUILD_STATES
from tests.functional.going_back.story import Story, labels


async def waiting(cloud: Cloud, story: Story, silent: str) -> None:
    """Wait until all hosts but one have told what they have: the server that may be there waits."""

    async def one_is_left() -> bool:
        awaited = await cloud.plane.databases.cells["cell1"].read(recovery.awaited_hosts)
        return [one.host for one in awaited] == [silent]

    await eventually(one_is_left, "the others have told")
    server = await cloud.find(story.servers[-1])
    assert server is not None
    assert server.state in BUILD_STATES
    assert story.servers[-1] not in dict(await labels(cloud))


async def test_it_tells_when_it_is_back(story: Story, tmp_path: Path) -> None:
    root = story.back({"cell1": story.copy_of("cell1", "rescheduling")}, tmp_path / "back")
    silent = str(story.hosts[story.servers[-1]])
    (root / "hosts/cell1" / silent).rename(tmp_path / silent)
    async with running_cloud(root, story.config, cells=1, hosts=2) as cloud:
        await waiting(cloud, story, silent)
        (tmp_path / silent).rename(root / "hosts/cell1" / silent)
        [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
        await cloud.plane.start_agent(cell, silent)
        for server in await cloud.settled(story.servers):
            assert (server.state, server.host) == (State.ACTIVE, story.hosts[server.uuid])
        assert await labels(cloud) == story.guests


async def test_an_operator_notes_what_no_database_remembers(story: Story, tmp_path: Path) -> None:
    """All databases lost the same: only the host that built in that time knows, and it is silent."""
    root = story.back(story.at_moment_of("rescheduling"), tmp_path / "back")
    silent = str(story.hosts[story.servers[-1]])
    (root / "hosts/cell1" / silent).rename(tmp_path / silent)
    environment = {"SKEP_STATE__DIRECTORY": str(root)}
    said = CliRunner().invoke(skep, ["db", "recover", "--only", "cell1"], env=environment)
    assert (said.exit_code, "--yes" in said.stderr) == (2, True), said.output
    said = CliRunner().invoke(skep, ["db", "recover", "--only", "cell1", "--yes"], env=environment)
    assert said.stdout == "cell1 will recover. Next: start, then `skep recovery list`.\n", said.output
    async with running_cloud(root, story.config, cells=1, hosts=2) as cloud:
        await waiting(cloud, story, silent)
        (tmp_path / silent).rename(root / "hosts/cell1" / silent)
        [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
        await cloud.plane.start_agent(cell, silent)
        for server in await cloud.settled(story.servers):
            assert (server.state, server.host) == (State.ACTIVE, story.hosts[server.uuid])
        assert await labels(cloud) == story.guests


async def test_it_is_released(story: Story, tmp_path: Path) -> None:
    root = story.back({"cell1": story.copy_of("cell1", "rescheduling")}, tmp_path / "back")
    silent = str(story.hosts[story.servers[-1]])
    (root / "hosts/cell1" / silent).rename(tmp_path / silent)
    async with running_cloud(root, story.config, cells=1, hosts=2) as cloud:
        await waiting(cloud, story, silent)
        database = cloud.plane.databases.cells["cell1"]
        [awaited] = await database.read(recovery.awaited_hosts)
        assert await database.write(partial(recovery.release, node=awaited.node, now=cloud.clock.now()))
        [server] = await cloud.settled(story.servers[-1:])
        assert server.state is State.ACTIVE
        assert server.host != silent
