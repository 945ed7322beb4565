"""Why a server is where it is: everything for admins, counts for owners, nothing for others."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from skep.database.api import flavors
from skep.database.api.tables import instance_mappings
from skep.database.cell.tables import attempts
from skep.domain.ids import CELL0
from skep.domain.instances import State
from tests.support.admin import CELL1, CELL2, FLAVOR, NOW, Admin


async def test_an_admin_sees_hosts_and_an_owner_counts(admin: Admin) -> None:
    server = await admin.server(CELL1)
    path = f"/servers/{server.uuid}/placement"
    seen = (await admin.good("GET", path))["placement"]
    assert (seen["cell"], seen["host"], seen["status"], seen["waiting"]) == ("cell1", "h1", "ACTIVE", False)
    (attempt,) = seen["attempts"]
    assert (attempt["attempt"], attempt["host"], attempt["under_way"]) == (1, "h1", True)
    assert attempt["explanation"]["rejected"] == {"h1": "capacity", "h2": "availability zone nova"}
    assert attempt["explanation"]["nearest"][0]["host"] == "h1"
    owned = await admin.ask("GET", f"/admin/v1{path}", token="owner")
    assert owned.status_code == 200
    (attempt,) = owned.json()["placement"]["attempts"]
    assert attempt["explanation"]["stages"] == [
        {"stage": "availability zone nova", "left": 4},
        {"stage": "capacity", "left": 0},
    ]
    assert attempt["explanation"]["nearest"] == [{"stage": "capacity", "lacks": {"MEMORY_MB": 1024}}]
    assert '"h1"' not in owned.text
    assert '"n1"' not in owned.text
    assert (await admin.ask("GET", f"/admin/v1{path}", token="stranger")).status_code == 404


@pytest.mark.parametrize("token", ["admin", "owner"])
async def test_an_attempt_says_what_it_is_for(admin: Admin, token: str) -> None:
    server = await admin.server(CELL1)
    path = f"/admin/v1/servers/{server.uuid}/placement"
    for role in ("build", "move_target"):
        await admin.write_cell(attempts.update().values(role=role))
        (attempt,) = (await admin.ask("GET", path, token=token)).json()["placement"]["attempts"]
        assert attempt["role"] == role


async def test_what_a_server_asks_for_is_what_placement_looks_for(admin: Admin) -> None:
    server = await admin.server(
        CELL0, state=State.ERROR, flavor=replace(FLAVOR, extra_specs={"hw:cpu_policy": "dedicated"})
    )
    seen = (await admin.good("GET", f"/servers/{server.uuid}/placement"))["placement"]
    assert seen["asks_for"] == {"PCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}


async def test_a_server_without_a_host(admin: Admin) -> None:
    server = await admin.server(CELL0, state=State.ERROR)
    seen = (await admin.good("GET", f"/servers/{server.uuid}/placement"))["placement"]
    assert (seen["cell"], seen["host"]) == ("cell0", None)
    (attempt,) = seen["attempts"]
    assert (attempt["outcome"], attempt["host"]) == ("no_valid_host", None)
    assert attempt["explanation"]["summary"].startswith("6 hosts considered; 4 left by availability zone nova")


async def test_a_server_that_waits(admin: Admin) -> None:
    server = await admin.server(None)
    seen = (await admin.good("GET", f"/servers/{server.uuid}/placement"))["placement"]
    assert (seen["waiting"], seen["status"], seen["cell"], seen["attempts"]) == (True, "BUILD", None, [])


async def test_a_cell_that_this_process_does_not_know(admin: Admin) -> None:
    server = await admin.server(CELL1)
    row = instance_mappings.c.instance == server.uuid
    await admin.write(instance_mappings.update().where(row).values(cell="33333333-3333-4333-8333-333333333333"))
    response = await admin.ask("GET", f"/admin/v1/servers/{server.uuid}/placement")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"


async def test_a_dry_run_by_name_and_by_id(admin: Admin) -> None:
    answer = await admin.good("POST", "/placement/dry-run", json={"flavor": "m1.tiny", "count": 2, "cell": "cell2"})
    assert [(one["decision"], one["host"], one["cell"]) for one in answer["decisions"]] == [
        ("placed", "h1", "cell1")
    ] * 2
    assert admin.scheduler.asked[-1].cell == CELL2
    admin.scheduler.fits = False
    (refused,) = (await admin.good("POST", "/placement/dry-run", json={"flavor": "1"}))["decisions"]
    assert (refused["decision"], refused["explanation"]["considered"]) == ("no_valid_host", 6)
    admin.scheduler.asserted = set()
    (waiting,) = (await admin.good("POST", "/placement/dry-run", json={"flavor": "1", "cell": "cell1"}))["decisions"]
    assert waiting == {"decision": "not_ready", "reason": "the cell has not asserted its claims"}


@pytest.mark.parametrize(
    ("specs", "devices"),
    [({"pci_passthrough:alias": "gpu:2"}, {"gpu": 2}), ({"a": "b"}, {})],
)
async def test_a_dry_run_asks_for_the_devices_of_the_flavor(
    admin: Admin, specs: dict[str, str], devices: dict[str, int]
) -> None:
    await with_flavor(admin, specs)
    await admin.good("POST", "/placement/dry-run", json={"flavor": "inside"})
    assert {one.alias: one.count for one in admin.scheduler.asked[-1].spec.devices} == devices


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pci_passthrough:alias", "tpu:1"),
        ("pci_passthrough:alias", "gpu:00000000099999999999999999999999"),
        ("hw:cpu_thread_policy", "require"),
        ("resources:CUSTOM_A", "9" * 100),
    ],
)
async def test_a_dry_run_names_the_extra_spec_with_which_no_server_can_be(admin: Admin, key: str, value: str) -> None:
    await with_flavor(admin, {key: value})
    refused = await admin.ask("POST", "/admin/v1/placement/dry-run", json={"flavor": "inside"})
    assert refused.status_code == 400
    assert key in refused.text


async def with_flavor(admin: Admin, extra_specs: dict[str, str]) -> None:
    flavor = replace(FLAVOR, flavorid="2", name="inside", extra_specs=extra_specs)
    await admin.services.database.write(partial(flavors.add, new=flavor, now=NOW))
