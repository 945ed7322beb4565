"""Interfaces that a server gets and loses after its build."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.api.handlers import server_interfaces
from skep.api.handlers.server_actions import carry_out
from skep.config.networks import NetworksSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain.errors import OutcomeUnknown
from tests.functional.networks.test_servers_with_addresses import NEWEST, Tenant, addresses, tenant


async def attach(demo: Tenant, server: Any, version: str = NEWEST, **said: Any) -> Any:
    path = f"/servers/{server['id']}/os-interface"
    return await demo.compute.ask("POST", path, {"interfaceAttachment": said}, version=version)


async def attached(demo: Tenant, server: Any, **said: Any) -> Any:
    answer = await attach(demo, server, **said)
    assert answer.status_code == 200, answer.text
    return answer.json()["interfaceAttachment"]


async def detach(demo: Tenant, server: Any, port_id: str) -> int:
    answer = await demo.compute.ask("DELETE", f"/servers/{server['id']}/os-interface/{port_id}", version=NEWEST)
    assert answer.status_code != 202 or not answer.content
    return int(answer.status_code)


async def shown(demo: Tenant, server: Any) -> list[Any]:
    answer = await demo.compute.ask("GET", f"/servers/{server['id']}/os-interface", version=NEWEST)
    found: list[Any] = answer.json()["interfaceAttachments"]
    return found


async def test_a_server_gets_interfaces_and_loses_them(tmp_path: Path) -> None:
    """At once: what is read after the answer has, or has not, the interface."""
    async with tenant(tmp_path) as demo:
        first, second = await demo.network("10.1.0.0/24", "first"), await demo.network("10.2.0.0/24", "second")
        brought = await demo.networks("POST", "ports", {"port": {"network_id": second["id"]}})
        server = await demo.built([{"uuid": first["id"]}])
        one = await attached(demo, server, net_id=first["id"], fixed_ips=[{"ip_address": "10.1.0.77"}], tag="back")
        two = await attached(demo, server, port_id=brought["id"])
        assert [vif["port_id"] for vif in await shown(demo, server)][1:] == [one["port_id"], brought["id"]]
        assert (one["tag"], one["net_id"], one["port_state"]) == ("back", first["id"], "ACTIVE")
        assert two == {
            "net_id": second["id"],
            "port_id": brought["id"],
            "mac_addr": brought["mac_address"],
            "port_state": "ACTIVE",
            "fixed_ips": brought["fixed_ips"],
            "tag": None,
        }
        now = addresses(await demo.server(server["id"]))
        assert now["first"][1:] == ["10.1.0.77"]
        assert now["second"] == [brought["fixed_ips"][0]["ip_address"]]

        assert await detach(demo, server, one["port_id"]) == 202
        assert await detach(demo, server, brought["id"]) == 202
        assert len(await shown(demo, server)) == 1
        assert await detach(demo, server, one["port_id"]) == 404
        assert [port["device_id"] for port in await demo.networks("GET", f"ports?id={brought['id']}")] == [""]
        assert await demo.networks("GET", f"ports?id={one['port_id']}") == []
        records = (await demo.compute.ask("GET", f"/servers/{server['id']}/os-instance-actions", version=NEWEST)).json()
        named = [record["action"] for record in records["instanceActions"]]
        assert named == ["detach_interface"] * 2 + ["attach_interface"] * 2 + ["create"]
        here = (await demo.server(server["id"]))["hostId"]
        for record in records["instanceActions"]:
            path = f"/servers/{server['id']}/os-instance-actions/{record['request_id']}"
            told = (await demo.compute.ask("GET", path, version=NEWEST)).json()["instanceAction"]
            assert [one["hostId"] for one in told["events"]] == [here], record["action"]

        await attached(demo, server, net_id=second["id"])
        await demo.delete(server["id"])
        assert await demo.ports(server["id"]) == []


async def test_an_address_where_ports_make_theirs_is_refused(tmp_path: Path) -> None:
    """By a create and by an attach: no port could have it."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        modes = {"ip_version": 6, "ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
        subnet = {"network_id": network["id"], "cidr": "2001:db8::/64", **modes}
        await demo.networks("POST", "subnets", {"subnet": subnet})
        answer = await demo.create([{"uuid": network["id"], "fixed_ip": "2001:db8::77"}])
        assert answer.status_code == 400
        assert "server.networks[0].fixed_ip" in answer.text
        server = await demo.built("none")
        said = {"net_id": network["id"], "fixed_ips": [{"ip_address": "2001:db8::77"}]}
        path = f"/servers/{server['id']}/os-interface"
        answer = await demo.compute.ask("POST", path, {"interfaceAttachment": said}, version=NEWEST)
        assert answer.status_code == 400
        assert "interfaceAttachment.fixed_ips[0].ip_address" in answer.text
        assert await demo.ports(server["id"]) == []


async def test_a_server_without_interfaces_gets_its_first(tmp_path: Path) -> None:
    """The port is bound to the host that the server has, also after a move."""
    async with tenant(tmp_path, hosts=2) as demo:
        network = await demo.network("10.1.0.0/24")
        server = await demo.built("none")
        vif = await attached(demo, server, net_id=network["id"])

        async def host() -> str:
            async with signed_in(demo.cloud, "admin", "admin") as admin:
                path = f"/servers/{server['id']}"
                return str((await admin.ask("GET", path)).json()["server"]["OS-EXT-SRV-ATTR:host"])

        async def bound() -> str:
            async with signed_in(demo.cloud, "admin", "admin") as admin:
                url = f"{demo.cloud.networks_url}/v2.0/ports/{vif['port_id']}"
                answer = await admin.client.get(url, headers={"X-Auth-Token": admin.token})
                return str(answer.json()["port"]["binding:host_id"])

        before = await host()
        assert await bound() == before
        async with signed_in(demo.cloud, "admin", "admin") as admin:
            moved = await admin.ask("POST", f"/servers/{server['id']}/action", {"migrate": None}, version=NEWEST)
            assert moved.status_code == 202, moved.text

        async def follows() -> bool:
            return await host() != before and await bound() == await host()

        await eventually(follows, "the port follows its server")


