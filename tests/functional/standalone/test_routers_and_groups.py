"""Routers, floating addresses and security groups over HTTP: what joins what, what is in the way of what."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.network_session import NetworkSession

TOPOLOGY = "/auto-allocated-topology/null"


@dataclass(frozen=True)
class Site:
    """An external network, and a router between it and a network with a port."""

    outside: str
    router: str
    network: str
    subnet: str
    port: str


async def _site(networks: NetworkSession, **outside: Any) -> Site:
    external = await networks.make("network", by="admin", **{"router:external": True, **outside})
    of = {"network_id": external["id"], "ip_version": 4, "cidr": "203.0.113.0/28"}
    await networks.make("subnet", by="admin", **of)
    router = await networks.make("router", external_gateway_info={"network_id": external["id"]})
    network = await networks.make("network")
    subnet = await networks.make("subnet", network_id=network["id"], ip_version=4, cidr="10.0.0.0/24")
    port = await networks.make("port", network_id=network["id"])
    return Site(external["id"], router["id"], network["id"], subnet["id"], port["id"])


async def _join(networks: NetworkSession, site: Site) -> dict[str, Any]:
    answer = await networks.ask("PUT", f"/routers/{site.router}/add_router_interface", {"subnet_id": site.subnet})
    assert answer.status_code == 200, answer.text
    joined: dict[str, Any] = answer.json()
    return joined


async def test_a_floating_address_leads_through_a_router(networks: NetworkSession) -> None:
    site = await _site(networks)
    wanted = {"floating_network_id": site.outside, "port_id": site.port}
    status, kind, _ = await networks.refused("POST", "/floatingips", {"floatingip": wanted})
    assert (status, kind) == (404, "ExternalGatewayForFloatingIPNotFound")
    assert await networks.listed("floatingip") == [], "nothing is half done"
    joined = await _join(networks, site)
    floating = await networks.make("floatingip", **wanted)
    assert (floating["floating_ip_address"], floating["fixed_ip_address"]) == ("203.0.113.3", "10.0.0.2")
    assert (floating["router_id"], floating["status"]) == (site.router, "ACTIVE")
    assert floating["port_details"]["network_id"] == site.network
    status, kind, _ = await networks.refused("POST", "/floatingips", {"floatingip": wanted})
    assert (status, kind) == (409, "FloatingIPPortAlreadyAssociated")
    for path, kind in (
        (f"/routers/{site.router}/remove_router_interface", "RouterInterfaceInUseByFloatingIP"),
        (f"/routers/{site.router}", "RouterExternalGatewayInUseByFloatingIp"),
    ):
        body = {"port_id": joined["port_id"]} if path.endswith("interface") else _router(external_gateway_info=None)
        assert (await networks.refused("PUT", path, body))[:2] == (409, kind)
    loose = await networks.change("floatingip", floating["id"], port_id=None)
    assert (loose["port_id"], loose["fixed_ip_address"], loose["router_id"], loose["status"]) == (
        None,
        None,
        None,
        "DOWN",
    )
    again = await networks.change("floatingip", floating["id"], port_id=site.port)
    assert again["fixed_ip_address"] == "10.0.0.2"
    await networks.delete("port", site.port)
    assert (await networks.show("floatingip", floating["id"]))["port_id"] is None
    await networks.delete("floatingip", floating["id"])
    assert await networks.listed("port", f"?network_id={site.outside}", by="admin") == await networks.listed(
        "port", "?device_owner=network%3Arouter_gateway", by="admin"
    )


@pytest.mark.parametrize("gateway", ["10.0.0.1", "10.0.0.254"])
@pytest.mark.parametrize("first", ["of the gateway", "another"])
async def test_a_floating_address_leads_through_the_router_by_which_guests_answer(
    networks: NetworkSession, gateway: str, first: str
) -> None:
    """Whoever else has joined a router to the subnet, whichever was first: a guest answers through its gateway."""
    external = await networks.make("network", by="admin", **{"router:external": True})
    await networks.make("subnet", by="admin", network_id=external["id"], ip_version=4, cidr="203.0.113.0/28")
    network = await networks.make("network", by="admin", shared=True)
    of = {"network_id": network["id"], "ip_version": 4, "cidr": "10.0.0.0/24", "gateway_ip": gateway}
    subnet = await networks.make("subnet", by="admin", **of)
    outside = {"external_gateway_info": {"network_id": external["id"]}}

    async def joined(by: str, interface: dict[str, str]) -> str:
        router = await networks.make("router", by=by, **outside)
        answer = await networks.ask("PUT", f"/routers/{router['id']}/add_router_interface", interface, by=by)
        assert answer.status_code == 200, answer.text
        return str(router["id"])

    async def others() -> None:
        for _ in range(3):
            port = await networks.make("port", network_id=network["id"])
            await joined("demo", {"port_id": port["id"]})

    if first == "another":
        await others()
    right = await joined("admin", {"subnet_id": subnet["id"]})
    if first != "another":
        await others()
    port = await networks.make("port", network_id=network["id"])
    floating = await networks.make("floatingip", floating_network_id=external["id"], port_id=port["id"])
    assert floating["router_id"] == right


def _router(**fields: Any) -> dict[str, Any]:
    return {"router": fields}


async def test_many_want_floating_addresses(networks: NetworkSession) -> None:
    site = await _site(networks)
    body = {"floatingip": {"floating_network_id": site.outside}}
    answers = await asyncio.gather(*(networks.ask("POST", "/floatingips", body) for _ in range(20)))
    made = [one.json()["floatingip"]["floating_ip_address"] for one in answers if one.status_code == 201]
    # A /28 has 14; one is the gateway's, one the router's.
    assert len(made) == len(set(made)) == 12
    assert {one.json()["NeutronError"]["type"] for one in answers if one.status_code == 409} == {
        "IpAddressGenerationFailure"
    }


async def test_a_port_gets_one_floating_address_of_two(networks: NetworkSession) -> None:
    site = await _site(networks)
    await _join(networks, site)
    body = {"floatingip": {"floating_network_id": site.outside, "port_id": site.port}}
    answers = await asyncio.gather(*(networks.ask("POST", "/floatingips", body) for _ in range(4)))
    assert sorted(one.status_code for one in answers) == [201, 409, 409, 409]
    assert len(await networks.listed("floatingip")) == 1


async def test_interfaces_of_a_router(networks: NetworkSession) -> None:
    site = await _site(networks)
    path = f"/routers/{site.router}"
    for body, why in (({}, "either"), ({"subnet_id": site.subnet, "port_id": site.port}, "either")):
        status, _, message = await networks.refused("PUT", f"{path}/add_router_interface", body)
        assert (status, why in message) == (400, True)
    joined = await _join(networks, site)
    assert joined["subnet_ids"] == [site.subnet]
    port = await networks.show("port", joined["port_id"])
    assert (port["device_owner"], port["device_id"]) == ("network:router_interface", site.router)
    assert [one["ip_address"] for one in port["fixed_ips"]] == ["10.0.0.1"]
    status, _, message = await networks.refused("PUT", f"{path}/add_router_interface", {"subnet_id": site.subnet})
    assert (status, "overlaps" in message) == (400, True)
    assert (await networks.refused("DELETE", f"/ports/{joined['port_id']}"))[1] == "ServicePortInUse"
    assert (await networks.refused("DELETE", path))[1] == "RouterInUse"
    assert (await networks.refused("DELETE", f"/subnets/{site.subnet}"))[1] == "SubnetInUse"
    moved = {"port": {"device_id": "other"}}
    assert (await networks.refused("PUT", f"/ports/{joined['port_id']}", moved))[1] == "ServicePortInUse"
    routes = {"router": {"routes": [{"destination": "192.0.2.0/24", "nexthop": "10.0.0.9"}]}}
    added = (await networks.ask("PUT", f"{path}/add_extraroutes", routes)).json()["router"]["routes"]
    assert added == routes["router"]["routes"]
    far = {"router": {"routes": [{"destination": "192.0.2.0/24", "nexthop": "10.9.9.9"}]}}
    status, _, message = await networks.refused("PUT", f"{path}/add_extraroutes", far)
    assert (status, "not connected" in message) == (400, True)
    remove = (f"{path}/remove_router_interface", {"subnet_id": site.subnet})
    assert (await networks.refused("PUT", *remove))[1] == "RouterInterfaceInUseByRoute"
    assert (await networks.ask("PUT", f"{path}/remove_extraroutes", routes)).json()["router"]["routes"] == []
    assert (await networks.ask("PUT", *remove)).json()["port_id"] == joined["port_id"]
    assert (await networks.refused("PUT", *remove))[:2] == (404, "RouterInterfaceNotFound")
    by_port = {"port_id": site.port}
    assert (await networks.ask("PUT", f"{path}/add_router_interface", by_port)).status_code == 200
    assert (await networks.refused("PUT", f"{path}/add_router_interface", by_port))[1] == "PortInUse"
    assert (await networks.ask("PUT", f"{path}/remove_router_interface", by_port)).status_code == 200
    await networks.delete("router", site.router)
    assert await networks.listed("port", f"?network_id={site.outside}", by="admin") == []


async def test_gateways(networks: NetworkSession) -> None:
    site = await _site(networks)
    shown = (await networks.show("router", site.router))["external_gateway_info"]
    assert (shown["network_id"], shown["enable_snat"]) == (site.outside, True)
    assert [one["ip_address"] for one in shown["external_fixed_ips"]] == ["203.0.113.2"]
    for wanted, status in (
        ({"network_id": site.network}, 400),
        ({"network_id": site.outside, "enable_snat": False}, 403),
        ({"network_id": "00000000-0000-4000-8000-000000000000"}, 404),
    ):
        changes = _router(external_gateway_info=wanted)
        assert (await networks.refused("PUT", f"/routers/{site.router}", changes))[0] == status
    fixed = {"network_id": site.outside, "external_fixed_ips": [{"ip_address": "203.0.113.9"}], "enable_snat": False}
    after = await networks.change("router", site.router, by="admin", external_gateway_info=fixed)
    assert [one["ip_address"] for one in after["external_gateway_info"]["external_fixed_ips"]] == ["203.0.113.9"]
    cleared = await networks.change("router", site.router, external_gateway_info={})
    assert cleared["external_gateway_info"] is None
    assert await networks.listed("port", f"?network_id={site.outside}", by="admin") == []
    assert (await networks.refused("POST", "/ports", {"port": {"network_id": site.outside}}))[0] == 403


async def test_the_default_group_and_others(networks: NetworkSession) -> None:
    [default] = await networks.listed("security_group")
    assert default["name"] == "default"
    means = sorted(
        (rule["direction"], rule["ethertype"], rule["remote_group_id"]) for rule in default["security_group_rules"]
    )
    assert means == [
        ("egress", "IPv4", None),
        ("egress", "IPv6", None),
        ("ingress", "IPv4", default["id"]),
        ("ingress", "IPv6", default["id"]),
    ]
    assert [one["id"] for one in await networks.listed("security_group")] == [default["id"]]
    network = await networks.make("network")
    port = await networks.make("port", network_id=network["id"])
    assert port["security_groups"] == [default["id"]]
    open_port = await networks.make("port", network_id=network["id"], port_security_enabled=False)
    assert open_port["security_groups"] == []
    group = await networks.make("security_group", name="web")
    changed = await networks.change("port", port["id"], security_groups=[group["id"], group["id"]])
    assert changed["security_groups"] == [group["id"]]
    assert [one["id"] for one in await networks.listed("port", f"?security_groups={group['id']}")] == [port["id"]]
    assert (await networks.refused("DELETE", f"/security-groups/{group['id']}"))[1] == "SecurityGroupInUse"
    for path, body, kind in (
        ("DELETE", None, "SecurityGroupCannotRemoveDefault"),
        ("PUT", {"security_group": {"name": "other"}}, "SecurityGroupCannotUpdateDefault"),
    ):
        assert (await networks.refused(path, f"/security-groups/{default['id']}", body))[:2] == (409, kind)
    assert (await networks.refused("POST", "/security-groups", {"security_group": {"name": "default"}}))[0] == 409
    refers = await networks.make(
        "security_group_rule", security_group_id=default["id"], direction="ingress", remote_group_id=group["id"]
    )
    await networks.change("port", port["id"], security_groups=[])
    await networks.delete("security_group", group["id"])
    assert (await networks.refused("GET", f"/security-group-rules/{refers['id']}"))[0] == 404


@pytest.mark.parametrize(
    ("rule", "status", "why"),
    [
        ({"protocol": "odd"}, 400, "protocol"),
        ({"protocol": 256}, 400, "protocol"),
        ({"protocol": "tcp", "port_range_min": 0, "port_range_max": 80}, 400, "port 0"),
        ({"protocol": "tcp", "port_range_min": 81, "port_range_max": 80}, 400, "port_range_min must be"),
        ({"protocol": "tcp", "port_range_min": 80}, 400, "port_range_min must be"),
        ({"port_range_min": 80, "port_range_max": 80}, 400, "no ports"),
        ({"protocol": "icmp", "port_range_max": 8}, 400, "is missing"),
        ({"protocol": "icmp", "port_range_min": 256}, 400, "ICMP type"),
        ({"protocol": "icmpv6"}, 400, "IPv6"),
        ({"ethertype": "IPv6", "remote_ip_prefix": "10.0.0.0/8"}, 400, "Conflicting value ethertype"),
        ({"remote_ip_prefix": "x"}, 400, "not a valid CIDR"),
        ({"remote_ip_prefix": "10.0.0.0/8", "remote_group_id": "x"}, 404, "x"),
        ({"remote_group_id": "none"}, 404, "none"),
        ({"direction": "sideways"}, 400, "direction"),
        ({"ethertype": "ARP"}, 400, "ethertype"),
    ],
)
async def test_rules_that_cannot_be(networks: NetworkSession, rule: dict[str, Any], status: int, why: str) -> None:
    group = await networks.make("security_group", name="web")
    said = {"security_group_rule": {"security_group_id": group["id"], "direction": "ingress", **rule}}
    answered, _, message = await networks.refused("POST", "/security-group-rules", said)
    assert (answered, why in message) == (status, True), message
    assert len((await networks.show("security_group", group["id"]))["security_group_rules"]) == 2


async def test_a_rule_is_there_once(networks: NetworkSession) -> None:
    group = await networks.make("security_group", name="web")
    said = {"security_group_id": group["id"], "direction": "ingress", "protocol": "TCP"}
    ports: dict[str, Any] = {"port_range_min": 22, "port_range_max": 22}
    made = await networks.make("security_group_rule", **said, **ports, remote_ip_prefix="10.0.0.7/8")
    assert (made["protocol"], made["remote_ip_prefix"]) == ("tcp", "10.0.0.7/8")
    again = {"security_group_rule": {**said, **ports, "remote_ip_prefix": "10.0.0.0/8"}}
    assert (await networks.refused("POST", "/security-group-rules", again))[:2] == (409, "SecurityGroupRuleExists")
    assert (await networks.refused("PUT", f"/security-group-rules/{made['id']}", _rule(protocol="udp")))[0] == 400
    both = {"security_group_rule": {**said, "remote_ip_prefix": "10.0.0.0/8", "remote_group_id": group["id"]}}
    assert (await networks.refused("POST", "/security-group-rules", both))[0] == 400


def _rule(**fields: Any) -> dict[str, Any]:
    return {"security_group_rule": fields}


async def test_the_topology_of_a_project(networks: NetworkSession) -> None:
    assert (await networks.ask("GET", f"{TOPOLOGY}?fields=dry-run")).json()["auto_allocated_topology"][
        "id"
    ] == "dry-run=pass"
    assert await networks.listed("network") == []
    answers = await asyncio.gather(*(networks.ask("GET", TOPOLOGY) for _ in range(4)))
    [network] = {one.json()["auto_allocated_topology"]["id"] for one in answers}
    assert [one["cidr"] for one in await networks.listed("subnet")] == ["10.100.0.0/22"]
    port = await networks.make("port", network_id=network)
    assert (await networks.refused("DELETE", TOPOLOGY))[1] == "NetworkInUse"
    await networks.delete("port", port["id"])
    assert (await networks.ask("DELETE", TOPOLOGY)).status_code == 204
    assert await networks.listed("network") == []


async def test_the_topology_reaches_the_default_external_network(networks: NetworkSession) -> None:
    site = await _site(networks, is_default=True)
    network = (await networks.ask("GET", TOPOLOGY)).json()["auto_allocated_topology"]["id"]
    [router] = [one for one in await networks.listed("router") if one["id"] != site.router]
    assert router["external_gateway_info"]["network_id"] == site.outside
    port = await networks.make("port", network_id=network)
    floating = await networks.make("floatingip", floating_network_id=site.outside, port_id=port["id"])
    assert floating["router_id"] == router["id"]
    await networks.delete("port", port["id"])
    assert (await networks.ask("DELETE", TOPOLOGY)).status_code == 204
    assert [one["id"] for one in await networks.listed("router")] == [site.router]


async def test_an_external_network_goes_with_addresses_that_lead_nowhere(networks: NetworkSession) -> None:
    site = await _site(networks)
    await networks.make("floatingip", floating_network_id=site.outside)
    assert (await networks.refused("DELETE", f"/networks/{site.outside}", by="admin"))[1] == "NetworkInUse"
    inside = {"network": {"router:external": False}}
    assert (await networks.refused("PUT", f"/networks/{site.outside}", inside, by="admin"))[1] == "ExternalNetworkInUse"
    await networks.change("router", site.router, external_gateway_info=None)
    await networks.delete("network", site.outside, by="admin")
    assert await networks.listed("floatingip") == []
