"""Backups of servers as the API makes them: what rotation leaves, and what the answer names."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from skep.api.awaited_images import AwaitedImages
from skep.api.microversions import MAXIMUM
from skep.database.api import awaited_images
from skep.database.cell import tables as cell_tables
from skep.database.cell import tasks
from skep.domain.instances import PowerState
from skep_lab.compute_api.servers import CELL1, ServersUnderTest

DAILY: dict[str, Any] = {"name": "of it", "backup_type": "daily", "rotation": 2}


async def built(cloud: ServersUnderTest) -> str:
    uuid = await cloud.create()
    await cloud.build(uuid)
    return uuid


async def back_up(
    cloud: ServersUnderTest, uuid: str, *, error: str | None = None, protected: bool = False, **asked: Any
) -> str:
    """Have a server backed up; return the name of the backup."""
    before = set(cloud.images.made)
    body = {"createBackup": {**DAILY, **asked}}
    response = await cloud.ask("POST", f"/servers/{uuid}/action", body, version=45)
    assert response.status_code == 202, response.text
    [new] = set(cloud.images.made) - before
    assert response.content == b"" if asked.get("rotation") == 0 else response.json() == {"image_id": new}
    [task] = await cloud.services.cells[CELL1].read(partial(tasks.of, wanted=cell_tables.instances.c.uuid == uuid))
    assert (task.task.value, task.request.action) == ("image_backup", "backup")
    if error is None:
        cloud.images.stored.add(new)
    if protected:
        cloud.images.protected.add(new)
    now = cloud.services.clock.now()
    of_it: dict[str, Any] = {"uuid": task.instance, "attempt": 1, "task_id": task.task_id, "now": now}

    def unit(connection: Any) -> None:
        assert tasks.may_act(connection, host=task.host, task=task.task, **of_it)
        assert tasks.done(connection, power_state=PowerState.RUNNING, error=error, **of_it) is not None

    await cloud.services.cells[CELL1].write(unit)
    await AwaitedImages(cloud.services)._run()
    assert await cloud.database.read(awaited_images.read_all) == []
    return new


async def test_the_oldest_of_a_type_go(cloud: ServersUnderTest) -> None:
    uuid, other = await built(cloud), await built(cloud)
    kept = [await back_up(cloud, uuid, backup_type="weekly"), await back_up(cloud, other)]
    made = [await back_up(cloud, uuid) for _ in range(4)]
    assert set(cloud.images.made) == {*kept, *made[2:]}
    [last] = [await back_up(cloud, uuid, rotation=1)]
    assert set(cloud.images.made) == {*kept, last}
    await back_up(cloud, uuid, rotation=0)
    assert set(cloud.images.made) == set(kept)


async def test_a_backup_that_fails_ends_no_other(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    made = await back_up(cloud, uuid, rotation=1)
    await back_up(cloud, uuid, rotation=1, error="ImageUnavailable: broke off")
    assert set(cloud.images.made) == {made}


async def test_a_backup_that_its_user_protects_without_bytes_ends_no_other(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    made = await back_up(cloud, uuid, rotation=1)
    empty = await back_up(cloud, uuid, rotation=1, error="NoSpaceLeft: the disk is full", protected=True)
    assert list(cloud.images.made) == [made, empty]


async def test_what_a_backup_says(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await back_up(cloud, uuid, metadata={"colour": "blue"})
    [new] = cloud.images.made.values()
    said = {"image_type": "backup", "backup_type": "daily", "instance_uuid": uuid, "colour": "blue"}
    assert said.items() <= new.properties.items()


@pytest.mark.parametrize("version", [1, 44])
async def test_before_2_45_a_header_names_it(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    path = f"/servers/{uuid}/action"
    response = await cloud.ask("POST", path, {"createBackup": {**DAILY, "rotation": "3"}}, version=version)
    [new] = cloud.images.made
    assert (response.status_code, response.content) == (202, b"")
    assert response.headers["Location"].rpartition("/")[2] == new
    other = await built(cloud)
    response = await cloud.ask(
        "POST", f"/servers/{other}/action", {"createBackup": {**DAILY, "rotation": 0}}, version=version
    )
    assert (response.status_code, response.content, "Location" in response.headers) == (202, b"", False)


async def test_a_lock_does_not_keep_from_it_and_a_reader_may_not(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    for token, status in (("reader", 403), ("other", 404)):
        body = {"createBackup": DAILY}
        assert (await cloud.bad("POST", f"/servers/{uuid}/action", body, token=token))[0] == status
    assert (await cloud.ask("POST", f"/servers/{uuid}/action", {"lock": None})).status_code == 202
    await back_up(cloud, uuid)


BAD: list[Any] = [
    None,
    {},
    {"name": "x", "backup_type": "daily"},
    {"name": "x", "rotation": 1},
    {"backup_type": "daily", "rotation": 1},
    {**DAILY, "rotation": -1},
    {**DAILY, "rotation": "x"},
    {**DAILY, "rotation": None},
    {**DAILY, "rotation": 1.5},
    {**DAILY, "rotation": 2**40},
    {**DAILY, "backup_type": None},
    {**DAILY, "backup_type": 1},
    {**DAILY, "backup_type": ["daily"]},
    {**DAILY, "name": ""},
    {**DAILY, "name": "x" * 256},
    {**DAILY, "more": 1},
    {**DAILY, "metadata": {"": ""}},
    {**DAILY, "metadata": {"owner": "me"}},
]


@pytest.mark.parametrize("asked", BAD, ids=repr)
async def test_bad_input(cloud: ServersUnderTest, asked: Any) -> None:
    uuid = await built(cloud)
    for version in (1, MAXIMUM):
        status, _ = await cloud.bad("POST", f"/servers/{uuid}/action", {"createBackup": asked}, version=version)
        assert status == 400
    assert cloud.images.made == {}
    assert await cloud.database.read(awaited_images.read_all) == []


@pytest.mark.parametrize(("version", "status"), [(38, 403), (39, 202)])
async def test_the_quota_of_metadata(cloud: ServersUnderTest, version: int, status: int) -> None:
    uuid = await built(cloud)
    body = {"createBackup": {**DAILY, "metadata": {f"key{number}": "x" for number in range(129)}}}
    assert (await cloud.ask("POST", f"/servers/{uuid}/action", body, version=version)).status_code == status
