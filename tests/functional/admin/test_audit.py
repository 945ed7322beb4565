"""The audit finds each kind of difference, with evidence, and is silent about a cloud that is in order."""

from __future__ import annotations

import msgspec

from skep.audit.difference import Difference, confirmed
from skep.audit.look import look_once
from skep.database.api import cells
from skep.database.api.tables import build_requests, instance_mappings, quota_charges, quota_sums
from skep.database.cell.tables import attempts, instances, migrations
from skep.domain.cells import Cell
from skep.domain.ids import CELL0, CellUuid, InstanceUuid, new_uuid
from skep.domain.instances import State
from tests.support.admin import CELL1, CELL2, NOW, Admin, claim_of, host_state
from tests.support.admin_tokens import PROJECT

mapping, row = instance_mappings.c, instances.c


async def test_a_cloud_in_order(admin: Admin) -> None:
    running = await admin.server(CELL1)
    waiting = await admin.server(None)
    await admin.server(CELL0, state=State.ERROR)
    await admin.server(CELL2, state=State.SPAWNING)
    on_its_way = claim_of(waiting, attempt=0)
    admin.scheduler.states = [host_state("h1", CELL1, claims=(claim_of(running), on_its_way))]
    answer = (await admin.good("GET", "/audit"))["audit"]
    assert (answer["differences"], answer["counts"], answer["unread"]) == ([], {}, [])
    assert answer["checked"] == {"cells": 3, "claims": 2, "servers": 3, "slots": 0}


async def test_mapping_without_request(admin: Admin) -> None:
    server = await admin.server(None)
    await admin.write(build_requests.delete())
    assert await admin.audit() == {"mapping_without_request": [(server.uuid, {"mapping": {"attempt": 0}})]}


async def test_request_without_mapping(admin: Admin) -> None:
    server = await admin.server(None)
    await admin.row(msgspec.structs.replace(server, state=State.ACTIVE), CELL1)
    await admin.write(instance_mappings.update().values(cell=CELL1))
    (found,) = (await admin.audit())["request_without_mapping"]
    assert found == (server.uuid, {"revision": 0, "mapping": {"cell": CELL1, "deleted_at": None}})


async def test_mapping_without_row(admin: Admin) -> None:
    server = await admin.server(CELL1)
    await admin.write_cell(instances.delete(), attempts.delete())
    assert await admin.audit() == {"mapping_without_row": [(server.uuid, {"cell": "cell1"})]}


async def test_rows_whose_server_is_elsewhere(admin: Admin) -> None:
    moved, gone = await admin.server(CELL1), await admin.server(CELL1)
    await admin.row(moved, CELL2)
    await admin.write(instance_mappings.delete().where(mapping.instance == gone.uuid))
    await admin.write(quota_charges.delete().where(quota_charges.c.instance == gone.uuid))
    await admin.write(quota_sums.update().values(instances=1, cores=1, ram=512))
    found = dict((await admin.audit())["row_without_mapping"])
    assert found[moved.uuid]["row"]["cell"] == "cell2"
    assert found[moved.uuid]["mapping"] == {"cell": CELL1, "attempt": 0, "deleted_at": None}
    assert found[gone.uuid]["mapping"] is None


async def test_staged_rows_left_behind(admin: Admin) -> None:
    server = await admin.server(None)
    await admin.row(msgspec.structs.replace(server, state=State.STAGED, attempt=2), CELL1)
    await admin.write(instance_mappings.update().values(attempt=2))
    assert await admin.audit() == {}
    await admin.write(instance_mappings.update().values(attempt=3))
    ((subject, evidence),) = (await admin.audit())["staged_elsewhere"]
    assert (subject, evidence["row"]["attempt"], evidence["mapping"]["attempt"]) == (server.uuid, 2, 3)


async def test_open_attempt_of_deleted(admin: Admin) -> None:
    deleted, purged = await admin.server(CELL1), await admin.server(CELL1)
    await admin.write_cell(
        instances.update().where(row.uuid == deleted.uuid).values(deleted_at=NOW, state="deleted"),
        instances.delete().where(row.uuid == purged.uuid),
    )
    found = dict((await admin.audit())["open_attempt_of_deleted"])
    assert found[deleted.uuid] == {"cell": "cell1", "attempt": 1, "host": "h1", "node": "n1", "deleted_at": NOW}
    assert found[purged.uuid]["deleted_at"] is None


