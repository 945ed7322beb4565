"""Actions that are one write of a row: lock, unlock, reset, forced delete; and what a hard reboot overrides."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from skep.api.microversions import MAXIMUM
from skep.database.api import instance_mappings as mappings
from skep.domain.clock import Clock
from skep.domain.instances import State
from skep.telemetry import endings
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notification, Notifier
from skep_lab.compute_api.servers import ServersUnderTest


async def act(cloud: ServersUnderTest, uuid: str, body: dict[str, Any], **more: Any) -> tuple[int, str]:
    """Ask for an action; return the status and the message of a fault."""
    response = await cloud.ask("POST", f"/servers/{uuid}/action", body, **more)
    if response.is_success:
        assert response.content == b""
        return response.status_code, ""
    (fault,) = response.json().values()
    return response.status_code, fault["message"]


async def show(cloud: ServersUnderTest, uuid: str, version: int = MAXIMUM) -> dict[str, Any]:
    shown: dict[str, Any] = (await cloud.good("GET", f"/servers/{uuid}", version=version, token="admin"))["server"]
    return shown


async def built(cloud: ServersUnderTest, **more: Any) -> str:
    uuid = await cloud.create(**more)
    await cloud.build(uuid)
    return uuid


async def records(cloud: ServersUnderTest, uuid: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the actions of a server, newest first, with the events and the result of each."""
    path = f"/servers/{uuid}/os-instance-actions"
    found = []
    for one in (await cloud.good("GET", path, token="admin"))["instanceActions"]:
        whole = (await cloud.good("GET", f"{path}/{one['request_id']}", token="admin"))["instanceAction"]
        found.append((one["action"], [(event["event"], event["result"]) for event in whole["events"]]))
    return found


def told(cloud: ServersUnderTest) -> list[tuple[str, str]]:
    return [(one.action, one.outcome) for one, _ in cloud.ended]


@pytest.mark.parametrize("version", [1, 8, 72, 73, MAXIMUM])
async def test_a_lock(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, {"lock": None}, version=version) == (202, "")
    assert (await show(cloud, uuid))["locked"] is True
    assert "locked" not in await show(cloud, uuid, version=8)
    assert "locked_reason" not in await show(cloud, uuid, version=72)
    assert (await show(cloud, uuid))["locked_reason"] is None
    assert (await records(cloud, uuid))[0] == ("lock", [("api_lock", "Success")])
    assert told(cloud) == [("lock", "ok")]
    assert await act(cloud, uuid, {"lock": None}, version=version) == (202, ""), "its owner locks it again"
    assert len(await records(cloud, uuid)) == 2, "and nothing is done"


