"""What the API asks before an evacuation: bodies of all microversions, states, roles, hosts, fences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from skep.api.routes import ROUTES
from skep.database.cell import agents, cold_moves, evacuations, fences, server_migrations
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.actions import EvacuateTo
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, InstanceUuid, NodeUuid
from skep.domain.server_migrations import ServerMigration
from skep.messages.to_cell_conductor import InstancesChanged
from skep_lab.compute_api.servers import CELL1, HOST, OWNER, ServersUnderTest, servers_under_test

NOW = 2**50
DOWN = msgspec.structs.replace(HOST, up=False, forced_down=True)
UNKNOWN = msgspec.structs.replace(HOST, up=False)
SHARED = {"onSharedStorage": False}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, routes=ROUTES, reported=(DOWN,)) as opened:
        await register(opened)
        yield opened


async def register(cloud: ServersUnderTest) -> None:
    for host in ("host-1", "host-2"):
        identity = AgentIdentity(node=NodeUuid(f"node-{host}"), host=host, process=Incarnation(f"p-{host}"))
        registering = partial(
            agents.register, identity=identity, now=1, understands=("MoveStep",), capabilities=("evacuate", "power")
        )
        await cloud.services.cells[CELL1].write(registering)


async def built(cloud: ServersUnderTest) -> str:
    uuid = await cloud.create()
    await cloud.build(uuid)
    return uuid


async def evacuate(
    cloud: ServersUnderTest, uuid: str, body: Any, version: int, token: str = "admin"
) -> tuple[int, Any]:
    response = await cloud.ask("POST", f"/servers/{uuid}/action", {"evacuate": body}, token=token, version=version)
    if response.is_success:
        return response.status_code, response.json() if response.content else None
    (fault,) = response.json().values()
    return response.status_code, fault["message"]


async def moves_of(cloud: ServersUnderTest, uuid: str) -> list[ServerMigration]:
    read = partial(server_migrations.listed, query=MigrationQuery(instance=uuid))
    return await cloud.services.cells[CELL1].read(read)


async def asked_of(cloud: ServersUnderTest, uuid: str) -> tuple[EvacuateTo, str | None, bytes | None]:
    def unit(connection: sa.Connection) -> tuple[EvacuateTo, str | None, bytes | None]:
        [waiting] = cold_moves.take(connection, OWNER, NOW, 5)
        assert waiting.move.instance == InstanceUuid(uuid)
        request = evacuations.request_of(connection, waiting.move)
        assert request is not None
        return evacuations.arguments_of(connection, waiting.move), waiting.move.wanted_host, request.secrets

    return await cloud.services.cells[CELL1].write(unit)


@pytest.mark.parametrize(
    ("version", "body", "to", "host"),
    [
        (1, SHARED, EvacuateTo(), None),
        (13, {**SHARED, "host": "host-2"}, EvacuateTo(forced=True), "host-2"),
        (14, {}, EvacuateTo(), None),
        (28, {"host": "host-2"}, EvacuateTo(forced=True), "host-2"),
        (29, {"host": "host-2"}, EvacuateTo(), "host-2"),
        (67, {"host": "host-2", "force": True}, EvacuateTo(forced=True), "host-2"),
        (68, {"host": "host-2"}, EvacuateTo(), "host-2"),
        (94, {}, EvacuateTo(), None),
        (95, {}, EvacuateTo(stopped=True), None),
        (104, {"host": "host-2", "adminPass": "opensesame"}, EvacuateTo(stopped=True), "host-2"),
    ],
)
async def test_each_microversion(
    cloud: ServersUnderTest, version: int, body: dict[str, Any], to: EvacuateTo, host: str | None
) -> None:
    uuid = await built(cloud)
    code, answer = await evacuate(cloud, uuid, body, version)
    assert code == 200
    if version < 14:
        assert len(answer["adminPass"]) == 12
    else:
        assert answer is None
    assert (await cloud.heard(InstancesChanged)).work == ("choices",)
    assert cloud.asked == ["evacuate"]
    server = (await cloud.good("GET", f"/servers/{uuid}", token="admin"))["server"]
    assert (server["status"], server["OS-EXT-STS:task_state"]) == ("REBUILD", "rebuilding")
    [move] = await moves_of(cloud, uuid)
    assert (move.type, move.status, move.source_host) == ("evacuation", "accepted", "host-1")
    said, wanted, secrets = await asked_of(cloud, uuid)
    assert (said, wanted) == (to, host)
    assert secrets is not None
    if "adminPass" in body:
        assert body["adminPass"].encode() in cloud.services.unseal(secrets)  # type: ignore[operator]
    [record] = (await cloud.good("GET", f"/servers/{uuid}/os-instance-actions"))["instanceActions"][:1]
    assert record["action"] == "evacuate"


@pytest.mark.parametrize(
    ("version", "body", "code"),
    [
        (1, {}, 400),
        (1, None, 400),
        (13, {"onSharedStorage": True}, 400),
        (13, {"onSharedStorage": "perhaps"}, 400),
        (14, SHARED, 400),
        (14, None, 400),
        (28, {"host": "host-2", "force": True}, 400),
        (29, {"force": True}, 400),
        (29, {"force": "perhaps", "host": "host-2"}, 400),
        (68, {"host": "host-2", "force": False}, 400),
        (104, {"targetState": "stopped"}, 400),
        (104, {"host": 7}, 400),
        (104, {"host": ""}, 400),
        (104, {"host": None}, 400),
        (104, {"host": "a host"}, 400),
        (104, {"adminPass": 7}, 400),
        (104, [], 400),
        (104, {"host": "nowhere"}, 404),
        (104, {"host": "host-1"}, 400),
    ],
)
async def test_bad_input_begins_nothing(cloud: ServersUnderTest, version: int, body: Any, code: int) -> None:
    uuid = await built(cloud)
    assert (await evacuate(cloud, uuid, body, version))[0] == code
    assert (await cloud.good("GET", f"/servers/{uuid}"))["server"]["status"] == "ACTIVE"
    assert await moves_of(cloud, uuid) == []
    assert cloud.asked == []


async def test_roles_and_servers(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    for token, code in (("member", 403), ("manager", 403), ("reader", 403), ("other", 404)):
        assert (await evacuate(cloud, uuid, {}, 104, token=token))[0] == code
    assert (await evacuate(cloud, "00000000-0000-4000-8000-000000000000", {}, 104))[0] == 404


async def test_states_and_tasks(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    waiting = await cloud.create()
    assert (await evacuate(cloud, waiting, {}, 104))[0] == 409
    await cloud.good("POST", f"/servers/{uuid}/action", {"lock": None})
    await cloud.good("POST", f"/servers/{uuid}/action", {"os-stop": None}, token="admin")
    assert (await evacuate(cloud, uuid, {}, 104))[0] == 200, "a lock refuses nothing, and a task is ended"
    assert (await evacuate(cloud, uuid, {}, 104))[0] == 409, "it is under way"
    for body in ({"os-resetState": {"state": "error"}}, {"reboot": {"type": "HARD"}}):
        assert (await cloud.bad("POST", f"/servers/{uuid}/action", body, token="admin"))[0] == 409


@pytest.mark.parametrize(
    ("reported", "code", "said"),
    [
        ((HOST,), 400, "Compute service of host-1 is still in use."),
        ((UNKNOWN,), 409, "It is not known whether the compute service of host-1 is down. Try again."),
        ((), 409, "It is not known whether the compute service of host-1 is down. Try again."),
    ],
)
async def test_a_host_that_may_live(tmp_path: Path, reported: Any, code: int, said: str) -> None:
    async with servers_under_test(tmp_path, routes=ROUTES, reported=reported) as cloud:
        uuid = await built(cloud)
        assert await evacuate(cloud, uuid, {}, 104) == (code, said)
        assert await moves_of(cloud, uuid) == []


async def test_where_it_needs_a_fence(tmp_path: Path) -> None:
    async with servers_under_test(tmp_path, routes=ROUTES, reported=(DOWN,), evacuate_needs_fence=True) as cloud:
        await register(cloud)
        uuid = await built(cloud)
        code, said = await evacuate(cloud, uuid, {}, 104)
        assert (code, "skep host fence host-1" in said) == (409, True)
        assert await moves_of(cloud, uuid) == []
        mark = partial(fences.mark, node=NodeUuid("node-host-1"), now=1, due_at=NOW)
        assert await cloud.services.cells[CELL1].write(mark)
        assert (await evacuate(cloud, uuid, {}, 104))[0] == 200
