"""Ports that ask for resources of their hosts join the choice of the host; Neutron is told what serves them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from skep.config.compute import FakeFailure
from skep.config.providers import HostProvider
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.functional.networks.test_servers_with_addresses import NEWEST
from tests.support.cloud_beside import CloudBeside, cloud_beside
from tests.support.resource_requests import EGRESS, PACKETS, PHYSICAL, Policies, flat, provider_uuid, providers

FIRST, SECOND = "cell1-host1", "cell1-host2"


class Asking(BesideNeutron):
    """A user whose ports have policies, with an admin."""

    def __init__(self, beside: CloudBeside, compute: ComputeSession, image: str, admin: ComputeSession) -> None:
        super().__init__(beside, compute, image)
        self.admin = admin
        self.policies = Policies()
        beside.neutron.reworded = self.policies

    async def port(self, network: Any, **shown: Any) -> str:
        """Make a port that shows these fields beside its own."""
        made = await self.networks("POST", "ports", {"port": {"network_id": network["id"]}})
        self.policies.shown[made["id"]] = shown
        return str(made["id"])

    async def bound(self, port: str) -> tuple[str, Any]:
        """Return to which host a port is bound, and what Neutron is told of its providers."""
        url = f"{self.networks_url}/v2.0/ports/{port}"
        said = (await self.admin.client.get(url, headers={"X-Auth-Token": self.admin.token})).json()["port"]
        return said["binding:host_id"], said["binding:profile"].get("allocation")

    async def is_bound(self, port: str, host: str, allocation: Any) -> None:
        """Wait until a port is bound so."""

        async def so() -> bool:
            return await self.bound(port) == (host, allocation)

        await eventually(so, f"the port is bound to {host or 'no host'}")

    async def act(self, uuid: str, action: dict[str, Any], version: str = NEWEST) -> Any:
        """Have the admin do something to a server; return the response."""
        return await self.admin.ask("POST", f"/servers/{uuid}/action", action, version=version)


@asynccontextmanager
async def asking(
    root: Path, *failures: FakeFailure, of_hosts: tuple[HostProvider, ...], cells: int = 1, hosts: int = 2, **said: Any
) -> AsyncIterator[Asking]:
    """Run a cloud whose hosts have these providers; `said`: of its conductors."""
    async with cloud_beside(
        root,
        *failures,
        networks=True,
        cells=cells,
        hosts=hosts,
        of_hosts={"providers": of_hosts},
        of_conductors=said,
    ) as beside:
        admin = await beside.session("admin", "admin")
        yield Asking(beside, await beside.session(), await beside.image(), admin)


async def test_groups_of_a_port_are_served_by_one_agent_until_it_has_no_more(tmp_path: Path) -> None:
    """Only one host has such providers. What it promised is counted, and named where it is missing."""
    async with asking(tmp_path, of_hosts=providers(SECOND)) as demo:
        network = await demo.network("10.1.0.0/24")
        wanted = {
            "request_groups": [
                {"id": "bandwidth", "required": [PHYSICAL], "resources": {EGRESS: 600}},
                {"id": "packets", "required": [], "resources": {PACKETS: 10}},
            ],
            "same_subtree": ["bandwidth", "packets"],
        }
        port, other = await demo.port(network, resource_request=wanted), await demo.port(network)
        demo.policies.shown[other] = {"resource_request": flat(500)}
        server = await demo.built([{"port": port}])
        assert server["status"] == "ACTIVE", server
        serving = {"bandwidth": provider_uuid(SECOND, "bridge"), "packets": provider_uuid(SECOND, "agent")}
        assert await demo.bound(port) == (SECOND, serving)
        await demo.no_differences()
        refused = await demo.built([{"port": other}])
        assert refused["status"] == "ERROR"
        assert EGRESS in refused["fault"]["message"], refused["fault"]
        assert (await demo.bound(other))[1] is None
        await demo.delete(server["id"])
        assert await demo.bound(port) == ("", None)
        again = await demo.built([{"port": other}], name="again")
        assert again["status"] == "ACTIVE", again
        assert await demo.bound(other) == (SECOND, provider_uuid(SECOND, "bridge"))


async def test_no_host_without_such_a_provider_is_chosen(tmp_path: Path) -> None:
    """Neither one that has none, nor one whose provider lacks the trait, which the user is told of, too."""
    lacking = HostProvider(
        name="bridge",
        uuid=provider_uuid(FIRST, "bridge"),
        inventories=providers(FIRST)[1].inventories,
        hosts=FIRST,
    )
    async with asking(tmp_path, of_hosts=(lacking,)) as demo:
        port = await demo.port(await demo.network("10.1.0.0/24"), resource_request=flat(10))
        refused = await demo.built([{"port": port}])
        assert refused["status"] == "ERROR"
        assert "No valid host" in refused["fault"]["message"]
        url = f"{demo.cloud.api_url.removesuffix('/v2.1')}/admin/v1/servers/{refused['id']}/placement"
        said = await demo.admin.client.get(url, headers={"X-Auth-Token": demo.admin.token})
        assert said.status_code == 200, said.text
        assert f"{EGRESS}=10" in said.text, said.text
        assert PHYSICAL in said.text


async def test_a_cloud_without_such_providers_says_what_is_lacking(tmp_path: Path) -> None:
    async with asking(tmp_path, of_hosts=()) as demo:
        port = await demo.port(await demo.network("10.1.0.0/24"), resource_request=flat(10))
        refused = await demo.built([{"port": port}])
        assert refused["status"] == "ERROR"
        assert "No valid host" in refused["fault"]["message"]
        assert EGRESS in refused["fault"]["message"], refused["fault"]


async def test_the_next_host_serves_the_port_by_its_own_provider(tmp_path: Path) -> None:
    """A build fails on the first host; Neutron is told of the providers of the second."""
    failure = FakeFailure(operation="spawn", error="SpawnFailed", host=FIRST, server="one")
    async with asking(tmp_path, failure, of_hosts=(*providers(FIRST), *providers(SECOND))) as demo:
        network = await demo.network("10.1.0.0/24")
        filler = {"name": "filler", "imageRef": demo.image, "flavorRef": "1", "networks": "none", "host": SECOND}
        answer = await demo.admin.ask("POST", "/servers", {"server": filler}, version=NEWEST)
        assert answer.status_code == 202, answer.text
        await demo.beside.calm(demo.admin, answer.json()["server"]["id"], "ACTIVE")
        port = await demo.port(network, resource_request=flat(10))
        server = await demo.built([{"port": port}])
        assert server["status"] == "ACTIVE", server
        shown = (await demo.admin.ask("GET", f"/servers/{server['id']}", version=NEWEST)).json()["server"]
        assert shown["OS-EXT-SRV-ATTR:host"] == SECOND
        await demo.is_bound(port, SECOND, provider_uuid(SECOND, "bridge"))
        listed = (await demo.admin.ask("GET", f"/servers/{server['id']}/os-instance-actions", version=NEWEST)).json()
        assert [one["action"] for one in listed["instanceActions"]] == ["create"]


async def test_the_allocation_goes_with_a_shelved_server_and_comes_back(tmp_path: Path) -> None:
    """A shelved server holds nothing; unshelved, it is where such a provider is."""
    async with asking(tmp_path, of_hosts=providers(SECOND)) as demo:
        port = await demo.port(await demo.network("10.1.0.0/24"), resource_request=flat(600))
        server = await demo.built([{"port": port}])
        serving = provider_uuid(SECOND, "bridge")
        assert await demo.bound(port) == (SECOND, serving)
        assert (await demo.act(server["id"], {"shelve": None})).status_code == 202
        await demo.beside.calm(demo.compute, server["id"], "SHELVED_OFFLOADED")
        await demo.is_bound(port, "", None)
        assert (await demo.act(server["id"], {"unshelve": None}, "2.76")).status_code == 202
        await demo.beside.calm(demo.compute, server["id"], "ACTIVE")
        await demo.is_bound(port, SECOND, serving)


async def test_an_evacuated_server_is_served_by_its_new_host(tmp_path: Path) -> None:
    async with asking(tmp_path, of_hosts=(*providers(FIRST), *providers(SECOND))) as demo:
        port = await demo.port(await demo.network("10.1.0.0/24"), resource_request=flat(600))
        server = await demo.built([{"port": port}])
        lost, allocation = await demo.bound(port)
        assert allocation == provider_uuid(lost, "bridge")
        [other] = {FIRST, SECOND} - {lost}
        listed = (await demo.admin.ask("GET", f"/os-services?host={lost}", version=NEWEST)).json()["services"]
        for service in listed:
            path, down = f"/os-services/{service['id']}", {"forced_down": True}
            assert (await demo.admin.ask("PUT", path, down, version=NEWEST)).status_code == 200

        async def evacuated() -> bool:
            answer = await demo.act(server["id"], {"evacuate": {}})
            return bool(answer.status_code == 200)

        await eventually(evacuated, "the evacuation is accepted")
        await demo.is_bound(port, other, provider_uuid(other, "bridge"))
        await demo.beside.calm(demo.compute, server["id"], "SHUTOFF")
        shown = (await demo.admin.ask("GET", f"/servers/{server['id']}", version=NEWEST)).json()["server"]
        assert shown["OS-EXT-SRV-ATTR:host"] == other


async def test_what_is_refused_of_ports_that_ask(tmp_path: Path) -> None:
    """A create before 2.72, an attach, kinds of ports and NUMA policies; the field and the port are named."""
    async with asking(tmp_path, of_hosts=providers(FIRST)) as demo:
        network = await demo.network("10.1.0.0/24")
        port = await demo.port(network, resource_request=flat(10))
        body = {"name": "old", "imageRef": demo.image, "flavorRef": "1", "networks": [{"port": port}]}
        old = await demo.compute.ask("POST", "/servers", {"server": body}, version="2.71")
        assert old.status_code == 400, old.text
        assert "server.networks[0].port" in old.json()["badRequest"]["message"]
        assert "2.72" in old.json()["badRequest"]["message"]
        server = await demo.built("none")
        attached = {"interfaceAttachment": {"port_id": port}}
        answer = await demo.compute.ask("POST", f"/servers/{server['id']}/os-interface", attached)
        assert answer.status_code == 400, answer.text
        assert "interfaceAttachment.port_id" in answer.json()["badRequest"]["message"]
        for shown in ({"binding:vnic_type": "direct"}, {"numa_affinity_policy": "required"}):
            other = await demo.port(network, resource_request=flat(10), **shown)
            refused = await demo.create([{"port": other}])
            assert refused.status_code == 400, refused.text
            assert next(iter(shown)) in refused.json()["badRequest"]["message"]


async def test_a_request_that_makes_no_sense_is_the_service_s_failure(tmp_path: Path) -> None:
    async with asking(tmp_path, of_hosts=providers(FIRST)) as demo:
        port = await demo.port(await demo.network("10.1.0.0/24"), resource_request={"resources": {EGRESS: "much"}})
        answer = await demo.create([{"port": port}])
        assert answer.status_code == 503, answer.text


async def test_a_request_that_changed_before_the_build_ends_it(tmp_path: Path) -> None:
    """The server was placed by another one: no host is known to have what the port asks for now."""
    async with asking(tmp_path, of_hosts=providers(FIRST)) as demo:
        network = await demo.network("10.1.0.0/24")
        port = await demo.port(network)
        asked = {"request_groups": [{"id": "new", "required": [], "resources": {EGRESS: 1}}], "same_subtree": []}

        def passes(method: str, path: str, moment: str) -> None:
            """Give the port a policy once the create has looked it up."""
            if method == "GET" and "device_id" in path and moment == "before":
                demo.policies.shown[port] = {"resource_request": asked}

        demo.neutron.passes = passes
        server = await demo.built([{"port": port}])
        assert server["status"] == "ERROR"
        assert f"The resource request of port {port}" in server["fault"]["message"]
        assert await demo.bound(port) == ("", None)


async def test_a_network_whose_own_policy_has_a_minimum_gives_ports_only_to_who_names_them(tmp_path: Path) -> None:
    """Nothing was claimed for a port that is made only after the choice (Nova's rule)."""
    async with asking(tmp_path, of_hosts=providers(FIRST)) as demo:
        network, plain = await demo.network("10.1.0.0/24"), await demo.network("10.2.0.0/24")
        demo.policies.of_networks[network["id"]] = {"resource_request": flat(10)}

        async def ports() -> list[str]:
            return [one["id"] for one in await demo.networks("GET", f"ports?network_id={network['id']}")]

        refused = await demo.built([{"uuid": network["id"]}])
        assert refused["status"] == "ERROR", refused
        assert "has a QoS policy with a minimum" in refused["fault"]["message"]
        assert await ports() == []
        server = await demo.built([{"uuid": plain["id"]}], name="plain")
        assert server["status"] == "ACTIVE", server
        attached = {"interfaceAttachment": {"net_id": network["id"]}}
        answer = await demo.compute.ask("POST", f"/servers/{server['id']}/os-interface", attached)
        assert answer.status_code == 400, answer.text
        assert "has a QoS policy with a minimum" in answer.json()["badRequest"]["message"]
        assert await ports() == []
        port = await demo.port(network, resource_request=flat(10))
        named = await demo.built([{"port": port}], name="named")
        assert named["status"] == "ACTIVE", named
        assert await demo.bound(port) == (FIRST, provider_uuid(FIRST, "bridge"))
