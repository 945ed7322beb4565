"""Shelving as the API takes it: what is begun, what is refused and leaves nothing, which image stays and which goes."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import pytest

from skep.api.awaited_images import AwaitedImages
from skep.api.microversions import MAXIMUM
from skep.database.api import awaited_images
from skep.database.cell import agents, attempts, instances, offloads, tasks
from skep.database.cell import tables as cell_tables
from skep.database.stored import dump
from skep.domain.actions import ShelveServer
from skep.domain.clock import SECOND
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState, State, Task
from skep_lab.compute_api.servers import CELL1, IMAGE, ServersUnderTest
from tests.support.rows import context


async def act(cloud: ServersUnderTest, uuid: str, key: str, asked: Any = None, **more: Any) -> tuple[int, str]:
    answer = await cloud.ask("POST", f"/servers/{uuid}/action", {key: asked}, **more)
    if answer.status_code == 202:
        return 202, ""
    (fault,) = answer.json().values()
    return answer.status_code, fault["message"]


async def built(cloud: ServersUnderTest) -> str:
    uuid = await cloud.create()
    await cloud.build(uuid)
    return uuid


async def row(cloud: ServersUnderTest, uuid: str) -> Instance:
    found = await cloud.services.cells[CELL1].read(partial(instances.get, uuid=InstanceUuid(uuid)))
    assert found is not None
    return found


async def host_says(cloud: ServersUnderTest, uuid: str, left: PowerState, error: str | None = None) -> None:
    """Let the host carry out the task of a server."""
    wanted = cell_tables.instances.c.uuid == uuid
    [task] = await cloud.services.cells[CELL1].read(partial(tasks.of, wanted=wanted))
    now = cloud.services.clock.now()

    def unit(connection: Any) -> None:
        assert tasks.may_act(connection, task.instance, task.attempt, task.host, task.task, task.task_id, now)
        assert tasks.done(connection, task.instance, task.attempt, task.task_id, left, error, now)

    await cloud.services.cells[CELL1].write(unit)


async def shelved(cloud: ServersUnderTest, *, offloaded: bool = False) -> str:
    """Have a shelved server, whose image the image service knows."""
    uuid = await built(cloud)
    assert await act(cloud, uuid, "shelve") == (202, "")
    await host_says(cloud, uuid, PowerState.SHUTDOWN)
    known = (await row(cloud, uuid)).shelved
    assert known is not None
    now = cloud.services.clock.now()

    def unit(connection: Any) -> None:
        image = dump(msgspec.structs.replace(known, image_id=IMAGE))
        connection.execute(cell_tables.instances.update().values(shelved=image))
        if offloaded:
            found = instances.get(connection, InstanceUuid(uuid))
            assert found is not None
            assert found.host is not None
            assert offloads.begin(connection, found.uuid, context("req-off"), now)
            attempts.close(connection, found.uuid, found.host, 1, now)
            assert offloads.finish(connection, 0, now, 10)

    await cloud.services.cells[CELL1].write(unit)
    await look(cloud)
    cloud.images.made.clear()
    return uuid


async def look(cloud: ServersUnderTest) -> None:
    await AwaitedImages(cloud.services)._run()


async def awaited(cloud: ServersUnderTest) -> list[str]:
    return [one.image.image_id for one in await cloud.database.read(awaited_images.read_all)]


@pytest.mark.parametrize("token", ["member", "admin"])
async def test_the_image_is_of_the_project_of_the_server(cloud: ServersUnderTest, token: str) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, "shelve", token=token) == (202, "")
    [new] = cloud.images.made.values()
    server = await row(cloud, uuid)
    assert (new.name, new.owner) == (f"{server.name}-shelved", "a" * 32)
    assert (new.properties["image_type"], new.properties["user_id"]) == ("snapshot", token)
    wanted = cell_tables.instances.c.uuid == uuid
    [task] = await cloud.services.cells[CELL1].read(partial(tasks.of, wanted=wanted))
    asked = msgspec.convert(task.request.arguments, ShelveServer)
    assert (asked.image_id, asked.was, asked.project_id) == (new.id, State.ACTIVE, "a" * 32)
    assert server.task is Task.SHELVING
    assert await awaited(cloud) == [new.id]


async def test_a_long_name_is_cut(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create("x" * 255)
    await cloud.build(uuid)
    assert await act(cloud, uuid, "shelve") == (202, "")
    [new] = cloud.images.made.values()
    assert new.name == "x" * 247 + "-shelved"


@pytest.mark.parametrize("error", [None, "ImageUnavailable: broke off"])
async def test_only_the_image_that_the_row_names_stays(cloud: ServersUnderTest, error: str | None) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, "shelve") == (202, "")
    [image] = cloud.images.made
    cloud.images.stored.add(image)
    await look(cloud)
    assert list(cloud.images.made) == [image], "its task is under way"
    await host_says(cloud, uuid, PowerState.SHUTDOWN if error is None else PowerState.RUNNING, error)
    await look(cloud)
    assert list(cloud.images.made) == ([image] if error is None else [])
    assert await awaited(cloud) == []


async def test_the_image_goes_when_the_server_runs_again(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, "shelve") == (202, "")
    [image] = cloud.images.made
    cloud.images.stored.add(image)
    await host_says(cloud, uuid, PowerState.SHUTDOWN)
    await look(cloud)
    for left, error in ((PowerState.SHUTDOWN, "it broke"), (PowerState.RUNNING, None)):
        assert await act(cloud, uuid, "unshelve") == (202, "")
        assert await awaited(cloud) == [image]
        await look(cloud)
        assert await awaited(cloud) == [image], "its task is under way"
        await host_says(cloud, uuid, left, error)
        await look(cloud)
        assert await awaited(cloud) == []
        assert list(cloud.images.made) == ([image] if error else [])


async def test_a_request_that_came_after_another_changes_nothing_of_its_image(cloud: ServersUnderTest) -> None:
    uuid = await shelved(cloud, offloaded=True)
    assert await act(cloud, uuid, "unshelve", version=MAXIMUM) == (202, "")
    server = await row(cloud, uuid)
    assert (server.state, server.task) == (State.SHELVED_OFFLOADED, Task.UNSHELVING)
    refused = await act(cloud, uuid, "unshelve", version=MAXIMUM)
    assert refused == (409, f"Cannot 'unshelve' instance {uuid} while it is in task_state unshelving")
    began = cloud.services.clock.now()
    while cloud.services.clock.now() < began + 61 * SECOND:
        continue
    await look(cloud)
    assert await awaited(cloud) == [IMAGE], "the unshelve is under way"


@pytest.mark.parametrize("key", ["shelve", "shelveOffload", "unshelve"])
async def test_where_it_is_refused(cloud: ServersUnderTest, key: str) -> None:
    ready = await built(cloud) if key == "shelve" else await shelved(cloud, offloaded=False)
    by = "admin" if key == "shelveOffload" else "member"
    assert (await act(cloud, ready, key, token="reader"))[0] == 403
    assert (await act(cloud, ready, key, token="other"))[0] == 404
    if key == "shelveOffload":
        assert (await act(cloud, ready, key))[0] == 403
    assert (await act(cloud, "70a599e0-31e7-49b7-b260-868f441e862c", key, token=by))[0] == 404
    waiting = await cloud.create()
    assert (await act(cloud, waiting, key, token=by))[0] == 409
    others = await shelved(cloud, offloaded=key == "shelveOffload") if key == "shelve" else await built(cloud)
    status, message = await act(cloud, others, key, token=by)
    assert (status, message.startswith(f"Cannot '{key}' instance {others} while it is in vm_state ")) == (409, True)
    if key != "shelveOffload":
        await cloud.good("POST", f"/servers/{ready}/action", {"lock": None})
        assert await act(cloud, ready, key) == (409, f"Instance {ready} is locked")
    assert cloud.images.made == {}
    assert await awaited(cloud) == []


async def test_a_host_that_may_store_no_images(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)

    def register(connection: Any) -> None:
        said = {"capabilities": json.dumps(["power"]), "understands": "[]", "understood_of": "p", "process": "p"}
        known = {"node": "node-host-1", "host": "host-1", "incarnation": 1, "mapped": True, "registered_at": 1}
        connection.execute(cell_tables.agents.insert(), {**known, **said})
        assert agents.lacks(connection, "host-1", "snapshot")

    await cloud.services.cells[CELL1].write(register)
    status, message = await act(cloud, uuid, "shelve")
    assert status == 409
    assert message.endswith("The driver of its host lacks the capability `snapshot`.")
    assert cloud.images.made == {}
    assert (await row(cloud, uuid)).task is None


BAD: list[tuple[int, Any]] = [
    (77, {}),
    (77, {"availability_zone": None}),
    (77, {"availability_zone": ""}),
    (77, {"host": "host-1"}),
    (77, "x"),
    (90, {}),
    (90, {"availability_zone": "nova", "host": "host-1"}),
    (90, []),
    (90, 1),
    (MAXIMUM, {"host": None}),
    (MAXIMUM, {"host": ""}),
    (MAXIMUM, {"host": 1}),
    (MAXIMUM, {"host": "a b"}),
    (MAXIMUM, {"host": "nowhere"}),
    (MAXIMUM, {"availability_zone": ""}),
    (MAXIMUM, {"availability_zone": "nowhere"}),
    (MAXIMUM, {"zone": "nova"}),
    (MAXIMUM, "x"),
    (MAXIMUM, []),
]


@pytest.mark.parametrize(("version", "asked"), BAD, ids=repr)
async def test_bad_input(cloud: ServersUnderTest, version: int, asked: Any) -> None:
    uuid = await shelved(cloud, offloaded=True)
    status, _ = await act(cloud, uuid, "unshelve", asked, version=version, token="admin")
    assert status == 400
    server = await row(cloud, uuid)
    assert (server.state, server.task) == (State.SHELVED_OFFLOADED, None)
    assert await awaited(cloud) == []


@pytest.mark.parametrize("asked", [{"availability_zone": "nova"}, {"host": "host-1"}, {"availability_zone": None}])
async def test_a_place_for_a_server_that_has_one(cloud: ServersUnderTest, asked: Any) -> None:
    uuid = await shelved(cloud)
    assert (await act(cloud, uuid, "unshelve", asked, version=MAXIMUM, token="admin"))[0] == 409
    assert (await row(cloud, uuid)).task is None


async def test_a_host_only_by_administrators_and_in_its_zone(cloud: ServersUnderTest) -> None:
    uuid = await shelved(cloud, offloaded=True)
    assert (await act(cloud, uuid, "unshelve", {"host": "host-1"}, version=MAXIMUM))[0] == 403

    def pin(connection: Any) -> None:
        def alter(server: Instance) -> Instance:
            return msgspec.structs.replace(server, pinned_availability_zone="elsewhere")

        assert instances.change(connection, InstanceUuid(uuid), alter, 1)

    await cloud.services.cells[CELL1].write(pin)
    status, message = await act(cloud, uuid, "unshelve", {"host": "host-1"}, version=MAXIMUM, token="admin")
    assert (status, message) == (409, "Host host-1 is not in the availability zone elsewhere.")
    free = {"host": "host-1", "availability_zone": None}
    assert await act(cloud, uuid, "unshelve", free, version=MAXIMUM, token="admin") == (202, "")
    assert (await row(cloud, uuid)).pinned_availability_zone is None


async def test_an_old_body_is_not_looked_at(cloud: ServersUnderTest) -> None:
    uuid = await shelved(cloud, offloaded=True)
    assert await act(cloud, uuid, "unshelve", {"availability_zone": "nowhere"}, version=76) == (202, "")
