"""Deletes where the operator keeps deleted servers, over the API: what is kept, listed, charged, restored, refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from skep.api.microversions import MAXIMUM
from skep.api.services import QuotaDefaults
from skep.database.api import instance_mappings as mappings
from skep.database.api import quotas, task_charges
from skep.database.cell import tasks
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.instances import PowerState
from skep.domain.quotas import NOTHING, charge_of
from skep_lab.compute_api.api import PROJECT
from skep_lab.compute_api.servers import CELL1, FLAVORS, ServersUnderTest, servers_under_test


@pytest_asyncio.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    quotas = QuotaDefaults(instances=2, cores=-1, ram=-1)
    async with servers_under_test(tmp_path, quotas, reclaim=60) as cloud:
        yield cloud


async def built(cloud: ServersUnderTest, name: str | None = None) -> str:
    uuid = await cloud.create(name)
    await cloud.build(uuid)
    return uuid


async def show(cloud: ServersUnderTest, uuid: str, **more: Any) -> tuple[str, str | None]:
    server = (await cloud.good("GET", f"/servers/{uuid}", **more))["server"]
    return server["status"], server["OS-EXT-STS:task_state"]


async def task_id(cloud: ServersUnderTest) -> str:
    [waits] = await cloud.database.read(task_charges.waiting)
    return waits.task_id


async def done(cloud: ServersUnderTest, uuid: str, power_state: PowerState) -> None:
    """Report as its host that the task of a server is over, and settle its charge as a conductor does."""
    waits = await task_id(cloud)
    now = cloud.services.clock.now()
    unit = partial(
        tasks.done,
        uuid=InstanceUuid(uuid),
        attempt=1,
        task_id=waits,
        power_state=power_state,
        error=None,
        now=now,
    )
    assert await cloud.services.cells[CELL1].write(unit) is not None
    owed = NOTHING if power_state is PowerState.SHUTDOWN else charge_of(FLAVORS[0])
    settle = partial(task_charges.settle, instance=InstanceUuid(uuid), task_id=waits, owed=owed)
    assert await cloud.database.write(settle)


async def soft_deleted(cloud: ServersUnderTest) -> str:
    uuid = await built(cloud)
    assert (await cloud.ask("DELETE", f"/servers/{uuid}")).status_code == 204
    await done(cloud, uuid, PowerState.SHUTDOWN)
    return uuid


async def restore(cloud: ServersUnderTest, uuid: str, body: Any = None, **more: Any) -> tuple[int, str]:
    answer = await cloud.ask("POST", f"/servers/{uuid}/action", {"restore": body}, **more)
    if answer.is_success:
        assert answer.content == b""
        return answer.status_code, ""
    (fault,) = answer.json().values()
    return answer.status_code, fault["message"]


async def used(cloud: ServersUnderTest) -> int:
    return (await cloud.database.read(partial(quotas.used, project=ProjectId(PROJECT))))["instances"]


@pytest.mark.parametrize("version", [1, MAXIMUM])
async def test_a_server_that_is_deleted_is_kept_and_restored(keeping: ServersUnderTest, version: int) -> None:
    uuid = await built(keeping)
    for _ in range(2):
        assert (await keeping.ask("DELETE", f"/servers/{uuid}", version=version)).status_code == 204
        assert await show(keeping, uuid) == ("ACTIVE", "soft-deleting")
    assert await used(keeping) == 1, "it is charged until it is deleted"
    await done(keeping, uuid, PowerState.SHUTDOWN)
    assert await show(keeping, uuid) == ("SOFT_DELETED", None)
    assert await used(keeping) == 0
    assert (await keeping.ask("DELETE", f"/servers/{uuid}", version=version)).status_code == 204
    assert await show(keeping, uuid) == ("SOFT_DELETED", None)
    assert await restore(keeping, uuid, {"anything": 1}, version=version) == (202, "")
    assert await show(keeping, uuid) == ("SOFT_DELETED", "restoring")
    assert await used(keeping) == 1
    assert (await restore(keeping, uuid))[0] == 409
    assert (await keeping.bad("DELETE", f"/servers/{uuid}"))[0] == 409
    await done(keeping, uuid, PowerState.RUNNING)
    assert await show(keeping, uuid) == ("ACTIVE", None)
    assert await used(keeping) == 1
    records = (await keeping.good("GET", f"/servers/{uuid}/os-instance-actions"))["instanceActions"]
    assert [one["action"] for one in records] == ["restore", "delete", "create"]
    due = partial(mappings.deletes_due, now=keeping.services.clock.now(), again_at=0, limit=9)
    assert await keeping.database.write(due) == []


async def test_what_does_not_fit_any_more_is_not_restored(keeping: ServersUnderTest) -> None:
    uuid = await soft_deleted(keeping)
    others = [await built(keeping) for _ in range(2)]
    refused = "Quota exceeded for instances: Requested 1, but already used 2 of 2 instances"
    assert await restore(keeping, uuid) == (403, refused)
    assert await show(keeping, uuid) == ("SOFT_DELETED", None)
    assert await used(keeping) == 2
    assert (await keeping.ask("DELETE", f"/servers/{others[0]}")).status_code == 204
    await done(keeping, others[0], PowerState.SHUTDOWN)
    assert await restore(keeping, uuid) == (202, "")


async def test_who_may_restore_what(keeping: ServersUnderTest) -> None:
    uuid = await soft_deleted(keeping)
    assert (await restore(keeping, uuid, token="reader"))[0] == 403
    assert (await restore(keeping, uuid, token="other"))[0] == 404
    assert (await restore(keeping, "00000000-0000-4000-8000-000000000000"))[0] == 404
    live = await built(keeping)
    assert await restore(keeping, live) == (409, f"Cannot 'restore' instance {live} while it is in vm_state active")
    await keeping.good("POST", f"/servers/{uuid}/action", {"lock": None})
    assert await restore(keeping, uuid) == (409, f"Instance {uuid} is locked")
    assert await used(keeping) == 1
    assert await restore(keeping, uuid, token="admin") == (202, "")


async def test_what_else_is_asked_of_a_soft_deleted_server(keeping: ServersUnderTest) -> None:
    uuid = await soft_deleted(keeping)
    for body in ({"os-start": None}, {"os-stop": None}, {"reboot": {"type": "HARD"}}, {"pause": None}):
        status, message = await keeping.bad("POST", f"/servers/{uuid}/action", body)
        assert status == 409
        assert message.endswith("while it is in vm_state soft-delete")
    assert (await keeping.ask("POST", f"/servers/{uuid}/action", {"forceDelete": None})).status_code == 202
    due = partial(mappings.deletes_due, now=keeping.services.clock.now(), again_at=0, limit=9)
    assert [one.instance for one in await keeping.database.write(due)] == [uuid]


async def test_a_reset_charges_it_whatever_the_limits_are(keeping: ServersUnderTest) -> None:
    uuid = await soft_deleted(keeping)
    for _ in range(2):
        await built(keeping)
    reset = {"os-resetState": {"state": "active"}}
    assert (await keeping.ask("POST", f"/servers/{uuid}/action", reset, token="admin")).status_code == 202
    assert await show(keeping, uuid) == ("ACTIVE", None)
    assert await used(keeping) == 3


async def test_where_soft_deleted_servers_are_listed(keeping: ServersUnderTest) -> None:
    uuid = await soft_deleted(keeping)
    live = await built(keeping)

    async def listed(query: str, token: str = "admin") -> list[str]:
        answer = await keeping.good("GET", f"/servers?all_tenants=1&{query}", token=token, version=60)
        return [one["id"] for one in answer["servers"]]

    assert await listed("") == [live]
    assert await listed("deleted=true") == [uuid]
    assert await listed("deleted=true&soft_deleted=false") == []
    assert await listed("soft_deleted=true") == [live, uuid]
    assert await listed("soft_deleted=true&status=SOFT_DELETED") == [uuid]
    assert await listed("deleted=true&vm_state=soft-delete") == [uuid]
    assert await listed("status=SOFT_DELETED") == []
    assert await listed("changes-since=2020-01-01") == [live, uuid]
    answer = await keeping.good("GET", "/servers?deleted=true&soft_deleted=true")
    assert [one["id"] for one in answer["servers"]] == [live], "the filters are for admins"


async def test_what_ends_with_a_soft_delete(keeping: ServersUnderTest) -> None:
    uuid = await built(keeping)
    await keeping.good("POST", f"/servers/{uuid}/action", {"os-stop": None})
    assert (await keeping.ask("DELETE", f"/servers/{uuid}")).status_code == 204
    assert await show(keeping, uuid) == ("ACTIVE", "soft-deleting")
    assert [(one.action, one.outcome) for one, _ in keeping.ended] == [("stop", "error")]


async def test_what_was_not_built_is_deleted_at_once(keeping: ServersUnderTest) -> None:
    waiting = await keeping.create()
    assert (await keeping.ask("DELETE", f"/servers/{waiting}")).status_code == 204
    assert (await keeping.bad("GET", f"/servers/{waiting}"))[0] == 404
    assert (await keeping.bad("DELETE", f"/servers/{waiting}"))[0] == 404
    placed = await keeping.create()
    await keeping.place(placed, CELL1)
    assert (await keeping.ask("DELETE", f"/servers/{placed}")).status_code == 204
    assert await show(keeping, placed) == ("BUILD", "deleting")


async def test_a_lock_keeps_from_a_soft_delete(keeping: ServersUnderTest) -> None:
    uuid = await built(keeping)
    await keeping.good("POST", f"/servers/{uuid}/action", {"lock": None})
    assert (await keeping.bad("DELETE", f"/servers/{uuid}"))[0] == 409
    assert await show(keeping, uuid) == ("ACTIVE", None)
