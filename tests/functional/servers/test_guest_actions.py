"""Actions on guests that change nothing of their servers' states, as the API takes them: states, bodies, versions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from skep.api.microversions import MAXIMUM
from skep.database.cell import tables as cell_tables
from skep.database.cell import tasks
from skep.domain.actions import ActionRequest
from skep.domain.instances import PowerState
from skep_lab.compute_api.servers import CELL1, ServersUnderTest

PASSWORD = {"changePassword": {"adminPass": "new-password"}}
CRASH = {"trigger_crash_dump": None}


async def built(cloud: ServersUnderTest) -> str:
    uuid = await cloud.create()
    await cloud.build(uuid)
    return uuid


async def act(cloud: ServersUnderTest, uuid: str, body: Any, **more: Any) -> tuple[int, str]:
    """Ask for an action; return the status and the message of a fault."""
    response = await cloud.ask("POST", f"/servers/{uuid}/action", body, **more)
    if response.is_success:
        assert response.content == b""
        return response.status_code, ""
    (fault,) = response.json().values()
    return response.status_code, fault["message"]


async def shown(cloud: ServersUnderTest, uuid: str) -> tuple[str, str | None]:
    server = (await cloud.good("GET", f"/servers/{uuid}", token="admin"))["server"]
    return server["status"], server["OS-EXT-STS:task_state"]


async def asked(cloud: ServersUnderTest, uuid: str) -> list[ActionRequest]:
    """Return what hosts are to do to a server."""
    found = await cloud.services.cells[CELL1].read(partial(tasks.of, wanted=cell_tables.instances.c.uuid == uuid))
    return [one.request for one in found]


async def ends(cloud: ServersUnderTest, uuid: str, error: str | None = None) -> None:
    """Let the host say what came of it."""
    [task] = await cloud.services.cells[CELL1].read(partial(tasks.of, wanted=cell_tables.instances.c.uuid == uuid))
    now = cloud.services.clock.now()

    def unit(connection: Any) -> None:
        assert tasks.may_act(connection, task.instance, task.attempt, task.host, task.task, task.task_id, now)
        done = tasks.done(connection, task.instance, task.attempt, task.task_id, PowerState.RUNNING, error, now)
        assert done is not None

    await cloud.services.cells[CELL1].write(unit)


async def results(cloud: ServersUnderTest, uuid: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the newest action of a server, and its events with the result of each."""
    path = f"/servers/{uuid}/os-instance-actions"
    newest = (await cloud.good("GET", path, token="admin"))["instanceActions"][0]
    whole = (await cloud.good("GET", f"{path}/{newest['request_id']}", token="admin"))["instanceAction"]
    return newest["action"], [(event["event"], event["result"]) for event in whole["events"]]


@pytest.mark.parametrize("version", [1, MAXIMUM])
@pytest.mark.parametrize("error", [None, "InstanceNotRunning: it is off"])
async def test_a_new_password_is_sealed_until_its_host_has_set_it(
    cloud: ServersUnderTest, version: int, error: str | None
) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, PASSWORD, version=version) == (202, "")
    assert await shown(cloud, uuid) == ("PASSWORD", "updating_password")
    [request] = await asked(cloud, uuid)
    assert request.arguments == {}
    assert request.secrets is not None
    assert b"new-password" not in request.secrets
    assert b'"admin_password":"new-password"' in (cloud.services.unseal(request.secrets) or b"")
    await ends(cloud, uuid, error)
    assert await asked(cloud, uuid) == []
    assert await shown(cloud, uuid) == ("ACTIVE", None)
    result = "Success" if error is None else "Error"
    assert await results(cloud, uuid) == ("changePassword", [("compute_set_admin_password", result)])