async def test_what_is_asked_wrongly(tmp_path: Path) -> None:
    """Each error names the field, or says what is in the way; no port is left."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        other = await demo.network("10.2.0.0/24", "other")
        used = await demo.networks("POST", "ports", {"port": {"network_id": network["id"], "device_id": "somebody"}})
        port = await demo.networks("POST", "ports", {"port": {"network_id": other["id"]}})
        server = await demo.built("none")
        unknown = server["id"]
        free, held = [{"ip_address": "10.1.0.9"}], [{"ip_address": used["fixed_ips"][0]["ip_address"]}]
        cases: list[tuple[int, dict[str, Any]]] = [
            (400, {"net_id": network["id"], "port_id": port["id"]}),
            (400, {"fixed_ips": free}),
            (400, {"net_id": network["id"], "fixed_ips": []}),
            (400, {"net_id": network["id"], "fixed_ips": [*free, *held]}),
            (400, {"net_id": network["id"], "fixed_ips": [{"ip_address": "ten"}]}),
            (400, {"net_id": network["id"], "fixed_ips": [{"ip_address": "10.9.0.1"}]}),
            (400, {"net_id": "one"}),
            (400, {"net_id": network["id"], "tag": "a/b"}),
            (400, {"name": "eth1"}),
            (400, {}),  # there are three networks
            (404, {"net_id": unknown}),
            (404, {"port_id": unknown}),
            (409, {"port_id": used["id"]}),
            (409, {"net_id": network["id"], "fixed_ips": held}),
        ]
        for status, said in cases:
            answer = await attach(demo, server, **said)
            assert answer.status_code == status, (said, answer.text)
        absent = await attach(demo, server, port_id=unknown)
        assert f"Port id {unknown} could not be found." in absent.text
        early = await attach(demo, server, "2.48", net_id=network["id"], tag="back")
        assert early.status_code == 400
        assert (await demo.compute.ask("POST", f"/servers/{server['id']}/os-interface", {})).status_code == 400
        nowhere = {"id": port["id"]}
        assert (await attach(demo, nowhere, net_id=network["id"])).status_code == 404
        assert await detach(demo, nowhere, port["id"]) == 404
        assert await demo.ports(server["id"]) == []


@pytest.mark.parametrize("how", ["lock", "suspend"])
async def test_a_server_that_takes_no_change(tmp_path: Path, how: str) -> None:
    """One that is locked, or in another state: neither gets it an interface nor loses it one."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        acted = await demo.compute.ask("POST", f"/servers/{server['id']}/action", {how: None}, version=NEWEST)
        assert acted.status_code == 202, acted.text
        [before] = await demo.ports(server["id"])
        async with signed_in(demo.cloud, "demo", "demo") as again:
            member = Tenant(demo.cloud, again)
            answers = [await attach(member, server, net_id=network["id"])]
            assert [one.status_code for one in answers] == [409], answers[0].text
            assert await detach(member, server, before["id"]) == 409
        assert [port["id"] for port in await demo.ports(server["id"])] == [before["id"]]


async def test_a_delete_while_interfaces_are_attached_leaves_no_port(tmp_path: Path) -> None:
    """Whichever comes first."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        brought = [await demo.networks("POST", "ports", {"port": {"network_id": network["id"]}}) for _ in range(4)]
        server = await demo.built([{"uuid": network["id"]}])
        asked = [
            *(attach(demo, server, net_id=network["id"]) for _ in range(4)),
            demo.compute.ask("DELETE", f"/servers/{server['id']}"),
            *(attach(demo, server, port_id=port["id"]) for port in brought),
        ]
        answers = await asyncio.gather(*asked)
        assert {one.status_code for one in answers} <= {200, 204, 404, 409}

        async def gone() -> bool:
            return (await demo.server(server["id"])) is None and await demo.ports(server["id"]) == []

        await eventually(gone, "the server is gone")
        left = await demo.networks("GET", f"ports?network_id={network['id']}&device_owner=")
        assert sorted(port["id"] for port in left) == sorted(port["id"] for port in brought)
        assert {port["device_id"] for port in left} == {""}


async def test_a_cloud_without_networks_refuses(tmp_path: Path) -> None:
    config = msgspec.structs.replace(http_config(tmp_path), networks=NetworksSettings(kind="none"))
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud, "demo", "demo") as compute:
        demo = Tenant(cloud, compute)
        server = await demo.built("none")
        answer = await attach(demo, server)
        assert (answer.status_code, "no network service is configured" in answer.text) == (400, True)
        assert (await attach(demo, server, port_id=server["id"])).status_code == 404
        assert await detach(demo, server, server["id"]) == 404


async def test_an_interface_that_the_row_may_have_keeps_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def doubtful(*asked: Any) -> None:
        await carry_out(*asked)
        raise OutcomeUnknown("database cell1 did not say whether it stored: gone")

    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24", "first")
        server = await demo.built([{"uuid": network["id"]}])
        monkeypatch.setattr(server_interfaces, "carry_out", doubtful)
        assert (await attach(demo, server, net_id=network["id"])).status_code == 504
        ports = await demo.networks("GET", f"ports?device_id={server['id']}")
        assert {one["port_id"] for one in await shown(demo, server)} == {one["id"] for one in ports}
        assert len(ports) == 2
