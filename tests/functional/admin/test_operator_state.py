"""Cells and hosts: what is shown, and what an operator's change does."""

from __future__ import annotations

import dataclasses
from functools import partial

import httpx
import msgspec
import pytest
import sqlalchemy as sa

from skep.admin.app import AdminApi
from skep.cli.doctor import _clocks, clock_line
from skep.cli.host import state_of
from skep.database import leases as lease_rows
from skep.database.api.tables import leases as leases_above
from skep.database.cell import agents, fences
from skep.database.cell.tables import leases
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import CELL0, Incarnation, NodeUuid
from skep.domain.instances import State
from skep.messages.to_cell_conductor import InstancesChanged
from skep.transport.base import cell_conductor
from tests.support.admin import CELL1, Admin, claim_of, host_state


async def test_cells_with_their_servers_and_hosts(admin: Admin) -> None:
    await admin.server(CELL1)
    await admin.server(CELL1)
    await admin.server(CELL0, state=State.ERROR)
    cells = {cell["name"]: cell for cell in (await admin.good("GET", "/cells"))["cells"]}
    assert list(cells) == ["cell0", "cell1", "cell2"]
    assert cells["cell1"] == {
        "name": "cell1",
        "uuid": CELL1,
        "disabled": False,
        "deleting_at": None,
        "hosts": 1,
        "hosts_up": 1,
        "servers": {"active": 2},
        "servers_mapped": 2,
        "reachable": True,
        "database_url": "",
        "transport_url": "",
    }
    assert cells["cell0"]["servers"] == {"error": 1}
    assert (await admin.good("GET", f"/cells/{CELL1}"))["cell"] == cells["cell1"]


async def test_a_disabled_cell_is_stored_published_and_told(admin: Admin) -> None:
    changed = await admin.good("PATCH", "/cells/cell1", json={"disabled": True})
    assert changed["cell"]["disabled"] is True
    (published,) = admin.scheduler.published
    assert {wish.name: wish.disabled for wish in published.cells} == {"cell1": True, "cell2": False}
    assert len(admin.scheduler.nudged) == 1


async def test_hosts_join_rows_and_states(admin: Admin) -> None:
    server = await admin.server(CELL1)
    admin.scheduler.states[0] = host_state("h1", CELL1, claims=(claim_of(server),))
    first, second = (await admin.good("GET", "/hosts"))["hosts"]
    assert (first["host"], first["cell"], first["state"], first["claims"]) == ("h1", "cell1", "up", 1)
    assert first["resources"]["VCPU"] == {"capacity": 8, "used": 2, "claimed": 1, "free": 5}
    assert first["resources"]["MEMORY_MB"]["capacity"] == 3584
    assert second["host"] == "h2"
    assert [host["host"] for host in (await admin.good("GET", "/hosts?cell=cell2"))["hosts"]] == ["h2"]
    shown = (await admin.good("GET", "/hosts/h1"))["host"]
    assert shown["claimed_by"] == [{"instance": server.uuid, "attempt": 1, "resources": {"VCPU": 1}}]


async def test_how_a_host_is(admin: Admin) -> None:
    admin.scheduler.states = [host_state("h1", CELL1, up=False)]
    assert [host["state"] for host in (await admin.good("GET", "/hosts"))["hosts"]] == ["silent", "unreported"]
    await admin.good("PATCH", "/hosts/h1", json={"forced_down": True})
    assert admin.scheduler.subscription is not None
    await admin.scheduler.subscription.close()
    assert [host["state"] for host in (await admin.good("GET", "/hosts"))["hosts"]] == ["down", "unknown"]


@pytest.mark.parametrize("name", ["h1", "n1"])
async def test_a_host_is_disabled_with_a_reason_and_enabled_without(admin: Admin, name: str) -> None:
    disabled = await admin.good("PATCH", f"/hosts/{name}", json={"disabled": True, "disabled_reason": "fan"})
    assert (disabled["host"]["disabled"], disabled["host"]["disabled_reason"]) == (True, "fan")
    reworded = await admin.good("PATCH", f"/hosts/{name}", json={"disabled_reason": "new fan"})
    assert reworded["host"]["disabled_reason"] == "new fan"
    forced = await admin.good("PATCH", f"/hosts/{name}", json={"forced_down": True})
    assert (forced["host"]["disabled_reason"], forced["host"]["forced_down"]) == ("new fan", True)
    enabled = await admin.good("PATCH", f"/hosts/{name}", json={"disabled": False})
    assert (enabled["host"]["disabled"], enabled["host"]["disabled_reason"]) == (False, None)
    wishes = [next(wish for wish in one.hosts if wish.host == "h1") for one in admin.scheduler.published]
    assert [(wish.disabled, wish.forced_down) for wish in wishes] == [
        (True, False),
        (True, False),
        (True, True),
        (False, True),
    ]