async def test_claims_that_nothing_names(admin: Admin) -> None:
    server = await admin.server(CELL1)
    old, unknown = claim_of(server, attempt=0), msgspec.structs.replace(claim_of(server), instance=InstanceUuid("x"))
    admin.scheduler.states = [host_state("h1", CELL1, claims=(claim_of(server), old, unknown))]
    found = (await admin.audit())["claim_unnamed"]
    assert sorted((subject, evidence["attempt"]) for subject, evidence in found) == sorted([(server.uuid, 0), ("x", 1)])
    assert found[0][1]["host"] == "h1"


async def test_a_claim_whose_move_is_being_chosen_is_no_leftover(admin: Admin) -> None:
    server = await admin.server(CELL1)
    admin.scheduler.states = [host_state("h1", CELL1, claims=(claim_of(server), claim_of(server, attempt=2)))]
    await admin.write_cell(
        migrations.insert().values(
            uuid=new_uuid(),
            instance=server.uuid,
            project_id=PROJECT,
            user_id="user",
            type="migration",
            status="pre-migrating",
            source_host="h1",
            source_node="node-h1",
            source_attempt=1,
            dest_attempt=2,
            old_flavor="1",
            new_flavor="1",
            was="active",
            step="select",
            step_at=NOW,
            created_at=NOW,
        )
    )
    assert await admin.audit() == {}
    await admin.write_cell(migrations.update().values(dest_attempt=3))
    assert set(await admin.audit()) == {"claim_unnamed"}


async def test_a_cell_that_cannot_be_read_keeps_its_claims(admin: Admin) -> None:
    server = await admin.server(CELL1)
    admin.scheduler.states = [host_state("h1", CELL1, claims=(claim_of(server, attempt=9),))]
    await admin.write_cell(instances.delete(), attempts.delete())
    assert set(await admin.audit()) == {"claim_unnamed", "mapping_without_row"}
    with admin.services.cells[CELL1].engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE attempts")
    answer = (await admin.good("GET", "/audit"))["audit"]
    assert "claim_unnamed" not in answer["counts"]
    assert answer["unread"][0].startswith("cell cell1: ")


async def test_a_cell_that_this_process_does_not_know_is_named(admin: Admin) -> None:
    other = Cell(uuid=CellUuid("33333333-3333-4333-8333-333333333333"), name="cell3")
    await admin.services.database.write(lambda connection: cells.add(connection, other, NOW))
    answer = (await admin.good("GET", "/audit"))["audit"]
    assert answer["unread"] == ["cell cell3: this process does not know the cell"]
    assert (await admin.good("GET", "/cells/cell3"))["cell"]["reachable"] is False


async def test_without_a_scheduler_claims_are_not_judged(admin: Admin) -> None:
    assert admin.scheduler.subscription is not None
    await admin.scheduler.subscription.close()
    answer = (await admin.good("GET", "/audit"))["audit"]
    assert [one.startswith("scheduler: ") for one in answer["unread"]] == [True]


async def test_quota(admin: Admin) -> None:
    charged, uncharged = await admin.server(CELL1), await admin.server(CELL1)
    ghost = new_uuid()
    await admin.write(
        quota_charges.update().where(quota_charges.c.instance == uncharged.uuid).values(instance=ghost),
        quota_sums.update().values(cores=7),
    )
    found = await admin.audit()
    assert found == {
        "quota_sum": [
            (
                PROJECT,
                {
                    "sum": {"instances": 2, "cores": 7, "ram": 1024},
                    "charges": {"instances": 2, "cores": 2, "ram": 1024},
                },
            )
        ],
        "quota_charge_without_server": [
            (ghost, {"project": PROJECT, "charge": {"instances": 1, "cores": 1, "ram": 512}})
        ],
        "server_without_quota_charge": [(uncharged.uuid, {"project": PROJECT, "cell": CELL1})],
    }
    assert charged.uuid != uncharged.uuid


async def test_what_only_one_look_saw_was_work_under_way(admin: Admin) -> None:
    server = await admin.server(CELL1)
    await admin.write_cell(instances.delete(), attempts.delete())
    first = await look_once(admin.services.sources)
    await admin.row(server, CELL1)
    second = await look_once(admin.services.sources)
    assert len(first.differences) == 1
    assert confirmed(first.differences, second.differences) == ()


def test_a_difference_with_other_evidence_is_another() -> None:
    before = Difference(kind="quota_sum", subject="p", evidence={"sum": 1})
    after = Difference(kind="quota_sum", subject="p", evidence={"sum": 2})
    assert confirmed([before], [after]) == ()
    assert confirmed([before, after], [after]) == (after,)
