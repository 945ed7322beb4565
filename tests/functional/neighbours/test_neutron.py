"""Servers whose ports are those of a Neutron: one that answers, one that fails, one whose answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession
from skep.database import Connection
from skep.database.api import port_holders
from skep.database.cell import interfaces
from skep.domain.ids import InstanceUuid
from skep_lab.faulty_service import OF_A_CLOUD, Mishap
from tests.functional.neighbours.test_faulty_keystone import unavailable
from tests.functional.networks.test_servers_with_addresses import NEWEST, Tenant, addresses
from tests.support.cloud_beside import CloudBeside, cloud_beside


class BesideNeutron(Tenant):
    """A user of a cloud beside a Neutron, whom he asks without the port that can fail."""

    def __init__(self, beside: CloudBeside, compute: ComputeSession, image: str) -> None:
        super().__init__(beside.cloud, compute, networks_url=beside.behind.networks_url, image=image)
        self.beside = beside
        self.neutron = beside.neutron

    async def restart(self) -> None:
        """End the cloud, and begin it anew."""
        await self.beside.restart()
        self.cloud, self.compute = self.beside.cloud, await self.beside.session()

    async def held(self) -> list[str]:
        """Return the servers that may have ports, as the cloud has noted them."""

        def unit(connection: Connection) -> list[str]:
            return [one.instance for one in port_holders.take_due(connection, 1 << 60, 1000)]

        return await self.cloud.plane.databases.api.read(unit)

    async def no_differences(self) -> None:
        """Nothing differs between databases, hosts and Neutron."""
        admin = await self.beside.session("admin", "admin")
        url = f"{self.cloud.api_url.removesuffix('/v2.1')}/admin/v1/audit"

        async def none() -> bool:
            found = await admin.client.get(url, headers={"X-Auth-Token": admin.token})
            assert found.status_code == 200, found.text
            audit = found.json()["audit"]
            return not audit["differences"] and not audit["unread"]

        await eventually(none, "nothing differs")


@asynccontextmanager
async def beside_neutron(root: Path) -> AsyncIterator[BesideNeutron]:
    async with cloud_beside(root, networks=True) as beside:
        yield BesideNeutron(beside, await beside.session(), await beside.image())


async def test_a_server_has_the_ports_of_neutron(tmp_path: Path) -> None:
    """Made ones and one that was brought; whatever follows them is told to the row; what was brought stays."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        brought = await demo.networks("POST", "ports", {"port": {"network_id": network["id"]}})
        server = await demo.built([{"uuid": network["id"], "tag": "front"}, {"port": brought["id"]}])
        given, made = sorted(await demo.ports(server["id"]), key=lambda one: one["id"] != brought["id"])
        assert addresses(server)["mine"] == [one["fixed_ips"][0]["ip_address"] for one in (made, given)]
        assert given["id"] == brought["id"]
        listed = (await demo.compute.ask("GET", f"/servers/{server['id']}/os-interface")).json()
        assert [one["port_id"] for one in listed["interfaceAttachments"]] == [made["id"], given["id"]]
        attached = {"interfaceAttachment": {"net_id": network["id"]}}
        answer = await demo.compute.ask("POST", f"/servers/{server['id']}/os-interface", attached)
        assert answer.status_code == 200, answer.text
        third = answer.json()["interfaceAttachment"]["port_id"]
        assert len(addresses(await demo.server(server["id"]))["mine"]) == 3
        detached = await demo.compute.ask("DELETE", f"/servers/{server['id']}/os-interface/{third}")
        assert detached.status_code == 202
        assert len(addresses(await demo.server(server["id"]))["mine"]) == 2
        await demo.no_differences()
        await gone(demo, server["id"])
        [left] = await demo.networks("GET", "ports")
        assert (left["id"], left["device_id"]) == (brought["id"], "")
        await demo.no_differences()


async def test_an_audit_lists_the_ports_of_servers_once(tmp_path: Path) -> None:
    """Both what rows say of interfaces and where they are bound is compared with the same answer."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        built = [await demo.built([{"uuid": network["id"]}]) for _ in range(2)]
        await demo.no_differences()
        asked: list[str] = []

        def passes(method: str, path: str, moment: str) -> None:
            if (method, moment) == ("GET", "before") and "/ports?" in path:
                asked.append(path)

        demo.neutron.passes = passes
        await demo.no_differences()
        [listed] = [path for path in asked if any(server["id"] in path for server in built)]
        assert all(server["id"] in listed for server in built)


async def test_what_neutron_tells_of_a_port_reaches_its_server(tmp_path: Path) -> None:
    """By an event, as soon as it comes."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        [port] = await demo.ports(server["id"])
        change = {"port": {"fixed_ips": [{"ip_address": "10.1.0.77"}]}}
        await demo.networks("PUT", f"ports/{port['id']}", change)
        assert addresses(await demo.server(server["id"])) != {"mine": ["10.1.0.77"]}
        admin = await demo.beside.session("admin", "admin")
        event = {"name": "network-changed", "server_uuid": server["id"], "tag": port["id"]}
        assert (await admin.ask("POST", "/os-server-external-events", {"events": [event]})).status_code == 200

        async def told() -> bool:
            return addresses(await demo.server(server["id"])) == {"mine": ["10.1.0.77"]}

        await eventually(told, "the row says what the port says")


