"""Interfaces that belong to a host: where a build goes to another one, its ports are made anew before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.compute import FakeFailure
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.super_conductor.renewals import renew
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.functional.networks.test_bindings_of_live_migrations import refusal
from tests.functional.networks.test_servers_with_addresses import NEWEST, Tenant
from tests.support.cloud_beside import cloud_beside

FIRST, SECOND = "cell1-host1", "cell1-host2"
FAILS = FakeFailure(operation="spawn", error="SpawnFailed", host=FIRST, server="one")


class Rescheduled:
    """A user whose server "one" fails on the first host, with an admin."""

    def __init__(self, demo: Tenant, admin: ComputeSession, image: str) -> None:
        self.demo = demo
        self.admin = admin
        self.image = image

    async def fill(self) -> None:
        """Have the first host be the better one."""
        filler = {"name": "filler", "imageRef": self.image, "flavorRef": "1", "networks": "none", "host": SECOND}
        answer = await self.admin.ask("POST", "/servers", {"server": filler}, version=NEWEST)
        assert answer.status_code == 202, answer.text
        path = f"/servers/{answer.json()['server']['id']}"

        async def is_built() -> bool:
            return bool((await self.admin.ask("GET", path)).json()["server"]["status"] == "ACTIVE")

        await eventually(is_built, "the other host has a server")

    async def shown(self, uuid: str) -> list[Any]:
        """Return the ports of a server as admins see them."""
        url = f"{self.demo.networks_url}/v2.0/ports?device_id={uuid}"
        answer = await self.admin.client.get(url, headers={"X-Auth-Token": self.admin.token})
        found: list[Any] = answer.json()["ports"]
        return found

    async def asked(self) -> tuple[Any, list[dict[str, str]]]:
        """Make a network and a port; return the port, and what a server is to have."""
        network = await self.demo.network("10.1.0.0/24")
        brought = await self.demo.networks("POST", "ports", {"port": {"network_id": network["id"]}})
        return brought, [{"uuid": network["id"], "fixed_ip": "10.1.0.77"}, {"port": brought["id"]}]

    async def is_whole(self, server: Any, brought: Any) -> None:
        """The server is on the second host with two ports, and nothing is left of others."""
        assert server["status"] == "ACTIVE", server
        row = (await self.admin.ask("GET", f"/servers/{server['id']}", version=NEWEST)).json()["server"]
        assert row["OS-EXT-SRV-ATTR:host"] == SECOND
        found = await self.demo.networks("GET", "ports")
        ports = [one for one in found if not one["device_owner"].startswith("network:")]
        assert {one["device_id"] for one in ports} == {server["id"]}, "no port is left over"
        listed = (await self.demo.compute.ask("GET", f"/servers/{server['id']}/os-interface")).json()
        had = [one["port_id"] for one in listed["interfaceAttachments"]]
        assert sorted(had) == sorted(one["id"] for one in ports)
        assert had[1:] == [brought["id"]]
        assert "10.1.0.77" in str(server["addresses"])


@asynccontextmanager
async def beside_neutron(root: Path, *, own: bool = True) -> AsyncIterator[tuple[BesideNeutron, Rescheduled]]:
    async with cloud_beside(root, FAILS, networks=True, hosts=2, plugs=True, interfaces_of_host=own) as beside:
        demo = BesideNeutron(beside, await beside.session(), await beside.image())
        scene = Rescheduled(demo, await beside.session("admin", "admin"), demo.image)
        await scene.fill()
        yield demo, scene


def noting(demo: BesideNeutron) -> list[str]:
    """Return the ids of ports that are deleted from now on."""
    deleted: list[str] = []

    def passes(method: str, path: str, moment: str) -> None:
        if method == "DELETE" and "/ports/" in path and moment == "after":
            deleted.append(path.rpartition("/")[2])

    demo.neutron.passes = passes
    return deleted


@pytest.mark.parametrize("own", [True, False])
async def test_a_build_that_fails_on_its_first_host(tmp_path: Path, *, own: bool) -> None:
    """What was made for it is made anew where hosts say so, and kept otherwise; its user's port is the same."""
    async with beside_neutron(tmp_path, own=own) as (demo, scene):
        brought, wanted = await scene.asked()
        deleted = noting(demo)
        server = await demo.built(wanted)
        await scene.is_whole(server, brought)
        assert len(deleted) == (1 if own else 0)
        assert not {one["id"] for one in await scene.shown(server["id"])} & set(deleted)
        assert {one["binding:host_id"] for one in await scene.shown(server["id"])} == {SECOND}
        await demo.no_differences()


