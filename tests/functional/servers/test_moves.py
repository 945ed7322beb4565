"""What the API asks before a move: states, hosts, roles, bodies; and what confirm and revert need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.api.routes import ROUTES
from skep.database.cell import abandoned_moves, agents, cold_moves, move_steps
from skep.domain.builds import Placed
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import PowerState, State
from skep.messages.to_cell_conductor import InstancesChanged
from skep_lab.compute_api.servers import CELL1, OWNER, ServersUnderTest, assignment_on, servers_under_test

MOVER = ("MoveStep", "RunAction")
NOW = 2**50
MANAGER = {"token": "manager", "version": 104}
ADMIN = {"token": "admin", "version": 104}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, routes=ROUTES) as opened:
        await register(opened, "host-1", MOVER, ("move",))
        await register(opened, "host-2", MOVER, ("move",))
        yield opened


async def register(
    cloud: ServersUnderTest, host: str, understands: tuple[str, ...], capabilities: tuple[str, ...]
) -> None:
    identity = AgentIdentity(node=NodeUuid(f"node-{host}"), host=host, process=Incarnation(f"p-{host}"))
    await cloud.services.cells[CELL1].write(
        partial(agents.register, identity=identity, now=1, understands=understands, capabilities=capabilities)
    )


async def built(cloud: ServersUnderTest) -> str:
    uuid = await cloud.create()
    await cloud.build(uuid)
    return uuid


async def act(cloud: ServersUnderTest, uuid: str, body: dict[str, Any], **more: Any) -> tuple[int, str]:
    response = await cloud.ask("POST", f"/servers/{uuid}/action", body, **more)
    if response.is_success:
        assert response.content == b""
        return response.status_code, ""
    (fault,) = response.json().values()
    return response.status_code, fault["message"]


async def status(cloud: ServersUnderTest, uuid: str) -> str:
    return str((await cloud.good("GET", f"/servers/{uuid}"))["server"]["status"])


async def carry_out(cloud: ServersUnderTest, host: str = "host-2") -> None:
    """Move the server that waits for it, as a conductor and two hosts do."""

    def unit(connection: sa.Connection) -> None:
        [waiting] = cold_moves.take(connection, OWNER, NOW, 5)
        spec = waiting.work.spec
        chosen = assignment_on(host, CELL1, spec)
        decision = Placed(node=chosen.node, host=host, cell=CELL1, epoch="e")
        assert cold_moves.placed(connection, waiting, decision, NOW)
        known = waiting.move
        for step, attempt, where in (
            ("prepare", waiting.attempt, host),
            ("put_aside", known.source_attempt, known.source_host),
            ("transfer", waiting.attempt, host),
            ("take_up", waiting.attempt, host),
        ):
            told, running = known.context.request_id, PowerState.RUNNING
            assert move_steps.done(connection, known.uuid, step, attempt, where, running, NOW, 3, task_id=told)

    await cloud.services.cells[CELL1].write(unit)


@pytest.mark.parametrize("version", [1, 55, 56, 104])
async def test_a_move_and_its_confirmation(cloud: ServersUnderTest, version: int) -> None:
    uuid = await built(cloud)
    assert await act(cloud, uuid, {"migrate": None}, token="manager", version=version) == (202, "")
    assert (await cloud.heard(InstancesChanged)).work == ("choices",)
    assert await status(cloud, uuid) == "RESIZE"
    assert (await act(cloud, uuid, {"os-stop": None}))[0] == 409
    await carry_out(cloud)
    assert await status(cloud, uuid) == "VERIFY_RESIZE"
    assert (await act(cloud, uuid, {"migrate": None}, token="manager"))[0] == 409
    assert await act(cloud, uuid, {"confirmResize": None}, version=version) == (204, "")
    assert await status(cloud, uuid) == "ACTIVE"
    assert (await act(cloud, uuid, {"confirmResize": None}))[0] == 409


async def test_a_revert_begins_and_refuses_what_would_cross_it(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, {"revertResize": None}))[0] == 409
    await act(cloud, uuid, {"migrate": None}, token="manager")
    for body in ({"os-resetState": {"state": "error"}}, {"reboot": {"type": "HARD"}}, {"revertResize": None}):
        assert (await act(cloud, uuid, body, token="admin"))[0] == 409
    await carry_out(cloud)
    assert await act(cloud, uuid, {"revertResize": None}) == (202, "")
    assert await status(cloud, uuid) == "REVERT_RESIZE"
    for body in ({"confirmResize": None}, {"revertResize": None}):
        assert (await act(cloud, uuid, body))[0] == 409


async def test_a_host_may_be_named_by_admins(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    named = {"migrate": {"host": "host-1"}}
    assert (await act(cloud, uuid, named, **MANAGER))[0] == 403
    assert await act(cloud, uuid, named, **ADMIN) == (400, "The target host can't be the same one.")
    code, said = await act(cloud, uuid, {"migrate": {"host": "nowhere"}}, **ADMIN)
    assert (code, "nowhere" in said) == (400, True)
    assert await status(cloud, uuid) == "ACTIVE", "nothing was begun"
    assert (await act(cloud, uuid, {"migrate": {"host": 7}}, **ADMIN))[0] == 400
    assert (await act(cloud, uuid, {"migrate": {"host": "host-1", "force": True}}, **ADMIN))[0] == 400
    assert await act(cloud, uuid, {"migrate": {"host": None}}, **MANAGER) == (202, ""), "null names none"


async def test_roles(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    assert (await act(cloud, uuid, {"migrate": None}))[0] == 403
    assert (await act(cloud, uuid, {"migrate": None}, token="other"))[0] == 404
    assert (await act(cloud, uuid, {"confirmResize": None}, token="reader"))[0] == 403


@pytest.mark.parametrize("cannot", ["agent", "driver"])
async def test_a_host_that_takes_part_in_no_move(cloud: ServersUnderTest, cannot: str) -> None:
    uuid = await built(cloud)
    takes = ("RunAction",) if cannot == "agent" else MOVER
    await register(cloud, "host-1", takes, () if cannot == "driver" else ("move",))
    code, said = await act(cloud, uuid, {"migrate": None}, token="manager")
    assert (code, "`move`" in said) == (409, True)
    assert await status(cloud, uuid) == "ACTIVE"


async def test_a_server_that_was_reset_after_a_move_has_none_to_confirm(cloud: ServersUnderTest) -> None:
    uuid = await built(cloud)
    await act(cloud, uuid, {"migrate": None}, token="manager")
    await carry_out(cloud)
    assert (await act(cloud, uuid, {"os-resetState": {"state": "active"}}, token="admin"))[0] == 202

    def unit(connection: sa.Connection) -> int:
        return abandoned_moves.abandon(connection, NOW, 5)[0]

    assert await cloud.services.cells[CELL1].write(unit) == 1
    assert await status(cloud, uuid) == State.ACTIVE.name
