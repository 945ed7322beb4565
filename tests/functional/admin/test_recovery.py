"""What an operator decides about servers in doubt: refused where it doubles a guest, above all numbers heard of."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from skep.database.api.tables import instance_mappings, quota_charges
from skep.database.api.time_tables import recovering_servers
from skep.database.cell.tables import found_guests, instances, recovering_instances
from skep.database.stored import dump
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.instances import Instance, State
from tests.support.admin import CELL1, CELL2, Admin

CELLS = {CELL1: ("n1", "h1"), CELL2: ("n2", "h2")}


async def found(admin: Admin, server: Instance, cell: CellUuid, *, attempt: int, phase: str, highest: int = 0) -> None:
    """Have the host of a cell tell of a guest, or (phase none) of the attempts that it has heard of."""
    node, host = CELLS[cell]
    guest = {
        "node": node,
        "host": host,
        "instance": server.uuid,
        "attempt": attempt,
        "highest": max(attempt, highest),
        "phase": phase,
        "described": dump(server),
    }
    await admin.write_cell(found_guests.insert().values(**guest), cell=cell)


async def doubtful(admin: Admin, server: Instance, cell: CellUuid = CELL1) -> None:
    held = recovering_instances.insert().values(instance=server.uuid, doubt="guests of two attempts")
    await admin.write_cell(held, cell=cell)


async def row_of(admin: Admin, uuid: InstanceUuid, cell: CellUuid = CELL1) -> Any:
    query = sa.select(instances.c.state, instances.c.attempt, instances.c.host).where(instances.c.uuid == uuid)
    return await admin.services.cells[cell].read(lambda connection: connection.execute(query).first())


async def mapped_to(admin: Admin, uuid: InstanceUuid) -> Any:
    query = sa.select(instance_mappings.c.cell, instance_mappings.c.attempt).where(instance_mappings.c.instance == uuid)
    return await admin.services.database.read(lambda connection: connection.execute(query).first())


async def in_doubt(admin: Admin) -> list[Any]:
    decisions = (await admin.good("GET", "/recovery"))["recovery"]["decisions"]
    return [(one["kind"], one["server"]) for one in decisions]


async def decide(admin: Admin, server: Instance, **decision: object) -> tuple[int, str]:
    answer = await admin.ask("POST", f"/admin/v1/recovery/servers/{server.uuid}", json=decision)
    return answer.status_code, answer.text


async def test_a_guest_is_not_kept_beside_a_living_row_of_another_cell(admin: Admin) -> None:
    server = await admin.server(CELL1)
    await found(admin, server, CELL2, attempt=1, phase="whole")
    before = await mapped_to(admin, server.uuid)
    status, said = await decide(admin, server, keep="h2")
    assert status == 409
    assert "cell cell1" in said
    assert "undo the guest on h2" in said
    assert await row_of(admin, server.uuid, CELL2) is None
    assert await mapped_to(admin, server.uuid) == before
    assert (await row_of(admin, server.uuid)).host == "h1"


async def test_a_guest_is_kept_over_a_row_without_a_place(admin: Admin) -> None:
    """A row that was handed back says where the server was looked for last: the guest says where it is."""
    server = await admin.server(CELL1, state=State.HANDED_BACK)
    await found(admin, server, CELL2, attempt=3, phase="whole")
    status, said = await decide(admin, server, keep="h2")
    assert status == 200, said
    assert tuple(await row_of(admin, server.uuid, CELL2)) == (State.ACTIVE.value, 3, "h2")
    assert (await mapped_to(admin, server.uuid)).cell == CELL2


async def test_the_only_guest_of_a_server_that_is_known_above_is_not_destroyed(admin: Admin) -> None:
    """Its row is made anew once all hosts have told: whoever decides before would destroy a living server."""
    server = await admin.server(CELL1)
    await admin.write_cell(instances.delete().where(instances.c.uuid == server.uuid), cell=CELL1)
    await found(admin, server, CELL1, attempt=1, phase="whole")
    status, said = await decide(admin, server, undo="h1")
    assert status == 409
    assert "which the API database knows" in said
    await admin.write(instance_mappings.update().values(delete_intent_at=1))
    status, said = await decide(admin, server, undo="h1")
    assert status == 200, said


@pytest.mark.parametrize("state", [State.SCHEDULED, State.BUILDING, State.SPAWNING, State.RESCHEDULING])
@pytest.mark.parametrize("where", [CELL1, CELL2], ids=["same cell", "other cell"])
async def test_what_goes_on_is_above_all_that_hosts_have_heard_of(admin: Admin, state: State, where: CellUuid) -> None:
    server = await admin.server(CELL1, state=state, attempt=2)
    await doubtful(admin, server)
    await found(admin, server, where, attempt=6, phase="none", highest=7)
    status, said = await decide(admin, server, go_on=True)
    assert status == 200, said
    row = await row_of(admin, server.uuid)
    assert (row.state, row.attempt) == (State.RESCHEDULING.value, 7)


async def test_a_row_whose_server_is_in_another_cell_is_over_and_not_built_again(admin: Admin) -> None:
    server = await admin.server(CELL1, state=State.BUILDING, attempt=2)
    await admin.row(msgspec.structs.replace(server, state=State.ACTIVE, host="h2", node=NodeUuid("n2")), CELL2)
    await admin.write(instance_mappings.update().values(cell=CELL2))
    await doubtful(admin, server)
    status, said = await decide(admin, server, go_on=True)
    assert status == 200, said
    assert (await row_of(admin, server.uuid)).state == State.MOVED.value
    assert (await row_of(admin, server.uuid, CELL2)).state == State.ACTIVE.value
    assert (await mapped_to(admin, server.uuid)).cell == CELL2
    assert not await in_doubt(admin)


async def test_a_server_without_a_cell_goes_on_above_all_that_hosts_have_heard_of(admin: Admin) -> None:
    server = await admin.server(None)
    await admin.write(recovering_servers.insert().values(instance=server.uuid, doubt="guests on h1, h2"))
    await found(admin, server, CELL2, attempt=4, phase="none", highest=5)
    status, said = await decide(admin, server, go_on=True)
    assert status == 200, said
    assert tuple(await mapped_to(admin, server.uuid)) == (None, 5)


@pytest.mark.parametrize("decision", [{"keep": "h1"}, {"go_on": True}], ids=str)
async def test_a_row_that_is_not_mapped_is_mapped_by_the_decision(admin: Admin, decision: dict[str, object]) -> None:
    server = await admin.server(CELL1, state=State.BUILDING)
    await doubtful(admin, server)
    await admin.write(
        instance_mappings.delete().where(instance_mappings.c.instance == server.uuid),
        quota_charges.delete().where(quota_charges.c.instance == server.uuid),
    )
    if "keep" in decision:
        await found(admin, server, CELL1, attempt=1, phase="whole")
    status, said = await decide(admin, server, **decision)
    assert status == 200, said
    assert (await mapped_to(admin, server.uuid)).cell == CELL1
    assert not await in_doubt(admin)


async def test_a_guest_whose_row_is_deleted_is_not_kept(admin: Admin) -> None:
    server = await admin.server(CELL1)
    await admin.write_cell(instances.update().values(state=State.DELETED.value, deleted_at=1))
    await found(admin, server, CELL1, attempt=2, phase="whole")
    status, said = await decide(admin, server, keep="h1")
    assert (status, "is deleted in its cell: undo its guest" in said) == (409, True), said


async def test_what_is_no_id_is_said_to_be_none(admin: Admin) -> None:
    answer = await admin.ask("POST", "/admin/v1/recovery/servers/after", json={"keep": "h1"})
    assert (answer.status_code, "'after' is not the id of a server" in answer.text) == (404, True), answer.text


@pytest.mark.parametrize(
    ("attempt", "phase", "said"), [(1, "aside", "is put aside"), (2, "building", "has no guest yet")]
)
async def test_half_of_a_lost_move_is_not_kept(admin: Admin, attempt: int, phase: str, said: str) -> None:
    """As a build it would be given up at its deadline, and the server be built anew from its image."""
    server = await admin.server(CELL1)
    await doubtful(admin, server)
    await admin.write_cell(instances.update().values(launched_at=1), cell=CELL1)
    await found(admin, server, CELL1, attempt=attempt, phase=phase)
    status, answer = await decide(admin, server, keep="h1")
    assert (status, said in answer, "Moves that went back" in answer) == (409, True, True), answer
    assert tuple(await row_of(admin, server.uuid)) == (State.ACTIVE.value, 1, "h1")


@pytest.mark.parametrize("phase", ["whole", "aside"])
async def test_what_was_begun_beside_the_disks_of_a_server_is_undone_first(admin: Admin, phase: str) -> None:
    server = await admin.server(CELL1)
    await doubtful(admin, server)
    await found(admin, server, CELL1, attempt=1, phase=phase)
    await found(admin, server, CELL1, attempt=2, phase="building")
    status, answer = await decide(admin, server, undo="h1")
    assert (status, "attempt 2 on h1 is undone" in answer) == (200, True), answer


async def test_the_guest_is_kept_and_not_what_was_begun_beside_it(admin: Admin) -> None:
    server = await admin.server(CELL1)
    await doubtful(admin, server)
    await found(admin, server, CELL1, attempt=1, phase="whole")
    await found(admin, server, CELL1, attempt=2, phase="building")
    status, answer = await decide(admin, server, keep="h1")
    assert (status, "attempt 1 on h1 is the server" in answer) == (200, True), answer
    assert tuple(await row_of(admin, server.uuid)) == (State.ACTIVE.value, 1, "h1")
