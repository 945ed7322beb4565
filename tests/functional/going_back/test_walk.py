"""A walk over every commit of a build: each database alone, and all of one moment, go back to it.

A sample is drawn from a seed that a failure tells; `GOING_BACK_EVERYWHERE=1` walks all of them here alone, and
`GOING_BACK_SEED` draws another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.audit.look import look_twice
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api import recovery as above
from skep.database.cell import recovery as below
from skep.domain.instances import State
from tests.functional.going_back.story import Story, labels
from tests.support import samples

WALK = "GOING_BACK"
SAMPLE = 5


def ways(story: Story) -> Iterator[tuple[str, dict[str, Path]]]:
    """Return each way to go back with the copies that are put into the place of today's databases."""
    for name, copies in story.copies.items():
        for number, file in enumerate(copies.files):
            yield f"{name} alone, copy {number}: {copies.states[number]}", {name: file}
    for number, file in enumerate(story.copies["cell1"].files):
        yield f"all, cell1's copy {number}: {story.copies['cell1'].states[number]}", story.at_moment(file)


async def over(cloud: Cloud) -> None:
    """Wait until no database recovers."""
    databases = cloud.plane.databases

    async def recovered() -> bool:
        states = [await databases.api.read(above.under_way)]
        states += [await database.read(below.under_way) for database in databases.cells.values()]
        return not any(states)

    await eventually(recovered, "no database recovers")


async def walk(story: Story, files: dict[str, Path], to: Path) -> None:
    async with running_cloud(story.back(files, to), story.config, cells=1, hosts=3) as cloud:
        await over(cloud)
        known = [uuid for uuid in story.servers if await cloud.find(uuid) is not None]
        for server in await cloud.settled(known) if known else ():
            assert (server.state, server.host) == (State.ACTIVE, story.hosts[server.uuid])
        assert await labels(cloud) == story.guests
        if len(files) == 1:
            assert known == list(story.servers)
        conductor = cloud.plane._super_conductor
        assert conductor is not None
        found = (await look_twice(conductor._parts.sources, pause=0.0)).differences
        unknown = {one.subject for one in found if one.kind == "guest_unknown"}
        assert unknown == set(story.servers) - set(known)


@pytest.mark.sampled
async def test_guests_stay_as_they_are(story: Story, tmp_path: Path) -> None:
    everything, seed = list(ways(story)), samples.seed(WALK)
    drawn = everything if samples.everywhere(WALK) else samples.sample(everything, SAMPLE, seed, WALK)
    failed: list[str] = []
    for number, (way, files) in enumerate(drawn):
        try:
            await walk(story, files, tmp_path / str(number))
        except AssertionError as error:
            failed.append(f"{way}: {error}")
    assert not failed, f"{WALK}_SEED={seed}\n" + "\n".join(failed)