async def test_the_embedded_network_service(tmp_path: Path) -> None:
    config = http_config(tmp_path, failures=[FAILS])
    fake = msgspec.structs.replace(config.compute.fake, interfaces_of_host=True)
    config = msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, fake=fake))
    async with (
        serving_cloud(config, cells=1, hosts=2) as cloud,
        signed_in(cloud, "demo", "demo") as compute,
        signed_in(cloud) as admin,
    ):
        demo = Tenant(cloud, compute)
        image = (await admin.ask("GET", "/images")).json()["images"][0]["id"]
        scene = Rescheduled(demo, admin, image)
        await scene.fill()
        brought, wanted = await scene.asked()
        server = await demo.built(wanted)
        await scene.is_whole(server, brought)


@pytest.mark.parametrize("fault", [Mishap.ERROR, Mishap.LOST], ids=lambda fault: fault.name)
async def test_a_restart_between_the_old_port_and_the_new_one(tmp_path: Path, fault: Mishap) -> None:
    """What a request made that had no answer is found; the build goes on with two ports."""
    async with beside_neutron(tmp_path) as (demo, scene):
        brought, wanted = await scene.asked()
        deleted = noting(demo)
        await demo.neutron.fail(fault, lambda method, path: bool(deleted) and method == "POST" and "/ports" in path)
        answer = await demo.create(wanted)
        assert answer.status_code == 202, answer.text
        await demo.neutron.meeting.wait()
        await demo.restart()
        scene.admin = await demo.beside.session("admin", "admin")
        await demo.neutron.heal()
        await scene.is_whole(await demo.settled(answer.json()["server"]["id"]), brought)
        await demo.no_differences()


async def test_two_super_conductors(tmp_path: Path) -> None:
    """One makes the ports; a second one asks for nothing beside it, however long its request lasts."""
    async with beside_neutron(tmp_path) as (demo, scene):
        brought, wanted = await scene.asked()
        deleted = noting(demo)
        makes_anew = lambda method, path: bool(deleted) and method == "POST" and "/ports" in path  # noqa: E731
        await demo.neutron.fail(Mishap.SILENT, makes_anew)
        answer = await demo.create(wanted)
        assert answer.status_code == 202, answer.text
        await asyncio.wait_for(demo.neutron.meeting.wait(), PATIENCE)
        plane = demo.beside.cloud.plane
        assert plane._super_conductor is not None
        second = plane._super_conductor._parts
        [access] = [one for one in second.cells.values() if not one.cell.is_cell0]
        await renew(second, access)
        assert len(demo.neutron.met) == 1
        await demo.neutron.heal()
        await scene.is_whole(await demo.settled(answer.json()["server"]["id"]), brought)
        assert len(deleted) == 1
        await demo.no_differences()


async def test_a_port_that_cannot_be_made_anew_ends_the_build(tmp_path: Path) -> None:
    """No other host would change it. The user's port is free."""
    async with beside_neutron(tmp_path) as (demo, scene):
        brought, wanted = await scene.asked()
        deleted = noting(demo)
        full = refusal("OverQuota", "Quota exceeded for resources: ['port'].")
        refuses = lambda method, path: bool(deleted) and method == "POST" and "/ports" in path  # noqa: E731
        await demo.neutron.refuse(409, refuses, full)
        server = await demo.built(wanted)
        assert server["status"] == "ERROR"
        assert "Quota exceeded" in server["fault"]["message"]
        [left] = await demo.networks("GET", "ports")
        assert (left["id"], left["device_id"]) == (brought["id"], "")
        await demo.neutron.heal()
        await demo.no_differences()


async def test_a_server_that_is_deleted_while_its_ports_are_made_anew(tmp_path: Path) -> None:
    async with beside_neutron(tmp_path) as (demo, scene):
        brought, wanted = await scene.asked()
        deleted = noting(demo)
        await demo.neutron.fail(
            Mishap.ERROR, lambda method, path: bool(deleted) and method == "POST" and "/ports" in path
        )
        answer = await demo.create(wanted)
        assert answer.status_code == 202, answer.text
        await demo.neutron.meeting.wait()
        await demo.delete(answer.json()["server"]["id"])
        [left] = await demo.networks("GET", "ports")
        assert (left["id"], left["device_id"]) == (brought["id"], "")
        await demo.neutron.heal()
        await demo.no_differences()
