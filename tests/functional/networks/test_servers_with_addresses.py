"""Servers with interfaces, as their users see them: created, changed, moved, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from skep.config.compute import FakeFailure
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database import Connection
from skep.database.api import network_rows, port_addresses
from skep.database.api.network_rows import PORTS
from skep.domain.ids import CELL0
from skep.messages.to_super_conductor import CellChanged
from skep.processes.all_in_one import AllInOneCloud
from skep.transport.base import SUPER_CONDUCTOR

NEWEST = "2.96"


class Tenant:
    """A user of the project `demo` with the compute and the network service."""

    def __init__(
        self, cloud: AllInOneCloud, compute: ComputeSession, *, networks_url: str = "", image: str = ""
    ) -> None:
        """`networks_url`: where the network service is, if it is not the cloud's; `image`: from which servers boot."""
        self.cloud = cloud
        self.compute = compute
        self.networks_url = networks_url or cloud.networks_url
        self.image = image

    async def networks(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the network service for what must succeed."""
        url = f"{self.networks_url}/v2.0/{path}"
        answer = await self.compute.client.request(method, url, json=body, headers={"X-Auth-Token": self.compute.token})
        assert answer.status_code < 300, answer.text
        return next(iter(answer.json().values())) if answer.content else None

    async def network(self, cidr: str, name: str = "mine") -> Any:
        """Make a network with a subnet; return the network."""
        made = await self.networks("POST", "networks", {"network": {"name": name}})
        subnet = {"network_id": made["id"], "cidr": cidr, "ip_version": 6 if ":" in cidr else 4}
        await self.networks("POST", "subnets", {"subnet": subnet})
        return made

    async def create(self, networks: object, **said: object) -> Any:
        """Ask for servers; return the response."""
        if not self.image:
            url = f"{self.cloud.images_url}/v2/images"
            answer = await self.compute.client.get(url, headers={"X-Auth-Token": self.compute.token})
            self.image = answer.json()["images"][0]["id"]
        body = {"name": "one", "imageRef": self.image, "flavorRef": "1", "networks": networks, **said}
        return await self.compute.ask("POST", "/servers", {"server": body}, version=NEWEST)

    async def built(self, networks: object, **said: object) -> Any:
        """Create a server, and return it once it is ACTIVE or in ERROR."""
        answer = await self.create(networks, **said)
        assert answer.status_code == 202, answer.text
        return await self.settled(answer.json()["server"]["id"])

    async def server(self, uuid: str) -> Any:
        """Return a server."""
        return (await self.compute.ask("GET", f"/servers/{uuid}", version=NEWEST)).json().get("server")

    async def settled(self, uuid: str) -> Any:
        """Return a server once it is built, or will not be."""

        async def over() -> Any:
            shown = await self.server(uuid)
            return shown if shown["status"] in ("ACTIVE", "ERROR") else None

        return await eventually(over, "the server is built")

    async def ports(self, uuid: str) -> list[Any]:
        """Return the ports of a server."""
        found: list[Any] = await self.networks("GET", f"ports?device_id={uuid}")
        return found

    async def delete(self, uuid: str) -> None:
        """Delete a server, and wait until it is gone, and its ports with it."""
        assert (await self.compute.ask("DELETE", f"/servers/{uuid}")).status_code == 204

        async def gone() -> bool:
            there = (await self.compute.ask("GET", f"/servers/{uuid}")).status_code
            return there == 404 and await self.ports(uuid) == []

        await eventually(gone, "the server is gone")


@asynccontextmanager
async def tenant(tmp_path: Path, *failures: FakeFailure, hosts: int = 1, cells: int = 1) -> AsyncIterator[Tenant]:
    """Run a cloud as `skep up` does, with a user of it."""
    async with (
        serving_cloud(http_config(tmp_path, failures=failures), cells=cells, hosts=hosts) as cloud,
        signed_in(cloud, "demo", "demo") as compute,
    ):
        yield Tenant(cloud, compute)


def addresses(server: Any) -> dict[str, list[str]]:
    """Return the addresses of a server by network."""
    return {name: [one["addr"] for one in found] for name, found in server["addresses"].items()}


async def test_every_server_of_a_request_gets_an_address_without_asking_for_one(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        answer = await demo.create("auto", min_count=3, max_count=3, return_reservation_id=True)
        assert answer.status_code == 202, answer.text
        listed = (await demo.compute.ask("GET", "/servers", version=NEWEST)).json()["servers"]
        servers = [await demo.settled(one["id"]) for one in listed]
        found = [addresses(one)["auto_allocated_network"] for one in servers]
        assert len({address for one in found for address in one}) == len(servers) == 3
        assert all(one["security_groups"] == [{"name": "default"}] for one in servers)
        await demo.delete(servers[0]["id"])
        assert await demo.ports(servers[0]["id"]) == []
        assert len(await demo.ports(servers[1]["id"])) == 1


async def test_named_networks_ports_addresses_and_groups(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        first, second = await demo.network("10.1.0.0/24", "first"), await demo.network("10.2.0.0/24", "second")
        brought = await demo.networks("POST", "ports", {"port": {"network_id": second["id"], "name": "brought"}})
        group = await demo.networks("POST", "security-groups", {"security_group": {"name": "web"}})
        server = await demo.built(
            [{"uuid": first["id"], "fixed_ip": "10.1.0.77", "tag": "front"}, {"port": brought["id"]}],
            security_groups=[{"name": "web"}],
        )
        assert server["status"] == "ACTIVE"
        assert addresses(server) == {"first": ["10.1.0.77"], "second": [brought["fixed_ips"][0]["ip_address"]]}
        assert [one["name"] for one in server["security_groups"]] == ["web", "default"]
        ports = {one["network_id"]: one for one in await demo.ports(server["id"])}
        assert ports[first["id"]]["security_groups"] == [group["id"]]
        assert {one["device_owner"] for one in ports.values()} == {"compute:nova"}
        assert {one["status"] for one in ports.values()} == {"ACTIVE"}
        taken = await demo.create([{"port": brought["id"]}])
        assert taken.status_code == 409, taken.text
        await demo.delete(server["id"])
        left = await demo.networks("GET", "ports?device_owner=")
        assert [(one["id"], one["device_id"], one["status"]) for one in left] == [(brought["id"], "", "DOWN")]


async def test_what_a_server_says_of_its_interfaces(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        other = await demo.network("2001:db8:1::/64", "six")
        server = await demo.built([{"uuid": network["id"], "tag": "front"}, {"uuid": other["id"]}])
        path = f"/servers/{server['id']}"

        async def get(what: str, version: str = NEWEST) -> Any:
            answer = await demo.compute.ask("GET", f"{path}/{what}", version=version)
            assert answer.status_code == 200, answer.text
            return next(iter(answer.json().values()))

        first, second = addresses(server)["mine"][0], addresses(server)["six"][0]
        assert await get("ips") == {"mine": [{"version": 4, "addr": first}], "six": [{"version": 6, "addr": second}]}
        assert await get("ips/six") == [{"version": 6, "addr": second}]
        assert (await demo.compute.ask("GET", f"{path}/ips/none")).status_code == 404
        ports = {one["network_id"]: one for one in await demo.ports(server["id"])}
        shown = await get("os-interface")
        assert [one["tag"] for one in shown] == ["front", None]
        assert "tag" not in (await get("os-interface", "2.69"))[0]
        port = ports[network["id"]]
        expected = {
            "net_id": network["id"],
            "port_id": port["id"],
            "mac_addr": port["mac_address"],
            "port_state": "ACTIVE",
            "fixed_ips": port["fixed_ips"],
            "tag": "front",
        }
        assert shown[0] == await get(f"os-interface/{port['id']}") == expected
        unknown = await demo.compute.ask("GET", f"{path}/os-interface/{server['id']}")
        assert unknown.status_code == 404
        [group] = await get("os-security-groups")
        assert group["name"] == "default"
        assert {rule["group"].get("name") for rule in group["rules"]} == {"default"}
        for query, there in (("ip=10.1.0", True), ("ip=^10.2", False), ("ip6=db8:1", True), ("ip6=10.1", False)):
            listed = (await demo.compute.ask("GET", f"/servers?{query}", version=NEWEST)).json()["servers"]
            assert bool(listed) is there, query


async def test_a_row_follows_what_becomes_of_its_ports(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        server = await demo.built("auto")
        [port] = await demo.ports(server["id"])
        outside = (await demo.networks("GET", "networks?router:external=true"))[0]
        said = {"floating_network_id": outside["id"], "port_id": port["id"]}
        floating = await demo.networks("POST", "floatingips", {"floatingip": said})
        fixed = port["fixed_ips"][0]["ip_address"]

        async def shows(*wanted: str) -> bool:
            found = addresses(await demo.server(server["id"])).get("auto_allocated_network", [])
            return found == list(wanted)

        await eventually(lambda: shows(fixed, floating["floating_ip_address"]), "the floating address is shown")
        await demo.networks("DELETE", f"floatingips/{floating['id']}")
        await eventually(lambda: shows(fixed), "the floating address is gone")
        await demo.networks("PUT", f"ports/{port['id']}", {"port": {"fixed_ips": [{"ip_address": "10.100.0.99"}]}})
        await eventually(lambda: shows("10.100.0.99"), "the other fixed address is shown")
        await demo.networks("DELETE", f"ports/{port['id']}")
        await eventually(shows, "no address is shown")
        await demo.delete(server["id"])


async def test_ports_follow_their_server_to_another_host(tmp_path: Path) -> None:
    async with tenant(tmp_path, hosts=2) as demo, signed_in(demo.cloud) as admin:
        server = await demo.built("auto")
        headers = {"X-Auth-Token": admin.token}
        url = f"{demo.cloud.networks_url}/v2.0/ports?device_id={server['id']}"

        async def bound_to() -> str:
            [port] = (await admin.client.get(url, headers=headers)).json()["ports"]
            return str(port["binding:host_id"])

        async def host() -> str:
            shown = (await admin.ask("GET", f"/servers/{server['id']}")).json()["server"]
            return str(shown["OS-EXT-SRV-ATTR:host"]) if shown["status"] in ("ACTIVE", "VERIFY_RESIZE") else ""

        before = await host()
        assert await bound_to() == before
        moved = await admin.ask("POST", f"/servers/{server['id']}/action", {"migrate": None}, version=NEWEST)
        assert moved.status_code == 202, moved.text

        async def elsewhere() -> bool:
            return await host() not in ("", before)

        await eventually(elsewhere, "the server is on the other host")

        async def follows() -> bool:
            return await bound_to() == await host()

        await eventually(follows, "the port is bound there")
        assert addresses(await demo.server(server["id"])) == addresses(server)


async def test_ports_follow_an_unshelved_server_without_waiting_for_a_look(tmp_path: Path) -> None:
    """The level above looks at the rows by itself, too, but in this cloud not within the test."""
    config = http_config(tmp_path)
    config = msgspec.structs.replace(
        config, conductor=msgspec.structs.replace(config.conductor, resend_seconds=10 * PATIENCE)
    )
    async with (
        serving_cloud(config, cells=1, hosts=1) as cloud,
        signed_in(cloud, "demo", "demo") as compute,
        signed_in(cloud) as admin,
    ):
        demo = Tenant(cloud, compute)
        network = await demo.network("10.0.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        url = f"{cloud.networks_url}/v2.0/ports?device_id={server['id']}"

        async def bound() -> str:
            [port] = (await admin.client.get(url, headers={"X-Auth-Token": admin.token})).json()["ports"]
            return str(port["binding:host_id"])

        async def acted(action: str, status: str) -> None:
            answer = await compute.ask("POST", f"/servers/{server['id']}/action", {action: None}, version=NEWEST)
            assert answer.status_code == 202, answer.text

            async def done() -> bool:
                return str((await demo.server(server["id"]))["status"]) == status

            await eventually(done, status)

        async def is_loose() -> bool:
            [cell] = (uuid for uuid in cloud.plane.cells if uuid != CELL0)
            await cloud.plane.transport.cast(SUPER_CONDUCTOR, CellChanged(cell=cell))
            return await bound() == ""

        before = await bound()
        await acted("shelve", "SHELVED_OFFLOADED")
        await eventually(is_loose, "the port is bound to no host")
        await acted("unshelve", "ACTIVE")

        async def is_back() -> bool:
            return await bound() == before

        await eventually(is_back, "the port is bound")


async def test_ports_follow_a_build_to_another_cell(tmp_path: Path) -> None:
    """Of two servers that are asked for at once one begins in each cell, and the second cell builds both."""
    failure = FakeFailure(operation="spawn", host="cell1-*", error="SpawnFailed")
    async with tenant(tmp_path, failure, cells=2) as demo, signed_in(demo.cloud) as admin:
        answer = await demo.create("auto", min_count=2, max_count=2, return_reservation_id=True)
        assert answer.status_code == 202, answer.text

        async def bound() -> list[tuple[str, str]]:
            servers = (await admin.ask("GET", "/servers/detail?all_tenants=1")).json()["servers"]
            url = f"{demo.cloud.networks_url}/v2.0/ports"
            ports = (await admin.client.get(url, headers={"X-Auth-Token": admin.token})).json()["ports"]
            hosts = {one["device_id"]: str(one["binding:host_id"]) for one in ports}
            return [(one["status"], hosts.get(one["id"], "")) for one in servers]

        async def follow() -> bool:
            return await bound() == [("ACTIVE", "cell2-host1")] * 2

        await eventually(follow, "the ports of both are bound in the second cell")


async def test_ports_that_the_database_has_forgotten_are_made_again(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo, signed_in(demo.cloud) as admin:
        network = await demo.network("10.1.0.0/24")
        server, other = [await demo.built([{"uuid": network["id"]}]) for _ in range(2)]
        before = {uuid: await demo.ports(uuid) for uuid in (server["id"], other["id"])}

        def forget(connection: Connection) -> None:
            for found in before.values():
                ids = [one["id"] for one in found]
                port_addresses.give_back(connection, ids)
                network_rows.delete(connection, PORTS, ids)

        api = demo.cloud.plane.databases.api
        await api.write(forget)
        # The address of one of them has another port by now.
        address = before[other["id"]][0]["fixed_ips"][0]
        said = {"network_id": network["id"], "fixed_ips": [address]}
        taker = await demo.networks("POST", "ports", {"port": said})
        url = f"{demo.cloud.api_url.removesuffix('/v2.1')}/admin/v1/audit"
        outcomes: set[str] = set()

        async def repaired() -> bool:
            answer = await admin.client.post(
                f"{url}/repair", headers={"X-Auth-Token": admin.token}, json={"dry_run": False}
            )
            assert answer.status_code == 200, answer.text
            found = [one for one in answer.json()["repair"]["differences"] if one["kind"] == "interfaces_differ"]
            outcomes.update(one["outcome"] for one in found)
            return not found

        await eventually(repaired, "nothing differs")
        [after] = await demo.ports(server["id"])
        [was] = before[server["id"]]
        same = ("id", "mac_address", "fixed_ips", "security_groups", "device_owner")
        assert {name: after[name] for name in same} == {name: was[name] for name in same}
        assert addresses(await demo.server(server["id"])) == addresses(server)

        async def is_told() -> bool:
            return addresses(await demo.server(other["id"])) == {}

        await eventually(is_told, "the row says that the address is another's")
        lost, ip = before[other["id"]][0]["id"], address["ip_address"]
        why = f"nterface {lost} ({ip}) is lost: another port has {ip}"
        assert outcomes == {"mended", f"mended: i{why} (port {taker['id']})"}
        answer = await demo.compute.ask("GET", f"/servers/{other['id']}/os-instance-actions")
        told = {one["action"]: one["message"] for one in answer.json()["instanceActions"]}
        assert told == {"create": None, "detach_interface": f"I{why}."}
        await demo.delete(server["id"])
        assert await demo.ports(server["id"]) == []
