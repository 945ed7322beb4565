"""Ports of servers that are migrated live are bound to both hosts while the guest is copied, and to one after that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skep.compute.drivers.live import LiveMigrationDriver
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.cell import interfaces
from skep.database.stored import load
from skep.domain.instances import Instance
from skep.domain.vifs import Vif, VifDetails
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.functional.networks.test_servers_with_addresses import NEWEST, Tenant
from tests.support.cloud_beside import cloud_beside
from tests.support.live_migrating import LiveMigrating

NEVER_DONE = FakeFailure(operation="converge")
"""The copying goes on until it is ended."""


def binds_beside(method: str, path: str) -> bool:
    """Tell whether a second binding is asked for."""
    return method == "POST" and path.endswith("/bindings")


def refusal(kind: str, message: str) -> dict[str, Any]:
    """Return what Neutron says of a refusal."""
    return {"NeutronError": {"type": kind, "message": message, "detail": ""}}


class Mover(LiveMigrating):
    """A user's server with two ports, and the admin who moves it."""

    def __init__(self, demo: Tenant, admin: ComputeSession, server: Any) -> None:
        self.demo = demo
        self.admin = admin
        self.uuid = str(server["id"])
        self.ports = [str(one) for one in server["ports"]]

    async def bindings(self) -> list[dict[str, str]]:
        """Return the bindings of each port: status by host."""
        found = []
        for port in self.ports:
            url = f"{self.demo.networks_url}/v2.0/ports/{port}/bindings"
            answer = await self.admin.client.get(url, headers={"X-Auth-Token": self.admin.token})
            assert answer.status_code == 200, answer.text
            found.append({one["host"]: one["status"] for one in answer.json()["bindings"]})
        return found

    async def bound_to(self, host: str) -> None:
        """Wait until all ports are bound to the host that has the server, and to no other."""
        assert await self.host() == host

        async def only_there() -> bool:
            return await self.bindings() == [{host: "ACTIVE"}] * len(self.ports)

        await eventually(only_there, f"the ports are bound to {host} only")


async def moving(demo: Tenant, admin: ComputeSession) -> Mover:
    """Return a server with a port that was made for it, and one of the user's."""
    network = await demo.network("10.1.0.0/24")
    brought = await demo.networks("POST", "ports", {"port": {"network_id": network["id"]}})
    server = await demo.built([{"uuid": network["id"]}, {"port": brought["id"]}])
    assert server["status"] == "ACTIVE", server
    server["ports"] = [one["id"] for one in await demo.ports(server["id"])]
    assert len(server["ports"]) == 2
    return Mover(demo, admin, server)


@asynccontextmanager
async def beside_neutron(root: Path, *failures: FakeFailure) -> AsyncIterator[tuple[BesideNeutron, Mover]]:
    async with cloud_beside(root, *failures, networks=True, hosts=2) as beside:
        demo = BesideNeutron(beside, await beside.session(), await beside.image())
        yield demo, await moving(demo, await beside.session("admin", "admin"))


async def restart(demo: BesideNeutron, mover: Mover) -> None:
    """End the cloud in the middle, and begin it anew."""
    await demo.restart()
    mover.admin = await demo.beside.session("admin", "admin")


async def test_ports_are_bound_to_both_hosts_while_the_guest_is_copied(tmp_path: Path) -> None:
    async with beside_neutron(tmp_path, NEVER_DONE) as (demo, mover):
        source = await mover.host()
        await mover.begin()
        target = await mover.copying()
        assert await mover.bindings() == [{source: "ACTIVE", target: "INACTIVE"}] * 2
        await mover.force()
        await mover.ends_as("completed")
        await mover.bound_to(target)
        await demo.no_differences()


def in_a_bridge(_method: str, path: str, answer: Any) -> Any:
    """Have ports be in a bridge of the host that may get them."""
    if path.endswith("/bindings") and isinstance(answer, dict):
        for one in answer.get("bindings", ()):
            if one["status"] == "INACTIVE":
                one |= {"vif_type": "bridge", "vif_details": {"bridge_name": "brq-there"}}
    return answer