@pytest.mark.parametrize(
    "body", [None, {}, "x", {"adminPass": None}, {"adminPass": 7}, {"adminPass": "x", "more": 1}, {"pass": "secret"}]
)
async def test_a_bad_password_is_refused_unrepeated(cloud: ServersUnderTest, body: Any) -> None:
    uuid = await built(cloud)
    status, message = await act(cloud, uuid, {"changePassword": body})
    assert status == 400
    assert "secret" not in message
    assert await shown(cloud, uuid) == ("ACTIVE", None)


async def test_where_a_password_is_not_changed(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, PASSWORD, token="reader"))[0] == 403
    assert (await act(cloud, "no-such", PASSWORD))[0] == 404
    assert await act(cloud, uuid, {"pause": None}) == (202, "")
    status, said = await act(cloud, uuid, PASSWORD)
    assert (status, said) == (409, f"Cannot 'changePassword' instance {uuid} while it is in task_state pausing")
    reset = {"os-resetState": {"state": "error"}}
    assert await act(cloud, uuid, reset, token="admin") == (202, "")
    status, said = await act(cloud, uuid, PASSWORD)
    assert (status, said) == (409, f"Cannot 'changePassword' instance {uuid} while it is in vm_state error")
    assert await act(cloud, uuid, {"lock": None}, token="admin") == (202, "")
    assert (await act(cloud, uuid, PASSWORD)) == (409, f"Instance {uuid} is locked")


@pytest.mark.parametrize("state", ["active", "error"])
async def test_a_crash_leaves_the_state_as_it_was(cloud: ServersUnderTest, state: str) -> None:
    uuid = await built(cloud)
    reset = {"os-resetState": {"state": state}}
    assert await act(cloud, uuid, reset, token="admin") == (202, "")
    for error, result in ((None, "Success"), ("InternalError: no", "Error")):
        assert await act(cloud, uuid, CRASH, version=17) == (202, "")
        assert await shown(cloud, uuid) == (state.upper(), "triggering_crash_dump")
        await ends(cloud, uuid, error)
        assert await shown(cloud, uuid) == (state.upper(), None)
        assert await results(cloud, uuid) == ("trigger_crash_dump", [("compute_trigger_crash_dump", result)])


async def test_a_crash_asked_for_badly(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, CRASH, version=16))[0] == 404
    bodies: tuple[Any, ...] = ({}, "x", 1, False)
    for body in bodies:
        assert (await act(cloud, uuid, {"trigger_crash_dump": body}, version=17))[0] == 400
    assert (await act(cloud, uuid, CRASH, version=17, token="reader"))[0] == 403
    assert await act(cloud, uuid, {"os-stop": None}) == (202, "")
    assert (await act(cloud, uuid, CRASH, version=17))[0] == 409


@pytest.mark.parametrize("version", [1, MAXIMUM])
async def test_what_nova_does_no_more(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    inject = {"injectNetworkInfo": None}
    assert (await act(cloud, uuid, inject, version=version))[0] == 403
    assert await act(cloud, uuid, inject, version=version, token="admin") == (202, "")
    assert (await results(cloud, uuid))[0] == "create", "nothing is done, and nothing noted"
    for server in (uuid, "no-such"):
        assert (await act(cloud, server, {"resetNetwork": None}, version=version))[0] == 410
    assert (await act(cloud, "no-such", inject, version=version, token="admin"))[0] == 404
    assert await act(cloud, uuid, {"lock": None}, token="admin") == (202, "")
    assert await act(cloud, uuid, inject, version=version, token="admin") == (202, ""), (
        "an admin's lock is no bar to it"
    )


@pytest.mark.parametrize(
    ("key", "last"),
    [
        ("addFixedIp", 43),
        ("removeFixedIp", 43),
        ("addFloatingIp", 43),
        ("removeFloatingIp", 43),
    ],
)
async def test_old_actions_end_with_their_microversions(cloud: ServersUnderTest, key: str, last: int) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, {key: {}}, version=last))[0] == 400
    assert (await act(cloud, uuid, {key: {}}, version=last + 1))[0] == 404
    assert (await act(cloud, uuid, {"no-such": {}}, version=last))[0] == 400
