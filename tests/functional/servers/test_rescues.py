"""Rescues as the API takes them: bodies, images, states, what is refused, and what the server shows of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from skep.api.microversions import MAXIMUM
from skep.database.cell import tables as cell_tables
from skep.database.cell import tasks
from skep.database.cell.endings import with_instances
from skep.domain.actions import SealedRescue
from skep.domain.instances import PowerState
from skep.domain.notifications import action
from skep_lab.compute_api.servers import CELL1, IMAGE, LARGE, SAVING, ServersUnderTest

RESCUE = {"rescue": None}


async def built(cloud: ServersUnderTest) -> str:
    uuid = await cloud.create()
    await cloud.build(uuid)
    return uuid


async def act(cloud: ServersUnderTest, uuid: str, body: Any, **more: Any) -> tuple[int, str]:
    """Ask for an action; return the status and the message of a fault."""
    response = await cloud.ask("POST", f"/servers/{uuid}/action", body, **more)
    if response.is_success:
        return response.status_code, ""
    (fault,) = response.json().values()
    return response.status_code, fault["message"]


async def shown(cloud: ServersUnderTest, uuid: str) -> tuple[str, str, str | None]:
    server = (await cloud.good("GET", f"/servers/{uuid}", token="admin"))["server"]
    return server["status"], server["OS-EXT-STS:vm_state"], server["OS-EXT-STS:task_state"]


async def task_of(cloud: ServersUnderTest, uuid: str) -> tasks.HostTask:
    [task] = await cloud.services.cells[CELL1].read(partial(tasks.of, wanted=cell_tables.instances.c.uuid == uuid))
    return task


async def ends(cloud: ServersUnderTest, uuid: str, error: str | None = None, *, rescued: bool = False) -> None:
    """Let the host say what came of it."""
    task = await task_of(cloud, uuid)
    now = cloud.services.clock.now()

    def unit(connection: Any) -> None:
        assert tasks.may_act(connection, task.instance, task.attempt, task.host, task.task, task.task_id, now)
        left = PowerState.RUNNING
        mine = (task.instance, task.attempt, task.task_id)
        assert tasks.done(connection, *mine, left, error, now, rescued=rescued) is not None

    await cloud.services.cells[CELL1].write(unit)


async def rescued(cloud: ServersUnderTest) -> str:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, RESCUE))[0] == 200
    await ends(cloud, uuid)
    return uuid


def sealed_in(cloud: ServersUnderTest, task: tasks.HostTask) -> SealedRescue:
    assert task.request.secrets is not None
    return msgspec.json.decode(cloud.services.unseal(task.request.secrets) or b"", type=SealedRescue)


@pytest.mark.parametrize("version", [1, 86, 87, MAXIMUM])
async def test_a_rescue_and_its_end(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    answer = await cloud.good("POST", f"/servers/{uuid}/action", RESCUE, version=version)
    assert list(answer) == ["adminPass"]
    assert len(answer["adminPass"]) >= 12
    assert await shown(cloud, uuid) == ("ACTIVE", "active", "rescuing")
    task = await task_of(cloud, uuid)
    assert sealed_in(cloud, task) == SealedRescue(
        admin_password=answer["adminPass"], instance=task.instance, image=IMAGE
    )
    assert answer["adminPass"] not in repr(task.request.arguments)
    assert task.request.arguments["rescue_image"]["id"] == IMAGE
    await ends(cloud, uuid)
    assert await shown(cloud, uuid) == ("RESCUE", "rescued", None)
    assert await act(cloud, uuid, {"unrescue": None}, version=version) == (202, "")
    assert await shown(cloud, uuid) == ("RESCUE", "rescued", "unrescuing")
    await ends(cloud, uuid)
    assert await shown(cloud, uuid) == ("ACTIVE", "active", None)
    path = f"/servers/{uuid}/os-instance-actions"
    found = []
    for one in (await cloud.good("GET", path, token="admin"))["instanceActions"]:
        whole = (await cloud.good("GET", f"{path}/{one['request_id']}", token="admin"))["instanceAction"]
        found.append((one["action"], [(event["event"], event["result"]) for event in whole["events"]]))
    assert found[:2] == [
        ("unrescue", [("compute_unrescue_instance", "Success")]),
        ("rescue", [("compute_rescue_instance", "Success")]),
    ]


async def test_a_rescue_with_a_password_and_an_image_of_its_own(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    body = {"rescue": {"adminPass": "of-the-rescue", "rescue_image_ref": LARGE}}
    assert await cloud.good("POST", f"/servers/{uuid}/action", body) == {"adminPass": "of-the-rescue"}
    task = await task_of(cloud, uuid)
    assert sealed_in(cloud, task) == SealedRescue(admin_password="of-the-rescue", instance=task.instance, image=LARGE)
    [instance] = await cloud.services.cells[CELL1].read(
        lambda connection: list(connection.execute(cell_tables.instances.select()))
    )
    assert b"of-the-rescue" not in instance.action_request
    over, server = await _ended(cloud, uuid)
    payload = action(server, over.context, arguments=over.arguments)
    assert payload["nova_object.name"] == "InstanceActionRescuePayload"
    assert payload["nova_object.data"]["rescue_image_ref"] == LARGE


async def _ended(cloud: ServersUnderTest, uuid: str) -> Any:
    task = await task_of(cloud, uuid)

    def unit(connection: Any) -> Any:
        over = tasks.done(connection, task.instance, 1, task.task_id, PowerState.RUNNING, None, 1)
        assert over is not None
        return with_instances(connection, [over])

    [ended] = await cloud.services.cells[CELL1].write(unit)
    return ended


BAD: tuple[Any, ...] = (
    "x",
    [],
    {"adminPass": None},
    {"adminPass": 7},
    {"rescue_image_ref": "x"},
    {"rescue_image_ref": None},
    {"rescue_image_ref": ""},
    {"more": 1},
)


async def test_bad_bodies_and_images_begin_nothing(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    for body in BAD:
        assert (await act(cloud, uuid, {"rescue": body}))[0] == 400
    for image in (SAVING, "11111111-2222-4333-8444-555555555555"):
        status, said = await act(cloud, uuid, {"rescue": {"rescue_image_ref": image}})
        assert (status, said) == (400, f"Requested rescue image '{image}' is not supported")
    for action_name in ("rescue", "unrescue"):
        assert (await act(cloud, uuid, {action_name: None}, token="reader"))[0] == 403
        assert (await act(cloud, "no-such", {action_name: None}))[0] == 404
    assert (await act(cloud, uuid, {"unrescue": None}))[0] == 409
    assert await shown(cloud, uuid) == ("ACTIVE", "active", None)


async def test_a_rescue_that_failed_leaves_the_server_as_it_was(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, RESCUE))[0] == 200
    await ends(cloud, uuid, "NoSpaceLeft: the disk is full")
    assert await shown(cloud, uuid) == ("ACTIVE", "active", None)
    uuid = await rescued(cloud)
    assert (await act(cloud, uuid, {"unrescue": None}))[0] == 202
    await ends(cloud, uuid, "InternalError: no", rescued=True)
    assert await shown(cloud, uuid) == ("RESCUE", "rescued", None)


@pytest.mark.parametrize(
    "body",
    [
        {"os-start": None},
        {"os-stop": None},
        {"reboot": {"type": "SOFT"}},
        {"reboot": {"type": "HARD"}},
        {"pause": None},
        {"suspend": None},
        {"rescue": None},
        {"migrate": None},
        {"createImage": {"name": "x"}},
        {"createBackup": {"name": "x", "backup_type": "daily", "rotation": 1}},
        {"changePassword": {"adminPass": "x"}},
    ],
    ids=lambda body: next(iter(body)),
)
async def test_what_a_rescued_server_refuses(cloud: ServersUnderTest, body: dict[str, Any]) -> None:
    uuid = await rescued(cloud)
    status, said = await act(cloud, uuid, body, token="admin")
    assert status == 409
    assert "vm_state rescued" in said
    assert cloud.images.made == {}


@pytest.mark.parametrize("key", ["trigger_crash_dump", "lock", "unrescue", "forceDelete"])
async def test_what_a_rescued_server_takes(cloud: ServersUnderTest, key: str) -> None:
    uuid = await rescued(cloud)
    assert await act(cloud, uuid, {key: None}, version=MAXIMUM) == (202, "")


async def test_a_locked_server_is_not_rescued(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, {"lock": None}, token="admin") == (202, "")
    assert await act(cloud, uuid, RESCUE) == (409, f"Instance {uuid} is locked")
    assert (await act(cloud, uuid, RESCUE, token="admin"))[0] == 200
