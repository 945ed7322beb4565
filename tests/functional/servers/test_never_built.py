"""Actions on servers that were never built: Nova's refusals, in its words."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from skep.database.cell import builds, reschedules
from skep.domain.ids import CELL0, InstanceUuid
from skep.domain.instances import Fault
from skep_lab.compute_api.servers import CELL1, ServersUnderTest

NOT_READY = "Instance {} is not ready"
IN_ERROR = "Cannot '{1}' instance {0} while it is in vm_state error"
INVALID = "Instance {} is in an invalid state for '{}'"

WITHOUT_A_HOST = [
    ({"os-stop": None}, NOT_READY, "stop"),
    ({"os-start": None}, NOT_READY, "start"),
    ({"reboot": {"type": "HARD"}}, INVALID, "reboot"),
    ({"reboot": {"type": "SOFT"}}, IN_ERROR, "reboot"),
    ({"pause": None}, IN_ERROR, "pause"),
    ({"unpause": None}, IN_ERROR, "unpause"),
    ({"suspend": None}, IN_ERROR, "suspend"),
    ({"resume": None}, IN_ERROR, "resume"),
]


async def refused(cloud: ServersUnderTest, uuid: str, body: dict[str, Any]) -> str:
    """Ask for an action; return why it is refused."""
    status, message = await cloud.bad("POST", f"/servers/{uuid}/action", body)
    assert status == 409
    assert [one["action"] for one in await recorded(cloud, uuid)] == ["create"], "nothing began"
    return message


async def recorded(cloud: ServersUnderTest, uuid: str) -> list[dict[str, Any]]:
    path = f"/servers/{uuid}/os-instance-actions"
    listed: list[dict[str, Any]] = (await cloud.good("GET", path))["instanceActions"]
    return listed


@pytest.mark.parametrize(("body", "text", "name"), WITHOUT_A_HOST)
async def test_a_server_that_got_no_host(cloud: ServersUnderTest, body: dict[str, Any], text: str, name: str) -> None:
    uuid = await cloud.create()
    await cloud.place(uuid, CELL0)
    assert await refused(cloud, uuid, body) == text.format(uuid, name)


@pytest.mark.parametrize(("key", "name"), [("os-stop", "stop"), ("reboot", "reboot")])
async def test_a_server_whose_host_was_silent_in_its_build(cloud: ServersUnderTest, key: str, name: str) -> None:
    uuid = await cloud.create()
    taken = await cloud.place(uuid, CELL1)
    fault = Fault(code=500, message="silent", created_at=1)

    def unit(connection: sa.Connection) -> None:
        instance = InstanceUuid(uuid)
        assert builds.may_build(connection, instance, taken.attempt, "host-1", 2)
        assert builds.may_spawn(connection, instance, taken.attempt, "host-1", 2)
        assert reschedules.give_up_on_host(connection, instance, taken.attempt, fault, 3)

    await cloud.services.cells[CELL1].write(unit)
    assert await refused(cloud, uuid, {key: {"type": "HARD"}}) == INVALID.format(uuid, name)


@pytest.mark.parametrize("body", [{"lock": None}, {"os-resetState": {"state": "error"}}])
async def test_actions_on_rows_wait_for_a_cell_and_refuse_then(cloud: ServersUnderTest, body: dict[str, Any]) -> None:
    uuid = await cloud.create()
    status, message = await cloud.bad("POST", f"/servers/{uuid}/action", body, token="admin")
    assert (status, message) == (409, NOT_READY.format(uuid))
    assert (await cloud.ask("DELETE", f"/servers/{uuid}")).status_code == 204, "a delete waits for nothing"