async def known(admin: Admin, host: str, node: str) -> None:
    """Have the cell know a host, as if its agent had registered."""
    identity = AgentIdentity(node=NodeUuid(node), host=host, process=Incarnation("first"))
    await admin.services.cells[CELL1].write(partial(agents.register, identity=identity, now=1))


def silent(admin: Admin, *, omitted: bool | None) -> None:
    """Say what a scheduler knows of the silence of `h1`."""
    admin.scheduler.states = [msgspec.structs.replace(host_state("h1", CELL1), up=False, silent=omitted)]


async def test_a_fence_that_is_withdrawn_has_what_was_given_up_undone_at_once(admin: Admin) -> None:
    told: list[InstancesChanged] = []

    async def hear(message: InstancesChanged, _context: object) -> None:
        told.append(message)

    await known(admin, "h1", "n1")
    await admin.good("PATCH", "/hosts/h1", json={"forced_down": True})
    silent(admin, omitted=True)
    await admin.good("POST", "/hosts/h1/fence")
    subscription = await admin.services.transport.serve(cell_conductor(CELL1), {InstancesChanged: hear})
    await admin.good("DELETE", "/hosts/h1/fence")
    await subscription.close()
    assert [message.work for message in told] == [("fences", "deletes")]


async def test_a_dead_host_is_fenced_and_its_cell_is_told(admin: Admin) -> None:
    told: list[InstancesChanged] = []

    async def hear(message: InstancesChanged, _context: object) -> None:
        told.append(message)

    subscription = await admin.services.transport.serve(cell_conductor(CELL1), {InstancesChanged: hear})
    await known(admin, "h1", "n1")
    await admin.good("PATCH", "/hosts/h1", json={"forced_down": True})
    silent(admin, omitted=True)
    before = (await admin.good("GET", "/hosts/h1"))["host"]
    assert (before["fenced_at"], before["fence_due_at"], before["fence_in_effect"]) == (None, None, False)
    first = (await admin.good("POST", "/hosts/h1/fence"))["host"]
    assert first["fenced_at"] < first["fence_due_at"]
    assert first["fence_in_effect"] is False
    [listed, *others] = (await admin.good("GET", "/hosts"))["hosts"]
    assert (listed["host"], listed["fenced_at"]) == ("h1", first["fenced_at"])
    assert {other["fenced_at"] for other in others} <= {None}
    assert state_of(listed) == "down, fenced"
    assert (await admin.good("POST", "/hosts/h1/fence"))["host"] == first
    await subscription.close()
    assert len(told) == 2
    [fenced] = await admin.services.cells[CELL1].read(fences.fenced)
    assert (fenced.host, fenced.in_effect) == ("h1", False)


async def test_a_fence_is_taken_back_until_it_has_taken_effect(admin: Admin) -> None:
    await known(admin, "h1", "n1")
    refused = await admin.ask("DELETE", "/admin/v1/hosts/h1/fence")
    assert (refused.status_code, refused.json()["error"]["message"]) == (409, "Host h1 is not fenced.")
    await admin.good("PATCH", "/hosts/h1", json={"forced_down": True})
    silent(admin, omitted=True)
    await admin.good("POST", "/hosts/h1/fence")
    assert (await admin.good("DELETE", "/hosts/h1/fence"))["host"]["fenced_at"] is None
    await admin.good("POST", "/hosts/h1/fence")
    assert await admin.services.cells[CELL1].write(partial(fences.take_effect, node=NodeUuid("n1"), now=2**62))
    refused = await admin.ask("DELETE", "/admin/v1/hosts/h1/fence")
    assert refused.status_code == 409
    assert "has taken effect" in refused.json()["error"]["message"]
    assert (await admin.good("GET", "/hosts/h1"))["host"]["fence_in_effect"] is True
    assert (await admin.ask("DELETE", "/admin/v1/hosts/h9/fence")).status_code == 404


async def test_a_host_that_may_live_is_not_fenced(admin: Admin) -> None:
    await known(admin, "h1", "n1")
    assert (await admin.ask("POST", "/admin/v1/hosts/h9/fence")).status_code == 404
    allowed = await admin.ask("POST", "/admin/v1/hosts/h1/fence")
    assert allowed.status_code == 409, "it is not forced down"
    await admin.good("PATCH", "/hosts/h1", json={"forced_down": True})
    silent(admin, omitted=False)
    for body in ({}, {"although_unknown": True}):
        living = await admin.ask("POST", "/admin/v1/hosts/h1/fence", json=body)
        assert living.status_code == 409
        assert "is heard by its cell" in living.json()["error"]["message"]
    assert await admin.services.cells[CELL1].read(fences.fenced) == []


