"""An attempt beside the one that holds a server is undone by its number; the server stays."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import sqlalchemy as sa

from skep.contracts.cloud import running_cloud
from skep.contracts.eventually import eventually
from skep.database.cell import attempts, numbers
from skep.database.cell.attempts import NewAttempt
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import State


async def test_what_was_given_up_beside_a_server_is_undone(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        [server] = await cloud.settled([uuid])
        assert server.host is not None
        assert server.node is not None

        number = await cloud.plane.databases.cells["cell1"].write(
            partial(_given_up, uuid=uuid, node=server.node, host=server.host, now=cloud.clock.now())
        )

        async def closed() -> bool:
            return [(one.attempt, one.open) for one in await cloud.attempts(uuid)] == [(1, True), (number, False)]

        await eventually(closed, "the host has said that nothing of it is there")
        assert [guest.attempt for guest in await cloud.guests()] == [1]
        [after] = await cloud.settled([uuid])
        assert (after.state, after.attempt) == (State.ACTIVE, 1)
        await cloud.delete(uuid)
        await cloud.gone([uuid])
        await cloud.nothing_left()


def _given_up(connection: sa.Connection, uuid: InstanceUuid, node: NodeUuid, host: str, now: int) -> int:
    number = numbers.next_target(connection, uuid, 1)
    assert number is not None
    beside = NewAttempt(instance=uuid, attempt=number, node=node, host=host, now=now, role="move_target")
    attempts.begin(connection, [beside])
    assert attempts.give_up(connection, uuid, number, now)
    return number
