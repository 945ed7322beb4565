"""The level above the cells while one of them is down: the others build, delete and sweep, and it heals by itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.sections import CellSettings, ConductorSettings, Config
from skep.contracts.cloud import PROJECT, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api import instance_mappings as mappings
from skep.database.api import server_groups
from skep.database.api.server_groups import ServerGroup
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, new_uuid
from skep.domain.instances import State
from skep.messages.to_scheduler import ListClaims, SelectDestinations
from skep.processes.servers.postgres import PostgresServer
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport

pytestmark = pytest.mark.needs_part("postgres")


def config(postgres: PostgresServer) -> Config:
    """Two cells, the second on the server."""
    conductor = ConductorSettings(lease_seconds=2.0, resend_seconds=0.2, sweep_seconds=0.2)
    cells = (CellSettings(name="cell1"), CellSettings(name="cell2", database_url=postgres.create_database("cell2")))
    return msgspec.structs.replace(quick_config(conductor=conductor), cells=cells)


async def built_in(cloud: Cloud, cell: str, count: int) -> list[InstanceUuid]:
    """Build servers in one cell, then let both cells get more."""
    await cloud.only_cell(cell)
    made = await cloud.create(count)
    assert {one.state for one in await cloud.settled(made)} == {State.ACTIVE}
    await cloud.only_cell(None)
    return made


def go_down(postgres: PostgresServer, how: str) -> None:
    postgres.pause() if how == "halted" else postgres.kill()


def come_back(postgres: PostgresServer, how: str) -> None:
    postgres.resume() if how == "halted" else postgres.start()


@pytest.mark.parametrize("how", ["halted", "gone"])
async def test_others_build_and_delete_meanwhile(how: str, tmp_path: Path, postgres: PostgresServer) -> None:
    async with running_cloud(tmp_path, config(postgres), cells=2, hosts=2) as cloud:
        here, there = await built_in(cloud, "cell1", 2), await built_in(cloud, "cell2", 3)
        await cloud.no_claims()
        go_down(postgres, how)
        try:
            new = await cloud.create(4)
            assert {one.state for one in await cloud.settled(new, seconds=40)} == {State.ACTIVE}
            assert {await cloud.cell_of(uuid) for uuid in new} == {"cell1"}
            for uuid in (*there, *here):
                await cloud.delete(uuid)
            await cloud.gone(here)
            assert len(await cloud.guests()) == len(new) + len(there), "the guests of a cell that is down stay"
        finally:
            come_back(postgres, how)
        await cloud.gone(there)
        for uuid in new:
            await cloud.delete(uuid)
        await cloud.nothing_left()


class Watching(MemoryTransport):
    """Remembers the rules of groups that schedulers were asked to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: list[GroupRule] = []

    async def call(self, address: Any, message: Any, **more: Any) -> Any:
        if isinstance(message, SelectDestinations) and message.spec.group is not None:
            self.rules.append(message.spec.group)
        return await super().call(address, message, **more)


async def test_a_selection_names_the_cells_that_hold_members(tmp_path: Path) -> None:
    transport = Watching()
    async with running_cloud(tmp_path, cells=2, hosts=1, transport=transport) as cloud:
        group = ServerGroup(
            uuid=GroupUuid(new_uuid()), name="g", policy="anti-affinity", project_id=PROJECT, user_id=USER, created_at=1
        )
        await cloud.plane.databases.api.write(partial(server_groups.add, group=group, most=-1))
        [member] = await built_in(cloud, "cell2", 1)
        await cloud.plane.databases.api.write(
            partial(server_groups.add_members, uuid=group.uuid, instances=[member], most=-1)
        )
        await cloud.settled(await cloud.create(group=group.rule()))
        held = await cloud.plane.databases.api.read(partial(mappings.get, instance=member))
        assert held is not None
        epoch = (await transport.call(SCHEDULER, ListClaims())).epoch
        assert [(rule.cells, rule.epoch) for rule in transport.rules] == [((held.cell,), epoch)]


async def test_claims_of_a_cell_that_cannot_be_read_stay(tmp_path: Path, postgres: PostgresServer) -> None:
    async with running_cloud(tmp_path, config(postgres), cells=2, hosts=1) as cloud:
        rule = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")
        await cloud.only_cell("cell2")
        [member] = await cloud.settled(await cloud.create(group=rule))
        assert member.state is State.ACTIVE
        await cloud.only_cell(None)
        go_down(postgres, "halted")
        try:
            new = await cloud.create(group=rule)
            assert [one.state for one in await cloud.settled(new, seconds=40)] == [State.ACTIVE]
            assert await cloud.cell_of(new[0]) == "cell1"
        finally:
            come_back(postgres, "halted")

        async def read_again() -> bool:
            return (found := await cloud.find(member.uuid)) is not None and found.state is State.ACTIVE

        await eventually(read_again, "the server is as it was")
        last = await cloud.settled(await cloud.create(group=rule))
        assert [one.state for one in last] == [State.ERROR], "both hosts hold a member: no slot was lost"
