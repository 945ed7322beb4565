"""Images of servers as the API makes them: the image first, then the task; nothing is left where it does not begin."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any, cast

import pytest

from skep.api import awaited_images as awaited_images_loop
from skep.api.awaited_images import AwaitedImages
from skep.api.microversions import MAXIMUM
from skep.contracts.eventually import eventually
from skep.database.api import awaited_images
from skep.database.cell import agents, tasks
from skep.database.cell import tables as cell_tables
from skep.database.engine import Unit
from skep.domain.actions import UPLOADING
from skep.domain.clock import SECOND
from skep.domain.errors import BadRequest, TooLarge, Unavailable
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.images import NewImage
from skep.domain.instances import PowerState, Task
from skep_lab.compute_api.api import PROJECT as PROJECT_ID
from skep_lab.compute_api.servers import CELL1, IMAGE, ServersUnderTest

PROJECT = ProjectId(PROJECT_ID)
NAME = {"name": "of it"}
VERSIONS = [1, 38, 39, 44, 45, MAXIMUM]


async def built(cloud: ServersUnderTest) -> str:
    uuid = await cloud.create()
    await cloud.build(uuid)
    return uuid


async def make(cloud: ServersUnderTest, uuid: str, asked: Any = NAME, **more: Any) -> str:
    """Ask for an image and return its id."""
    response = await cloud.ask("POST", f"/servers/{uuid}/action", {"createImage": asked}, **more)
    assert response.status_code == 202, response.text
    if more.get("version", 1) < 45:
        assert response.content == b""
        return str(response.headers["Location"].rpartition("/")[2])
    assert "Location" not in response.headers
    assert list(response.json()) == ["image_id"]
    return str(response.json()["image_id"])


async def refused(cloud: ServersUnderTest, uuid: str, asked: Any = NAME, **more: Any) -> tuple[int, str]:
    """Ask for an image and see that nothing of it is left."""
    answer = await cloud.bad("POST", f"/servers/{uuid}/action", {"createImage": asked}, **more)
    assert cloud.images.made == {}
    assert await awaited(cloud) == []
    return answer


async def awaited(cloud: ServersUnderTest) -> list[str]:
    return [one.image.image_id for one in await cloud.database.read(awaited_images.read_all)]


async def show(cloud: ServersUnderTest, uuid: str) -> dict[str, Any]:
    shown: dict[str, Any] = (await cloud.good("GET", f"/servers/{uuid}", token="admin"))["server"]
    return shown


async def task_of(cloud: ServersUnderTest, uuid: str) -> tasks.HostTask:
    found = await cloud.services.cells[CELL1].read(partial(tasks.of, wanted=cell_tables.instances.c.uuid == uuid))
    return found[0]


async def ends(cloud: ServersUnderTest, uuid: str, error: str | None = None) -> None:
    """Let the host say what came of it."""
    task = await task_of(cloud, uuid)
    now = cloud.services.clock.now()

    def unit(connection: Any) -> None:
        assert tasks.may_act(connection, task.instance, task.attempt, task.host, task.task, task.task_id, now)
        done = tasks.done(connection, task.instance, task.attempt, task.task_id, PowerState.RUNNING, error, now)
        assert done is not None

    await cloud.services.cells[CELL1].write(unit)


async def look(cloud: ServersUnderTest) -> None:
    """Let the API look once at what it waits for."""
    await AwaitedImages(cloud.services)._run()


async def ended(cloud: ServersUnderTest, looks: AwaitedImages) -> None:
    """Let one API process look until it waits for nothing."""

    async def over() -> bool:
        await looks._run()
        return not await awaited(cloud)

    await eventually(over, "no image is awaited")


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_image_is_made_and_the_task_names_it(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    image_id = await make(cloud, uuid, {**NAME, "metadata": {"colour": "blue"}}, version=version)
    [new] = cloud.images.made.values()
    assert (new.id, new.name, new.owner) == (image_id, "of it", "a" * 32)
    assert (new.disk_format, new.container_format, new.min_disk, new.min_ram) == ("raw", "bare", 1, 0)
    assert new.properties == {
        "hw_rng_model": "virtio",
        "base_image_ref": IMAGE,
        "boot_roles": "member,reader",
        "owner_user_name": "member",
        "owner_id": PROJECT_ID,
        "image_location": "snapshot",
        "image_state": "available",
        "image_type": "snapshot",
        "instance_uuid": uuid,
        "user_id": "member",
        "colour": "blue",
    }
    task = await task_of(cloud, uuid)
    assert task.request.arguments == {"image_id": image_id, "disk_format": "raw"}
    server = await show(cloud, uuid)
    assert (server["status"], server["OS-EXT-STS:task_state"]) == ("ACTIVE", "image_snapshot_pending")
    assert await awaited(cloud) == [image_id]


async def test_what_users_see_of_it(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await make(cloud, uuid)
    task, now = await task_of(cloud, uuid), cloud.services.clock.now()
    steps = (
        partial(
            tasks.may_act,
            uuid=task.instance,
            attempt=1,
            host=task.host,
            task=Task.IMAGE_SNAPSHOT_PENDING,
            task_id=task.task_id,
            now=now,
        ),
        partial(tasks.enter, host=task.host, phases={(task.instance, task.task_id): UPLOADING}, now=now),
    )
    for step, shown in zip(steps, ("image_snapshot", "image_uploading"), strict=True):
        await cloud.services.cells[CELL1].write(cast("Unit[object]", step))
        server = await show(cloud, uuid)
        assert (server["status"], server["OS-EXT-STS:task_state"]) == ("ACTIVE", shown)


async def test_an_image_with_its_bytes_stays_and_one_without_goes(cloud: ServersUnderTest) -> None:
    for error in (None, "ImageUnavailable: broke off"):
        uuid = await built(cloud)
        image_id = await make(cloud, uuid)
        await look(cloud)
        assert image_id in cloud.images.made, "its task is under way"
        if error is None:
            cloud.images.stored.add(image_id)
        await ends(cloud, uuid, error)
        await look(cloud)
        assert (image_id in cloud.images.made) is (error is None)
        assert await awaited(cloud) == []


@pytest.mark.parametrize("why", ["ImageUnavailable: broke off", "ImageTooLarge: too many", "ImageNotAuthorized: no"])
async def test_an_image_with_bytes_that_its_host_could_not_store_goes(cloud: ServersUnderTest, why: str) -> None:
    uuid = await built(cloud)
    image_id = await make(cloud, uuid)
    cloud.images.stored.add(image_id)
    await ends(cloud, uuid, why)
    cloud.images.held.add(image_id)
    await look(cloud)
    assert await awaited(cloud) == list(cloud.images.made) == [image_id]
    cloud.images.held.clear()
    await look(cloud)
    assert await awaited(cloud) == list(cloud.images.made) == []


async def test_an_image_with_bytes_stays_when_its_host_was_not_heard(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    image_id = await make(cloud, uuid)
    cloud.images.stored.add(image_id)
    task, now = await task_of(cloud, uuid), cloud.services.clock.now()
    assert await cloud.services.cells[CELL1].write(partial(tasks.give_up, task=task, now=now)) is not None
    await look(cloud)
    assert await awaited(cloud) == []
    assert list(cloud.images.made) == [image_id]


async def test_an_image_that_is_owed_its_end_is_tried_after_pauses(
    cloud: ServersUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_images_loop, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(awaited_images_loop, "LONGEST_PAUSE", 0.2)
    uuid = await built(cloud)
    image_id = await make(cloud, uuid)
    await ends(cloud, uuid, "ImageUnavailable: broke off")
    cloud.images.held.add(image_id)
    looks, began = AwaitedImages(cloud.services), asyncio.get_running_loop().time()
    while len(cloud.images.asked) < 4:
        await looks._run()
        await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() - began >= 0.1 + 0.2 + 0.2
    cloud.images.held.clear()
    await ended(cloud, looks)
    assert cloud.images.made == {}


async def test_an_image_that_goes_lets_the_others_be_tried_at_once(cloud: ServersUnderTest) -> None:
    looks, made = AwaitedImages(cloud.services), []
    for _ in range(2):
        uuid = await built(cloud)
        made.append(await make(cloud, uuid))
        await ends(cloud, uuid, "ImageUnavailable: broke off")
    cloud.images.held.update(made)
    await looks._run()
    cloud.images.held.clear()
    looks._pauses.pop(made[0])
    await looks._run()
    assert await awaited(cloud) == list(cloud.images.made) == []


async def test_an_image_that_is_not_let_go_holds_up_no_other(cloud: ServersUnderTest) -> None:
    made = []
    for _ in range(2):
        uuid = await built(cloud)
        made.append(await make(cloud, uuid))
        await ends(cloud, uuid, "ImageUnavailable: broke off")
    cloud.images.held.add(made[0])
    await look(cloud)
    assert await awaited(cloud) == list(cloud.images.made) == made[:1]
    cloud.images.held.clear()
    await look(cloud)
    assert await awaited(cloud) == list(cloud.images.made) == []


async def test_whoever_ends_the_task_the_image_goes(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await make(cloud, uuid)
    reset = {"os-resetState": {"state": "active"}}
    assert (await cloud.ask("POST", f"/servers/{uuid}/action", reset, token="admin")).status_code == 202
    await look(cloud)
    assert cloud.images.made == {}
    assert await awaited(cloud) == []


async def test_what_was_noted_and_never_begun_is_forgotten(
    cloud: ServersUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_images_loop, "LATE_SECONDS", 0.1)
    uuid = await built(cloud)
    created_at = cloud.services.clock.now()
    new = awaited_images.AwaitedImage(
        image_id="left", instance=InstanceUuid(uuid), task_id="req-dead", created_at=created_at, project_id=PROJECT
    )
    await cloud.database.write(partial(awaited_images.add, new=new))
    await look(cloud)
    assert await awaited(cloud) == ["left"], "its request may be under way"
    while cloud.services.clock.now() < created_at + 61 * SECOND:
        continue
    await ended(cloud, AwaitedImages(cloud.services))


async def test_a_server_that_is_gone_leaves_no_image(cloud: ServersUnderTest) -> None:
    new = awaited_images.AwaitedImage(
        image_id="left",
        instance=InstanceUuid("gone"),
        task_id="req-dead",
        created_at=cloud.services.clock.now(),
        project_id=PROJECT,
    )
    await cloud.database.write(partial(awaited_images.add, new=new))
    await look(cloud)
    assert await awaited(cloud) == []


@pytest.mark.parametrize("halt", ["os-stop", "pause", "suspend"])
async def test_a_server_that_does_not_run(cloud: ServersUnderTest, halt: str) -> None:
    left = {"os-stop": PowerState.SHUTDOWN, "pause": PowerState.PAUSED, "suspend": PowerState.SUSPENDED}[halt]
    uuid = await built(cloud)
    assert (await cloud.ask("POST", f"/servers/{uuid}/action", {halt: None})).status_code == 202
    task, now = await task_of(cloud, uuid), cloud.services.clock.now()
    done = partial(
        tasks.done, uuid=task.instance, attempt=1, task_id=task.task_id, power_state=left, error=None, now=now
    )
    assert await cloud.services.cells[CELL1].write(done)
    status = (await show(cloud, uuid))["status"]
    await make(cloud, uuid)
    assert (await show(cloud, uuid))["status"] == status


async def test_a_lock_does_not_keep_from_it(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await cloud.ask("POST", f"/servers/{uuid}/action", {"lock": None})).status_code == 202
    await make(cloud, uuid)


async def test_an_admin_of_another_project_owns_the_image(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await make(cloud, uuid, token="admin")
    [new] = cloud.images.made.values()
    assert (new.owner, new.properties["instance_owner"], new.properties["user_id"]) == ("b" * 32, "a" * 32, "admin")
    assert (new.visibility, new.properties["owner_id"], new.properties["owner_user_name"]) == (
        "shared",
        "a" * 32,
        "member",
    )


async def test_where_it_is_refused(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    for token, status in (("reader", 403), ("other", 404)):
        assert (await refused(cloud, uuid, token=token))[0] == status
    waiting = await cloud.create()
    assert (await refused(cloud, waiting))[0] == 409
    assert (await refused(cloud, "70a599e0-31e7-49b7-b260-868f441e862c"))[0] == 404
    reset = {"os-resetState": {"state": "error"}}
    assert (await cloud.ask("POST", f"/servers/{uuid}/action", reset, token="admin")).status_code == 202
    assert await refused(cloud, uuid) == (409, f"Cannot 'createImage' instance {uuid} while it is in vm_state error")


async def test_beside_another_task_it_is_refused(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await make(cloud, uuid)
    status, message = await cloud.bad("POST", f"/servers/{uuid}/action", {"createImage": NAME})
    assert (status, message) == (
        409,
        f"Cannot 'createImage' instance {uuid} while it is in task_state image_snapshot_pending",
    )
    assert len(cloud.images.made) == 1
    assert (await cloud.bad("POST", f"/servers/{uuid}/action", {"os-stop": None}))[0] == 409


async def test_a_row_that_changes_meanwhile_leaves_no_image(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    create = cloud.images.create

    async def overtaken(new: Any) -> None:
        await create(new)
        assert (await cloud.ask("POST", f"/servers/{uuid}/action", {"os-stop": None})).status_code == 202

    cloud.images.create = overtaken  # type: ignore[method-assign]
    status, message = await refused(cloud, uuid)
    assert (status, message) == (409, f"Cannot 'createImage' instance {uuid} while it is in task_state powering-off")


async def test_what_comes_too_late_is_not_begun(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    create = cloud.images.create

    async def slow(new: Any) -> None:
        await create(new)
        for _ in range(30):
            cloud.services.clock.now()

    cloud.images.create = slow  # type: ignore[method-assign]
    status, message = await refused(cloud, uuid)
    assert status == 503
    assert "took too long" in message
    assert (await show(cloud, uuid))["OS-EXT-STS:task_state"] is None


@pytest.mark.parametrize(("refusal", "status"), [(BadRequest("x"), 400), (TooLarge("too many images"), 403)])
async def test_an_image_service_that_makes_none(cloud: ServersUnderTest, refusal: Any, status: int) -> None:
    uuid = await built(cloud)
    cloud.images.refuses = refusal
    assert (await refused(cloud, uuid))[0] == status
    assert (await show(cloud, uuid))["OS-EXT-STS:task_state"] is None


@pytest.mark.parametrize("looked_for", [False, True], ids=["before", "after it was looked for"])
async def test_an_image_service_that_may_make_it_late(
    cloud: ServersUnderTest, monkeypatch: pytest.MonkeyPatch, looked_for: bool
) -> None:
    monkeypatch.setattr(awaited_images_loop, "LATE_SECONDS", 0.1)
    uuid = await built(cloud)
    cloud.images.refuses = Unavailable("no answer in time")
    began = cloud.services.clock.now()
    assert (await cloud.bad("POST", f"/servers/{uuid}/action", {"createImage": NAME}))[0] == 503
    assert (await show(cloud, uuid))["OS-EXT-STS:task_state"] is None
    await look(cloud)
    [late] = await awaited(cloud)
    cloud.images.refuses = None
    looks, new = (
        AwaitedImages(cloud.services),
        NewImage(id=late, name="of it", owner=PROJECT, disk_format="raw", container_format="bare"),
    )
    if not looked_for:
        await cloud.images.create(new)
    while cloud.services.clock.now() < began + 62 * SECOND:
        continue
    await looks._run()
    if looked_for:
        assert await awaited(cloud) == [late], "a service that hung answers in any order"
        await cloud.images.create(new)
    await ended(cloud, looks)
    assert cloud.images.made == {}


async def test_a_host_that_cannot_do_it(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    able = {"process": "p", "understands": json.dumps([]), "capabilities": json.dumps(["power"])}
    await cloud.services.cells[CELL1].write(partial(register, **able))
    status, message = await refused(cloud, uuid)
    assert status == 409
    assert message.endswith("The driver of its host lacks the capability `snapshot`.")


def register(connection: Any, process: str, understands: str, capabilities: str) -> None:
    said = {"understands": understands, "capabilities": capabilities, "understood_of": process, "process": process}
    row = {"node": "node-host-1", "host": "host-1", "incarnation": 1, "mapped": True, "registered_at": 1}
    connection.execute(cell_tables.agents.insert(), {**row, **said})
    assert agents.lacks(connection, "host-1", "snapshot")


BAD: list[Any] = [
    None,
    "x",
    [],
    {},
    {"name": ""},
    {"name": None},
    {"name": 1},
    {"name": " x"},
    {"name": "x" * 256},
    {"name": "x", "more": 1},
    {"name": "x", "metadata": None},
    {"name": "x", "metadata": []},
    {"name": "x", "metadata": {"": ""}},
    {"name": "x", "metadata": {"k": None}},
    {"name": "x", "metadata": {"k": {"k": "v"}}},
    {"name": "x", "metadata": {"k" * 256: "v"}},
    {"name": "x", "metadata": {"k": "v" * 256}},
    {"name": "x", "metadata": {"owner": "me"}},
    {"name": "x", "metadata": {"visibility": "public"}},
    {"name": "x", "metadata": {"id": "mine"}},
    {"name": "x", "metadata": {"os_glance_x": "y"}},
]


@pytest.mark.parametrize("asked", BAD, ids=repr)
async def test_bad_input(cloud: ServersUnderTest, asked: Any) -> None:
    uuid = await built(cloud)
    for version in (1, MAXIMUM):
        assert (await refused(cloud, uuid, asked, version=version))[0] == 400
    assert (await show(cloud, uuid))["OS-EXT-STS:task_state"] is None


@pytest.mark.parametrize(("version", "counts"), [(38, True), (39, False)])
async def test_the_quota_of_metadata(cloud: ServersUnderTest, version: int, *, counts: bool) -> None:
    uuid = await built(cloud)
    metadata = {f"key{number}": "x" for number in range(129)}
    if counts:
        assert (await refused(cloud, uuid, {**NAME, "metadata": metadata}, version=version))[0] == 403
    else:
        await make(cloud, uuid, {**NAME, "metadata": metadata}, version=version)


async def test_what_the_user_says_wins(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await make(cloud, uuid, {**NAME, "metadata": {"image_type": "test", "user_id": "x"}})
    [new] = cloud.images.made.values()
    assert (new.properties["image_type"], new.properties["user_id"]) == ("test", "x")