async def test_the_reason_of_a_lock(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    for body in ({"locked_reason": ""}, {"locked_reason": "x" * 256}, {"locked_reason": None}, {"reason": "x"}, "x"):
        assert (await act(cloud, uuid, {"lock": body}, version=73))[0] == 400
        assert (await show(cloud, uuid))["locked"] is False
    assert await act(cloud, uuid, {"lock": {"locked_reason": "audit"}}, version=72) == (202, "")
    assert (await show(cloud, uuid))["locked_reason"] is None, "before 2.73 the body is not looked at"
    reason = {"locked_reason": "x" * 255}
    assert await act(cloud, uuid, {"lock": reason}, version=73, token="admin") == (202, "")
    assert (await show(cloud, uuid, version=73))["locked_reason"] == reason["locked_reason"]
    assert await act(cloud, uuid, {"lock": {}}, version=73, token="admin") == (202, "")
    assert (await show(cloud, uuid))["locked_reason"] == reason["locked_reason"], (
        "no reason leaves the one that is there"
    )
    for query, found in (("locked=true", [uuid]), ("locked=false", [])):
        listed = (await cloud.good("GET", f"/servers?{query}", version=73))["servers"]
        assert [one["id"] for one in listed] == found


async def test_what_a_lock_refuses(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await act(cloud, uuid, {"lock": None})
    refused = (409, f"Instance {uuid} is locked")
    for body in ({"os-stop": None}, {"reboot": {"type": "HARD"}}, {"pause": None}, {"suspend": None}):
        assert await act(cloud, uuid, body) == refused
    assert await act(cloud, uuid, {"os-stop": None}, token="admin") == (202, ""), "an admin is not bound"


async def test_a_lock_is_for_members(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, {"lock": None}, token="reader"))[0] == 403
    assert (await act(cloud, uuid, {"lock": None}, token="other"))[0] == 404
    assert (await show(cloud, uuid))["locked"] is False
    waiting = await cloud.create()
    assert await act(cloud, waiting, {"lock": None}) == (409, f"Instance {waiting} is not ready")


@pytest.mark.parametrize(
    ("locks", "unlocks", "answer"),
    [
        ("member", "member", 202),
        ("manager", "member", 202),
        ("member", "admin", 202),
        ("admin", "admin", 202),
        ("admin", "member", 403),
        ("admin", "reader", 403),
        ("admin", "other", 404),
        (None, "member", 202),
    ],
)
@pytest.mark.parametrize("version", [1, MAXIMUM])
async def test_who_may_unlock(
    cloud: ServersUnderTest, locks: str | None, unlocks: str, answer: int, version: int
) -> None:
    uuid = await built(cloud)
    if locks is not None:
        reason = {"locked_reason": "audit"}
        assert await act(cloud, uuid, {"lock": reason}, token=locks, version=73) == (202, "")
    status, message = await act(cloud, uuid, {"unlock": None}, token=unlocks, version=version)
    assert status == answer, message
    if unlocks == "member" and answer == 403:
        override = "os_compute_api:os-lock-server:unlock:unlock_override"
        assert message == f"Policy doesn't allow {override} to be performed."
    server = await show(cloud, uuid)
    kept = locks is not None and answer != 202
    assert (server["locked"], server["locked_reason"]) == (kept, "audit" if kept else None)
    if answer == 202:
        assert (await records(cloud, uuid))[0] == ("unlock", [("api_unlock", "Success")])
        assert told(cloud)[-1] == ("unlock", "ok")


def reset(state: object) -> dict[str, Any]:
    return {"os-resetState": {"state": state}}


@pytest.mark.parametrize("version", [1, MAXIMUM])
async def test_the_state_is_reset(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    for state, status in (("error", "ERROR"), ("error", "ERROR"), ("active", "ACTIVE")):
        assert await act(cloud, uuid, reset(state), token="admin", version=version) == (202, "")
        assert (await show(cloud, uuid))["status"] == status
        assert (await records(cloud, uuid))[0] == ("resetState", []), "it has no events"
    assert told(cloud) == [("reset_state", "ok")] * 3
    assert [over.before for over, _ in cloud.ended] == [State.ACTIVE, State.ERROR, State.ERROR]


async def test_a_reset_ends_what_a_host_does(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, {"os-stop": None}) == (202, "")
    await act(cloud, uuid, {"lock": None})
    assert await act(cloud, uuid, reset("error"), token="admin") == (202, ""), "no lock and no task keeps from it"
    server = await show(cloud, uuid)
    assert (server["status"], server["OS-EXT-STS:task_state"]) == ("ERROR", None)
    assert told(cloud) == [("lock", "ok"), ("stop", "error"), ("reset_state", "ok")]
    assert (await records(cloud, uuid))[2] == ("stop", [("compute_stop_instance", "Error")])


async def test_a_reset_is_notified_as_an_update(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await act(cloud, uuid, {"os-stop": None})
    response = await cloud.ask("POST", f"/servers/{uuid}/action", reset("error"), token="admin")
    await act(cloud, uuid, reset("active"), token="admin")
    found: list[Notification] = []
    endings.ended(Metrics(), Notifier(Clock(), sinks=(found.append,)), cloud.ended)
    assert [one.event_type for one in found] == ["instance.power_off.error", "instance.update", "instance.update"]
    first, second = (one.payload["nova_object.data"] for one in found[1:])
    assert found[1].publisher_id == f"nova-api:{cloud.services.runs_on}"
    assert found[1].priority == "INFO"
    assert found[1].request == response.headers["x-openstack-request-id"]
    assert (first["uuid"], first["state"], first["task_state"], first["host"]) == (uuid, "error", None, "host-1")
    assert first["state_update"] == {
        "nova_object.name": "InstanceStateUpdatePayload",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.0",
        "nova_object.data": {
            "old_state": "active",
            "state": "error",
            "old_task_state": "powering-off",
            "new_task_state": None,
        },
    }
    changed = second["state_update"]["nova_object.data"]
    assert (changed["old_state"], changed["state"], changed["old_task_state"]) == ("error", "active", None)


@pytest.mark.parametrize(
    "body", [None, {}, {"state": None}, {"state": "building"}, {"state": "ACTIVE"}, {"state": "error", "more": 1}]
)
async def test_what_a_reset_takes(cloud: ServersUnderTest, body: object) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, {"os-resetState": body}, token="admin"))[0] == 400
    assert (await show(cloud, uuid))["status"] == "ACTIVE"


async def test_a_reset_is_for_admins(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    for token, status in (("member", 403), ("manager", 403), ("other", 404)):
        assert (await act(cloud, uuid, reset("error"), token=token))[0] == status
    absent = "00000000-0000-4000-8000-000000000000"
    assert (await act(cloud, absent, reset("error"), token="admin"))[0] == 404
    assert told(cloud) == []


@pytest.mark.parametrize("version", [1, MAXIMUM])
async def test_a_delete_by_force(cloud: ServersUnderTest, version: int) -> None:
    uuid, waiting = await built(cloud), await cloud.create()
    assert (await act(cloud, uuid, {"forceDelete": None}, token="reader"))[0] == 403
    assert (await act(cloud, uuid, {"forceDelete": None}, token="other"))[0] == 404
    await act(cloud, uuid, {"lock": None})
    assert await act(cloud, uuid, {"forceDelete": None}) == (409, f"Instance {uuid} is locked")
    await act(cloud, uuid, {"unlock": None})
    await act(cloud, uuid, {"os-stop": None})
    for _ in range(2):
        assert await act(cloud, uuid, {"forceDelete": "now"}, version=version) == (202, ""), "whatever is under way"
    assert (await show(cloud, uuid))["OS-EXT-STS:task_state"] == "powering-off"
    due = partial(mappings.deletes_due, now=cloud.services.clock.now(), again_at=0, limit=9)
    [intent] = await cloud.database.write(due)
    assert intent.instance == uuid
    assert await act(cloud, waiting, {"forceDelete": None}) == (202, "")
    assert (await act(cloud, waiting, {"forceDelete": None}))[0] == 404, "without a cell it is deleted at once"


OVERRIDDEN = [
    ({"reboot": {"type": "SOFT"}}, "reboot_soft"),
    ({"reboot": {"type": "HARD"}}, "reboot_hard"),
    ({"pause": None}, "pause"),
    ({"suspend": None}, "suspend"),
]


@pytest.mark.parametrize(("body", "name"), OVERRIDDEN)
async def test_a_hard_reboot_overrides_what_may_hang(cloud: ServersUnderTest, body: dict[str, Any], name: str) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, body) == (202, "")
    soft = {"reboot": {"type": "SOFT"}}
    assert (await act(cloud, uuid, soft))[0] == 409
    assert await act(cloud, uuid, {"reboot": {"type": "HARD"}}) == (202, "")
    server = await show(cloud, uuid)
    assert (server["status"], server["OS-EXT-STS:task_state"]) == ("HARD_REBOOT", "rebooting_hard")
    assert told(cloud) == [(name, "error")]


async def test_a_hard_reboot_waits_for_a_stop(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, {"os-stop": None}) == (202, "")
    refused = f"Cannot 'reboot' instance {uuid} while it is in task_state powering-off"
    assert await act(cloud, uuid, {"reboot": {"type": "HARD"}}) == (409, refused)
    assert told(cloud) == []