async def test_the_target_is_told_how_ports_are_plugged_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it makes anything; the row of the server says it no more once the migration is over."""
    told: list[tuple[Vif, ...]] = []

    async with beside_neutron(tmp_path, NEVER_DONE) as (demo, mover):

        async def noted(awaiting: Any, instance: Instance, *more: Any) -> None:
            told.append(instance.vifs)
            await awaiting(instance, *more)

        for driver in demo.cloud.plane.drivers.values():
            assert isinstance(driver, LiveMigrationDriver)
            monkeypatch.setattr(driver, "await_guest", partial(noted, driver.await_guest))
        demo.neutron.reworded = in_a_bridge
        await mover.begin()
        target = await mover.copying()
        [vifs] = told
        details = VifDetails(bridge_name="brq-there")
        assert [(one.type, one.details) for one in vifs] == [("bridge", details)] * 2
        assert {one.beside.host for one in vifs if one.beside is not None} == {target}
        await mover.force()
        await mover.ends_as("completed")
        await mover.bound_to(target)
        cell = demo.cloud.plane.databases.cells["cell1"]
        [(_, after)] = (await cell.read(partial(interfaces.stored, uuids=[mover.uuid]))).items()
        assert after is not None
        said: tuple[Vif, ...] = load(after, tuple[Vif, ...])
        assert [(one.type, one.beside) for one in said] == [("tap", None)] * 2
        await demo.no_differences()


async def test_the_embedded_network_service(tmp_path: Path) -> None:
    async with (
        serving_cloud(http_config(tmp_path, failures=[NEVER_DONE]), cells=1, hosts=2) as cloud,
        signed_in(cloud, "demo", "demo") as compute,
        signed_in(cloud) as admin,
    ):
        mover = await moving(Tenant(cloud, compute), admin)
        source = await mover.host()
        await mover.begin()
        target = await mover.copying()
        assert await mover.bindings() == [{source: "ACTIVE", target: "INACTIVE"}] * 2
        await mover.end("DELETE", "")
        await mover.ends_as("cancelled")
        await mover.bound_to(source)
        await mover.begin()
        await mover.copying()
        await mover.force()
        await mover.ends_as("completed")
        await mover.bound_to(target)


async def test_an_abort(tmp_path: Path) -> None:
    async with beside_neutron(tmp_path, NEVER_DONE) as (demo, mover):
        source = await mover.host()
        await mover.begin()
        await mover.copying()
        await mover.end("DELETE", "")
        await mover.ends_as("cancelled")
        await mover.bound_to(source)
        await demo.no_differences()


@pytest.mark.parametrize("operation", ["copy_guest", "hand_over"])
async def test_a_failure_on_the_way(tmp_path: Path, operation: Any) -> None:
    async with beside_neutron(tmp_path, FakeFailure(operation=operation, times=1)) as (demo, mover):
        source = await mover.host()
        await mover.begin()
        await mover.ends_as("failed")
        await mover.bound_to(source)
        await demo.no_differences()


@pytest.mark.parametrize("status", [400, 409])
async def test_a_target_that_neutron_refuses(tmp_path: Path, status: int) -> None:
    """The migration ends with Neutron's reason before the guest is touched."""
    async with beside_neutron(tmp_path, NEVER_DONE) as (demo, mover):
        source = await mover.host()
        await demo.neutron.refuse(status, binds_beside, refusal("HostNotCompatible", "no segment reaches it"))
        await mover.begin()
        await mover.ends_as("error")
        actions = (await mover.admin.ask("GET", f"/servers/{mover.uuid}/os-instance-actions", version=NEWEST)).json()
        [ended] = [one for one in actions["instanceActions"] if one["action"] == "live-migration"]
        assert "no segment reaches it" in ended["message"]
        await mover.bound_to(source)
        await demo.neutron.heal()
        await demo.no_differences()


async def test_a_neutron_without_second_bindings(tmp_path: Path) -> None:
    """Ports follow after the switch."""
    async with beside_neutron(tmp_path, NEVER_DONE) as (demo, mover):
        source = await mover.host()
        absent = refusal("ExtensionNotFound", "no such extension")
        await demo.neutron.refuse(404, lambda _method, path: path.endswith("/binding-extended"), absent)
        await mover.begin()
        target = await mover.copying()
        assert await mover.bindings() == [{source: "ACTIVE"}] * 2
        await mover.force()
        await mover.ends_as("completed")
        await mover.bound_to(target)