async def test_what_neutron_does_not_tell_is_found_by_a_look(tmp_path: Path) -> None:
    """Each server that may have ports is looked at again and again."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        [port] = await demo.ports(server["id"])
        await demo.networks("DELETE", f"ports/{port['id']}")
        now = demo.cloud.clock.now()
        held = [InstanceUuid(server["id"])]
        await demo.cloud.plane.databases.api.write(lambda connection: port_holders.look_soon(connection, held, now))

        async def told() -> bool:
            return addresses(await demo.server(server["id"])) == {}

        await eventually(told, "the row says that there is no port")


async def test_ports_come_back_with_a_server_whose_move_was_undone(tmp_path: Path) -> None:
    """Neutron had bound them to the other host, its answer was lost, and the server was back before the next try."""
    async with cloud_beside(tmp_path, networks=True, hosts=2) as beside:
        demo = BesideNeutron(beside, await beside.session(), await beside.image())
        admin = await beside.session("admin", "admin")
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])

        async def bound_to() -> str:
            url = f"{demo.networks_url}/v2.0/ports?device_id={server['id']}"
            [port] = (await admin.client.get(url, headers={"X-Auth-Token": admin.token})).json()["ports"]
            return str(port["binding:host_id"])

        first = await bound_to()
        lost = asyncio.Event()

        def since_it_is_bound(method: str, _path: str) -> bool:
            if method == "PUT":
                lost.set()
            return lost.is_set()

        await demo.neutron.fail(Mishap.LOST, since_it_is_bound)
        path = f"/servers/{server['id']}/action"
        assert (await admin.ask("POST", path, {"migrate": None})).status_code == 202
        await beside.calm(admin, server["id"], "VERIFY_RESIZE")
        await lost.wait()

        async def away() -> bool:
            return await bound_to() != first

        await eventually(away, "its ports are bound to the other host")
        assert (await admin.ask("POST", path, {"revertResize": None})).status_code == 202
        await beside.calm(admin, server["id"], "ACTIVE")
        await demo.neutron.heal()

        async def back() -> bool:
            return await bound_to() == first

        await eventually(back, "its ports are bound to its host")


async def test_a_port_that_neutron_does_not_bind_holds_up_its_server_alone(tmp_path: Path) -> None:
    """The others are known to be bound: builds on other hosts wait for that."""
    async with cloud_beside(tmp_path, networks=True, hosts=2) as beside:
        demo = BesideNeutron(beside, await beside.session(), await beside.image())
        admin = await beside.session("admin", "admin")
        network = await demo.network("10.1.0.0/24")
        servers = [await demo.built([{"uuid": network["id"]}]) for _ in range(3)]
        sick = min(one["id"] for one in servers)
        [port] = await demo.ports(sick)
        said = {"NeutronError": {"type": "HostNotConnectedToAnySegment", "message": "no segment", "detail": ""}}
        await demo.neutron.refuse(409, lambda method, path: method == "PUT" and port["id"] in path, said)
        for server in servers:
            answer = await admin.ask("POST", f"/servers/{server['id']}/action", {"migrate": None})
            assert answer.status_code == 202, answer.text
            await beside.calm(admin, server["id"], "VERIFY_RESIZE")
        cell = demo.cloud.plane.databases.cells["cell1"]

        async def left() -> list[str]:
            return sorted(await cell.read(partial(interfaces.misbound, limit=10)))

        async def only_the_sick_one() -> bool:
            return await left() == [sick]

        await eventually(only_the_sick_one, "the ports of the others follow them")
        await demo.neutron.heal()

        async def none() -> bool:
            return not await left()

        await eventually(none, "all ports follow their servers")
        await demo.no_differences()


@pytest.mark.parametrize("fault", OF_A_CLOUD, ids=lambda fault: fault.name)
async def test_builds_wait_for_neutron(tmp_path: Path, fault: Mishap) -> None:
    """A create whose networks cannot be looked up is refused; one that was taken waits, and has its ports once."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        wanted = [{"uuid": network["id"]}, {"uuid": network["id"]}]
        if fault is not Mishap.LOST:
            await demo.neutron.fail(fault)
            unavailable(await demo.create(wanted), "the network service")
            await demo.neutron.heal()
        if fault is Mishap.REFUSES:
            return
        await demo.neutron.fail(fault, lambda method, path: method == "POST" and path.startswith("/v2.0/ports"))
        answer = await demo.create(wanted)
        assert answer.status_code == 202, answer.text
        uuid = answer.json()["server"]["id"]
        await asyncio.wait_for(demo.neutron.meeting.wait(), 20)
        assert (await demo.server(uuid))["status"] == "BUILD"
        await demo.neutron.heal()
        server = await demo.settled(uuid)
        assert server["status"] == "ACTIVE", server
        ports = await demo.ports(uuid)
        assert sorted(addresses(server)["mine"]) == sorted(one["fixed_ips"][0]["ip_address"] for one in ports)
        assert len(ports) == 2
        await gone(demo, uuid)
        await demo.no_differences()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_server_that_is_deleted_while_answers_are_lost(tmp_path: Path, *, restarted: bool) -> None:
    """Its ports, of which nobody was told, go; also where the cloud was restarted meanwhile."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")

        def meets(method: str, path: str) -> bool:
            """No port that was made is found again."""
            return path.startswith("/v2.0/ports") and (method == "POST" or bool(demo.neutron.met))

        await demo.neutron.fail(Mishap.LOST, meets)
        answer = await demo.create([{"uuid": network["id"]}])
        uuid = answer.json()["server"]["id"]

        async def made() -> bool:
            return bool(await demo.ports(uuid))

        await eventually(made, "a port is there")
        if restarted:
            await demo.restart()
        assert (await demo.compute.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await demo.neutron.heal()

        async def no_ports() -> bool:
            return not await demo.networks("GET", "ports")

        await eventually(no_ports, "no port is left")
        await demo.no_differences()


async def test_neutron_is_away_while_servers_are_deleted(tmp_path: Path) -> None:
    """They go all the same; their ports follow once it is back."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        servers = [await demo.built([{"uuid": network["id"]}]) for _ in range(3)]
        await demo.neutron.fail(Mishap.ERROR)
        for server in servers:
            assert (await demo.compute.ask("DELETE", f"/servers/{server['id']}")).status_code == 204

        async def gone_() -> bool:
            return not (await demo.compute.ask("GET", "/servers")).json()["servers"]

        await eventually(gone_, "the servers are gone")
        assert len(await demo.networks("GET", "ports")) == 3
        await demo.restart()
        await demo.neutron.heal()

        async def no_ports() -> bool:
            return not await demo.networks("GET", "ports")

        await eventually(no_ports, "no port is left")
        await demo.no_differences()