async def test_a_host_of_which_nobody_can_tell_is_fenced_only_when_that_is_said(admin: Admin) -> None:
    await known(admin, "h1", "n1")
    await admin.good("PATCH", "/hosts/h1", json={"forced_down": True})

    async def refused() -> None:
        answer = await admin.ask("POST", "/admin/v1/hosts/h1/fence")
        assert answer.status_code == 409
        assert "although_unknown" in answer.json()["error"]["message"]

    silent(admin, omitted=None)
    await refused()
    admin.scheduler.states = []
    await refused()
    assert admin.scheduler.subscription is not None
    await admin.scheduler.subscription.close()
    await refused()
    assert await admin.services.cells[CELL1].read(fences.fenced) == []
    wrong = await admin.ask("POST", "/admin/v1/hosts/h1/fence", json={"although_unknown": "yes"})
    assert wrong.status_code == 400
    assert "although_unknown" in wrong.json()["error"]["message"]
    done = await admin.good("POST", "/hosts/h1/fence", json={"although_unknown": True})
    assert done["host"]["fenced_at"] is not None


async def test_a_change_is_kept_while_no_scheduler_answers(admin: Admin) -> None:
    assert admin.scheduler.subscription is not None
    await admin.scheduler.subscription.close()
    changed = await admin.good("PATCH", "/hosts/h1", json={"disabled": True})
    assert (changed["host"]["disabled"], changed["host"]["state"]) == (True, "unknown")
    assert len(admin.scheduler.nudged) == 1


async def test_clocks_of_processes_that_are_off_are_told(admin: Admin) -> None:
    now = admin.services.clock.now()

    def conducts(connection: sa.Connection) -> None:
        lease_rows.renew(connection, leases, Incarnation("one"), "cell_conductor", now + 10**7, "m1", ahead=3600.0)
        lease_rows.renew(connection, leases, Incarnation("old"), "cell_conductor", now + 10**7, "m2")
        lease_rows.renew(connection, leases, Incarnation("dead"), "cell_conductor", now - 10**7, "m3", ahead=9.0)

    await admin.services.cells[CELL1].write(conducts)
    told = (await admin.good("GET", "/clocks"))["clocks"]
    assert {"process": "api", "host": "", "database": "api", "seconds_ahead": 0.0} in told
    off = [one for one in told if one["seconds_ahead"]]
    assert off == [{"process": "cell_conductor", "host": "m1", "database": "cell1", "seconds_ahead": 3600.0}]
    assert clock_line(off[0]) == "cell_conductor on m1 is 3600 s ahead of the database of cell1"
    [check] = _clocks(Told(told))  # type: ignore[arg-type]  # it is only asked for this
    assert (check.verdict, check.message) == ("warning", clock_line(off[0]))
    [check] = _clocks(Told([]))  # type: ignore[arg-type]  # as above
    assert check.verdict == "good"


async def test_each_api_process_is_judged_not_only_the_one_that_answers(admin: Admin) -> None:
    now = admin.services.clock.now()
    own = Incarnation("own")
    services = dataclasses.replace(admin.services, owner=own, runs_on="m1")

    def serve(connection: sa.Connection) -> None:
        lease_rows.renew(connection, leases_above, own, "api", now + 10**7, "m1", ahead=1.0)
        lease_rows.renew(connection, leases_above, Incarnation("two"), "api", now + 10**7, "m2", ahead=-3600.0)
        lease_rows.renew(connection, leases_above, Incarnation("dead"), "api", now - 10**7, "m3", ahead=9.0)

    await services.database.write(serve)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(AdminApi(services)), base_url="http://cloud") as client:
        answer = await client.get("/admin/v1/clocks", headers={"X-Auth-Token": "admin"})
    told = [one for one in answer.json()["clocks"] if (one["process"], one["database"]) == ("api", "api")]
    assert [(one["host"], one["seconds_ahead"]) for one in told] == [("m1", 0.0), ("m2", -3600.0)]
    [check] = _clocks(Told(told))  # type: ignore[arg-type]  # it is only asked for this
    assert (check.verdict, check.message) == ("warning", "api on m2 is 3600 s behind the database of api")


class Told:
    """A cloud that tells of clocks."""

    def __init__(self, clocks: list[dict[str, object]]) -> None:
        self.clocks = clocks

    def admin(self, _method: str, _path: str) -> dict[str, object]:
        return {"clocks": self.clocks}