@pytest.mark.parametrize("fault", [Mishap.ERROR, Mishap.LOST, Mishap.REFUSES], ids=lambda fault: fault.name)
async def test_the_conductor_is_replaced_while_bindings_are_made(tmp_path: Path, fault: Mishap) -> None:
    """The target waits for Neutron; the next conductor goes on, whatever the one before has made."""
    async with beside_neutron(tmp_path) as (demo, mover):
        source = await mover.host()
        await demo.neutron.fail(fault, binds_beside)
        await mover.begin()

        async def waits() -> bool:
            return str((await mover.migration())["status"]) == "preparing"

        await eventually(waits, "the target is chosen")
        if fault is not Mishap.REFUSES:
            await demo.neutron.meeting.wait()
        assert await mover.host() == source
        await restart(demo, mover)
        await demo.neutron.heal()
        await mover.ends_as("completed")
        assert await mover.host() != source
        await mover.bound_to(await mover.host())
        await demo.no_differences()


@pytest.mark.parametrize("aborted", [False, True])
async def test_the_conductor_is_replaced_while_the_guest_is_copied(tmp_path: Path, *, aborted: bool) -> None:
    async with beside_neutron(tmp_path, NEVER_DONE) as (demo, mover):
        source = await mover.host()
        await mover.begin()
        target = await mover.copying()
        await restart(demo, mover)
        await mover.copying()
        assert await mover.bindings() == [{source: "ACTIVE", target: "INACTIVE"}] * 2
        await (mover.end("DELETE", "") if aborted else mover.force())
        await mover.ends_as("cancelled" if aborted else "completed")
        await mover.bound_to(source if aborted else target)
        await demo.no_differences()


async def test_an_abort_while_bindings_are_awaited(tmp_path: Path) -> None:
    """Nothing was copied; what Neutron has made without an answer goes."""
    async with beside_neutron(tmp_path) as (demo, mover):
        source = await mover.host()
        await demo.neutron.fail(Mishap.LOST, lambda _method, path: path.endswith("/bindings"))
        await mover.begin()
        await demo.neutron.meeting.wait()
        await mover.end("DELETE", "")
        await mover.ends_as("cancelled")
        await demo.neutron.heal()
        await mover.bound_to(source)
        await demo.no_differences()


async def test_a_server_that_is_deleted_while_it_is_copied(tmp_path: Path) -> None:
    """The port that its user brought is bound to no host."""
    async with beside_neutron(tmp_path, NEVER_DONE) as (demo, mover):
        await mover.begin()
        await mover.copying()
        await mover.admin.ask("DELETE", f"/servers/{mover.uuid}")

        async def gone() -> bool:
            return [one["device_id"] for one in await demo.networks("GET", "ports")] == [""]

        await eventually(gone, "one port is left, and it is no server's")
        [left] = await demo.networks("GET", "ports")
        mover.ports = [left["id"]]

        async def free() -> bool:
            return await mover.bindings() == [{}]

        await eventually(free, "it is bound nowhere")


async def test_what_is_left_of_bindings_is_found_and_put_right(tmp_path: Path) -> None:
    """By the audit: a binding that a lost request made late, and a port that follows another host."""
    async with beside_neutron(tmp_path) as (demo, mover):
        await mover.begin()
        await mover.ends_as("completed")
        host = await mover.host()
        await mover.bound_to(host)
        first, second = (f"{demo.networks_url}/v2.0/ports/{one}" for one in mover.ports)
        headers = {"X-Auth-Token": mover.admin.token}
        late = {"binding": {"host": "elsewhere"}}
        made = await mover.admin.client.post(f"{first}/bindings", json=late, headers=headers)
        assert made.status_code == 201, made.text
        moved = {"port": {"binding:host_id": "elsewhere"}}
        answer = await mover.admin.client.put(second, json=moved, headers=headers)
        assert answer.status_code == 200, answer.text
        audit = f"{demo.cloud.api_url.removesuffix('/v2.1')}/admin/v1/audit"

        async def found() -> Any:
            said = (await mover.admin.client.get(audit, headers=headers)).json()["audit"]["differences"]
            return next((one for one in said if one["kind"] == "bindings_differ"), None)

        difference = await eventually(found, "the audit finds it")
        assert difference["subject"] == mover.uuid
        assert difference["evidence"]["host"] == host
        assert difference["evidence"]["ports"] == dict(
            zip(mover.ports, [[host, "elsewhere"], ["elsewhere"]], strict=True)
        )

        async def repaired() -> bool:
            mended = await mover.admin.client.post(f"{audit}/repair", headers=headers, json={"dry_run": False})
            assert mended.status_code == 200, mended.text
            return await mover.bindings() == [{host: "ACTIVE"}] * 2

        await eventually(repaired, "the ports are where the server is")
        await demo.no_differences()