async def test_what_neutron_refuses_is_the_servers_fault(tmp_path: Path) -> None:
    """Nine servers at once on a network of five addresses: no port of those that get none is left."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/29")
        answers = [await demo.create([{"uuid": network["id"]}], name=f"s{n}") for n in range(9)]
        servers = [await demo.settled(one.json()["server"]["id"]) for one in answers]
        active = [one for one in servers if one["status"] == "ACTIVE"]
        ports = await demo.networks("GET", "ports")
        assert len(active) == len(ports) == 5
        assert {one["device_id"] for one in ports} == {one["id"] for one in active}
        assert all("IP addresses" in one["fault"]["message"] for one in servers if one["status"] == "ERROR")
        for one in servers:
            await gone(demo, one["id"])
        assert await demo.networks("GET", "ports") == []
        await demo.no_differences()


async def test_a_request_that_is_too_large_ends_the_build(tmp_path: Path) -> None:
    """What stands before Neutron has said so; the fault says who answered what."""
    async with beside_neutron(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        await demo.neutron.refuse(413, lambda method, path: method == "POST" and path.startswith("/v2.0/ports"))
        answer = await demo.create([{"uuid": network["id"]}] * 2)
        server = await demo.settled(answer.json()["server"]["id"])
        assert server["status"] == "ERROR"
        assert "the network service answered 413" in server["fault"]["message"]
        assert demo.neutron.met == ["POST /v2.0/ports"]
        await gone(demo, server["id"])
        await demo.no_differences()


async def gone(demo: BesideNeutron, uuid: str) -> None:
    """Delete a server, and wait until it is gone, and no port is its own."""
    await demo.delete(uuid)
    shown: Any = await demo.compute.ask("GET", f"/servers/{uuid}", version=NEWEST)
    assert shown.status_code == 404
