"""Servers that were made and deleted since the backup: each is found again or deleted again, or an operator is told."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.audit.look import look_twice
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api import instance_mappings
from skep.database.api.tables import quota_charges
from skep.database.engine import Database
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, UserId
from skep.domain.instances import State
from tests.functional.going_back.story import CONFIG, remembered
from tests.support.going_back import copied, put_back

CELLS = ("cell1", "cell2")
EVERY = ("api", "cell0", *CELLS)


@dataclass(frozen=True)
class Since:
    """A cloud of two cells, and copies of its databases from before some of its servers were made and deleted."""

    root: Path
    before: dict[str, Path]
    kept: tuple[InstanceUuid, ...]
    made: tuple[InstanceUuid, ...]
    deleted: tuple[InstanceUuid, ...]

    def back(self, names: Sequence[str], to: Path) -> Path:
        put_back(self.root, {name: self.before[name] for name in names}, to)
        return to


async def in_each_cell(cloud: Cloud) -> tuple[InstanceUuid, ...]:
    """Make a server in each cell."""
    uuids: list[InstanceUuid] = []
    for name in CELLS:
        await cloud.only_cell(name)
        uuids += await cloud.create()
        await cloud.settled(uuids)
    await cloud.only_cell(None)
    return tuple(uuids)


async def recorded(root: Path) -> Since:
    async with running_cloud(root / "now", CONFIG, cells=2, hosts=2) as cloud:
        kept, deleted = await in_each_cell(cloud), await in_each_cell(cloud)
        with copied(cloud.plane.databases, root / "copies") as copies:
            before = {name: shutil.copyfile(one.files[-1], root / f"{name}.db") for name, one in copies.items()}
        made = await in_each_cell(cloud)
        for uuid in deleted:
            await cloud.delete(uuid)
        await cloud.gone(deleted)
        await remembered(cloud)
    return Since(root / "now", before, kept, made, deleted)


@pytest.fixture(scope="module")
def since(tmp_path_factory: pytest.TempPathFactory) -> Since:
    return asyncio.run(recorded(tmp_path_factory.mktemp("since")))


async def in_doubt(cloud: Cloud) -> set[tuple[str, str]]:
    above = cloud.plane._super_conductor
    assert above is not None
    found = (await look_twice(above._parts.sources, pause=0.0)).differences
    return {(one.kind, one.subject) for one in found}


async def charged(cloud: Cloud) -> set[str]:
    query = sa.select(quota_charges.c.instance)
    return set(await cloud.plane.databases.api.read(lambda connection: list(connection.scalars(query))))


@pytest.mark.parametrize("names", [("api",), ("cell1",), ("cell2",), CELLS, ("cell0",)], ids="+".join)
async def test_the_others_know_what_became_of_the_servers(since: Since, names: Sequence[str], tmp_path: Path) -> None:
    async with running_cloud(since.back(names, tmp_path / "back"), CONFIG, cells=2, hosts=2) as cloud:
        living = since.kept + since.made

        async def agree() -> bool:
            found = [await cloud.find(uuid) for uuid in living]
            gone = [await cloud.find(uuid) for uuid in since.deleted]
            return (
                all(one is not None and one.state is State.ACTIVE for one in found)
                and not any(gone)
                and await charged(cloud) == set(living)
            )

        await eventually(agree, "rows, mappings and quota agree")
        assert {guest.instance for guest in await cloud.guests()} == set(living)
        assert await in_doubt(cloud) == set()


async def test_a_delete_waits_until_it_is_known_whether_a_lost_row_has_a_guest(since: Since, tmp_path: Path) -> None:
    root, uuid = since.back(("cell1",), tmp_path / "back"), since.made[0]
    above = Database(root / "db" / "api.db")
    context = RequestContext(request_id=RequestId("req-1"), project_id=ProjectId("p"), user_id=UserId("u"))
    await above.write(partial(instance_mappings.intend_delete, instance=uuid, context=context, now=1))
    await above.close()
    async with running_cloud(root, CONFIG, cells=2, hosts=2) as cloud:
        await cloud.gone([uuid])

        async def settled() -> bool:
            guests = {guest.instance for guest in await cloud.guests()}
            return guests == {*since.kept, *since.made} - {uuid} and await in_doubt(cloud) == set()

        await eventually(settled, "its guest is destroyed, and nothing is in doubt")


async def test_what_none_remembers_is_told_to_the_operator(since: Since, tmp_path: Path) -> None:
    async with running_cloud(since.back(EVERY, tmp_path / "back"), CONFIG, cells=2, hosts=2) as cloud:
        expected = {("guest_unknown", uuid) for uuid in since.made} | {
            ("guest_missing", uuid) for uuid in since.deleted
        }

        async def told() -> bool:
            return await in_doubt(cloud) >= expected

        await eventually(told, "the audit names what is in doubt")
        assert {guest.instance for guest in await cloud.guests()} == {*since.kept, *since.made}
        for uuid in since.deleted:
            await cloud.delete(uuid)
        await cloud.gone(since.deleted)
        assert not [one for one in await in_doubt(cloud) if one[0] == "guest_missing"]

        async def credited() -> bool:
            return await charged(cloud) == set(since.kept)

        await eventually(credited, "the quota is given back")
        assert {guest.instance for guest in await cloud.guests()} == {*since.kept, *since.made}
