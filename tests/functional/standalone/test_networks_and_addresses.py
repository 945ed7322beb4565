"""Networks, subnets and ports over HTTP: addresses, what others may do with them, and many who want the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.network_session import NetworkSession

V4: dict[str, Any] = {"ip_version": 4, "cidr": "10.0.0.0/24"}


async def _network(networks: NetworkSession, by: str = "demo", **subnet: Any) -> tuple[str, str]:
    network = await networks.make("network", by=by, name="n")
    made = await networks.make("subnet", by=by, network_id=network["id"], **{**V4, **subnet})
    return network["id"], made["id"]


def _addresses(port: dict[str, Any]) -> list[str]:
    return [one["ip_address"] for one in port["fixed_ips"]]


async def test_two_hundred_ports_at_once_on_fifty_addresses(networks: NetworkSession) -> None:
    pool = [{"start": "10.0.0.10", "end": "10.0.0.59"}]
    network, subnet = await _network(networks, allocation_pools=pool)
    body = {"port": {"network_id": network}}
    answers = await asyncio.gather(*(networks.ask("POST", "/ports", body) for _ in range(200)))
    made = [one.json()["port"] for one in answers if one.status_code == 201]
    refused = [one.json()["NeutronError"] for one in answers if one.status_code == 409]
    assert (len(made), len(refused)) == (50, 150)
    assert {one["type"] for one in refused} == {"IpAddressGenerationFailure"}
    assert len({address for port in made for address in _addresses(port)}) == 50
    assert len(await networks.listed("port")) == 50
    await networks.delete("port", made[7]["id"])
    again = await networks.make("port", network_id=network)
    assert _addresses(again) == _addresses(made[7])
    assert again["fixed_ips"][0]["subnet_id"] == subnet


async def test_the_same_address_for_two_at_once(networks: NetworkSession) -> None:
    network, subnet = await _network(networks)
    body = {"port": {"network_id": network, "fixed_ips": [{"ip_address": "10.0.0.77"}]}}
    answers = await asyncio.gather(*(networks.ask("POST", "/ports", body) for _ in range(5)))
    assert sorted(one.status_code for one in answers) == [201, 409, 409, 409, 409]
    assert {one.json()["NeutronError"]["type"] for one in answers if one.status_code == 409} == {
        "IpAddressAlreadyAllocated"
    }
    assert _addresses((await networks.listed("port", f"?fixed_ips=subnet_id%3D{subnet}"))[0]) == ["10.0.0.77"]


async def test_a_network_goes_or_has_ports(networks: NetworkSession) -> None:
    network, _ = await _network(networks)
    body = {"port": {"network_id": network}}
    making = [networks.ask("POST", "/ports", body) for _ in range(3)]
    going, *made = await asyncio.gather(networks.ask("DELETE", f"/networks/{network}"), *making)
    ports = [one for one in made if one.status_code == 201]
    if going.status_code == 204:
        assert ports == []
        assert {one.status_code for one in made} == {404}
    else:
        assert going.json()["NeutronError"]["type"] == "NetworkInUse"
        assert len(ports) == len(await networks.listed("port"))


async def test_an_address_rests_before_it_is_given_again(networks: NetworkSession) -> None:
    network, _ = await _network(networks)
    first = await networks.make("port", network_id=network)
    await networks.delete("port", first["id"])
    second = await networks.make("port", network_id=network)
    assert (_addresses(first), _addresses(second)) == (["10.0.0.2"], ["10.0.0.3"])


async def test_addresses_of_both_versions(networks: NetworkSession) -> None:
    network, _ = await _network(networks)
    slaac: dict[str, Any] = {
        "ip_version": 6,
        "cidr": "2001:db8::/64",
        "ipv6_ra_mode": "slaac",
        "ipv6_address_mode": "slaac",
    }
    stateful: dict[str, Any] = {"ip_version": 6, "cidr": "2001:db8:1::/64", "ipv6_address_mode": "dhcpv6-stateful"}
    before = await networks.make("port", network_id=network, mac_address="FA-16-3E-00-00-01")
    for one in (slaac, stateful):
        await networks.make("subnet", network_id=network, **one)
    after = await networks.make("port", network_id=network, mac_address="fa:16:3e:00:00:02")
    own = "2001:db8::f816:3eff:fe00:"
    assert _addresses(after) == ["10.0.0.3", "2001:db8:1::2", f"{own}2"]
    assert _addresses(await networks.show("port", before["id"])) == ["10.0.0.2", f"{own}1"]
    new_mac = {"port": {"mac_address": "fa:16:3e:00:00:03"}}
    assert (await networks.refused("PUT", f"/ports/{before['id']}", new_mac))[0] == 403, "it is an admin's to change"
    moved = await networks.change("port", before["id"], by="admin", mac_address="fa:16:3e:00:00:03")
    assert _addresses(moved) == ["10.0.0.2", f"{own}3"]
    [found] = [one for one in await networks.listed("subnet") if one["ipv6_address_mode"] == "slaac"]
    await networks.delete("subnet", found["id"])
    assert _addresses(await networks.show("port", before["id"])) == ["10.0.0.2"]


@pytest.mark.parametrize("mode", ["slaac", "dhcpv6-stateless"])
async def test_where_ports_make_their_addresses_none_is_chosen(networks: NetworkSession, mode: str) -> None:
    network, v4 = await _network(networks)
    modes = {"ipv6_ra_mode": mode, "ipv6_address_mode": mode}
    subnet = await networks.make("subnet", network_id=network, ip_version=6, cidr="2001:db8::/64", **modes)
    mac, own = "fa:16:3e:00:00:01", "2001:db8::f816:3eff:fe00:1"
    port = await networks.make("port", network_id=network, fixed_ips=[{"subnet_id": v4}], mac_address=mac)
    for chosen in ({"ip_address": "2001:db8::77"}, {"ip_address": "2001:db8::77", "subnet_id": subnet["id"]}):
        for method, path, said in (
            ("POST", "/ports", {"network_id": network, "fixed_ips": [chosen]}),
            ("PUT", f"/ports/{port['id']}", {"fixed_ips": [{"subnet_id": v4}, chosen]}),
        ):
            status, kind, text = await networks.refused(method, path, {"port": said})
            assert (status, kind) == (400, "AllocationOnAutoAddressSubnet"), text
            assert "fixed_ips" in text
    assert _addresses(await networks.show("port", port["id"])) == ["10.0.0.2"], "nothing is half done"
    for wanted in ({"subnet_id": subnet["id"]}, {"ip_address": own}):
        assert _addresses(await networks.change("port", port["id"], fixed_ips=[wanted])) == [own]
    router = await networks.make("router", name="r")
    joined = {"subnet_id": subnet["id"]}
    answer = await networks.ask("PUT", f"/routers/{router['id']}/add_router_interface", joined)
    assert answer.status_code == 200, "a router has the address of the gateway"


async def test_addresses_of_a_port_change(networks: NetworkSession) -> None:
    network, subnet = await _network(networks)
    port = await networks.make("port", network_id=network, fixed_ips=[{"subnet_id": subnet}])
    wanted = [{"subnet_id": subnet}, {"ip_address": "10.0.0.200"}]
    changed = await networks.change("port", port["id"], fixed_ips=wanted)
    assert _addresses(changed) == ["10.0.0.2", "10.0.0.200"]
    assert _addresses(await networks.change("port", port["id"], fixed_ips=[])) == []
    other = await networks.make("port", network_id=network, fixed_ips=[{"ip_address": "10.0.0.200"}])
    taken = {"port": {"fixed_ips": [{"ip_address": "10.0.0.200"}]}}
    status, kind, _ = await networks.refused("PUT", f"/ports/{port['id']}", taken)
    assert (status, kind) == (409, "IpAddressAlreadyAllocated")
    assert _addresses(await networks.show("port", other["id"])) == ["10.0.0.200"]
    assert _addresses(await networks.show("port", port["id"])) == [], "nothing is half done"


async def test_several_at_once_are_all_or_none(networks: NetworkSession) -> None:
    network, _ = await _network(networks, allocation_pools=[{"start": "10.0.0.10", "end": "10.0.0.12"}])
    several = {"ports": [{"network_id": network, "name": str(number)} for number in range(4)]}
    status, kind, _ = await networks.refused("POST", "/ports", several)
    assert (status, kind) == (409, "IpAddressGenerationFailure")
    assert await networks.listed("port") == []
    answer = await networks.ask("POST", "/ports", {"ports": several["ports"][:3]})
    assert [one["name"] for one in answer.json()["ports"]] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("subnet", "why"),
    [
        ({"cidr": "10.0.0.0/33"}, "not a valid IP subnet"),
        ({"cidr": "10.0.0.128/25"}, "overlaps"),
        ({"cidr": "2001:db8::/64"}, "ip_version"),
        ({"ip_version": 5, "cidr": "10.1.0.0/24"}, "ip_version"),
        ({"cidr": "10.1.0.0/24", "gateway_ip": "10.2.0.1"}, "Gateway is not valid"),
        ({"cidr": "10.1.0.0/24", "gateway_ip": "no"}, "not a valid IP address"),
        ({"cidr": "10.1.0.0/24", "dns_nameservers": ["x"]}, "not a valid IP address"),
        ({"cidr": "10.1.0.0/24", "dns_nameservers": ["192.0.2.1"] * 2}, "twice"),
        (
            {"cidr": "10.1.0.0/24", "host_routes": [{"destination": "x", "nexthop": "10.1.0.2"}]},
            "not a valid IP subnet",
        ),
        ({"cidr": "10.1.0.0/24", "host_routes": [{"destination": "::/0", "nexthop": "10.1.0.2"}]}, "does not match"),
        ({"cidr": "10.1.0.0/24", "ipv6_ra_mode": "slaac"}, "not of IPv4"),
        ({"ip_version": 6, "cidr": "2001:db8::/80", "ipv6_address_mode": "slaac"}, "64 bits"),
        (
            {
                "ip_version": 6,
                "cidr": "2001:db8::/64",
                "ipv6_address_mode": "slaac",
                "ipv6_ra_mode": "dhcpv6-stateful",
            },
            "not valid",
        ),
        ({"cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.9", "end": "10.1.0.2"}]}, "beyond its end"),
        ({"cidr": "10.1.0.0/24", "surprise": 1}, "surprise"),
    ],
)
async def test_subnets_that_cannot_be(networks: NetworkSession, subnet: dict[str, Any], why: str) -> None:
    network, _ = await _network(networks)
    status, _, message = await networks.refused("POST", "/subnets", {"subnet": {"network_id": network, **V4, **subnet}})
    assert status == 400
    assert why in message
    assert len(await networks.listed("subnet")) == 1


@pytest.mark.parametrize(
    ("port", "status", "why"),
    [
        ({"mac_address": "01:00:00:00:00:01"}, 400, "not a valid MAC"),
        ({"mac_address": "no"}, 400, "mac_address"),
        ({"fixed_ips": [{}]}, 400, "subnet_id or an ip_address"),
        ({"fixed_ips": [{"ip_address": "10.0.0.255"}]}, 400, "not a valid IP"),
        ({"fixed_ips": [{"ip_address": "10.9.0.1"}]}, 400, "not a valid IP"),
        ({"fixed_ips": [{"ip_address": f"10.0.0.{last}"} for last in range(10, 16)]}, 400, "maximum amount"),
        ({"fixed_ips": [{"subnet_id": "00000000-0000-4000-8000-000000000000"}]}, 400, "invalid subnet"),
        ({"security_groups": ["00000000-0000-4000-8000-000000000000"]}, 404, "Security group"),
        ({"port_security_enabled": False, "allowed_address_pairs": [{"ip_address": "10.0.0.9"}]}, 409, "Port Security"),
        ({"allowed_address_pairs": [{"ip_address": "x"}]}, 400, "not a valid IP"),
        ({"allowed_address_pairs": [{"ip_address": "10.0.0.9"}] * 2}, 400, "twice"),
        ({"binding:host_id": "host"}, 403, "binding:host_id"),
        ({"binding:vnic_type": "odd"}, 400, "binding:vnic_type"),
        ({"device_owner": "network:router_interface"}, 403, "device_owner"),
        ({"surprise": 1}, 400, "surprise"),
    ],
)
async def test_ports_that_cannot_be(networks: NetworkSession, port: dict[str, Any], status: int, why: str) -> None:
    network, _ = await _network(networks)
    answered, _, message = await networks.refused("POST", "/ports", {"port": {"network_id": network, **port}})
    assert (answered, why in message) == (status, True), message
    assert await networks.listed("port") == []


async def test_a_shared_network(networks: NetworkSession) -> None:
    network, subnet = await _network(networks, by="admin")
    body = {"port": {"network_id": network}}
    assert (await networks.refused("POST", "/ports", body))[0] == 404
    await networks.change("network", network, by="admin", shared=True)
    assert [one["id"] for one in await networks.listed("subnet")] == [subnet]
    port = await networks.make("port", network_id=network)
    assert "binding:host_id" not in port
    for fields in ({"mac_address": "fa:16:3e:00:00:01"}, {"fixed_ips": [{"ip_address": "10.0.0.9"}]}):
        assert (await networks.refused("POST", "/ports", {"port": {"network_id": network, **fields}}))[0] == 403
    assert (await networks.refused("PUT", f"/networks/{network}", {"network": {"name": "mine"}}))[0] == 403
    assert (await networks.refused("DELETE", f"/networks/{network}"))[0] == 403
    unshared = {"network": {"shared": False}}
    status, kind, _ = await networks.refused("PUT", f"/networks/{network}", unshared, by="admin")
    assert (status, kind) == (409, "InvalidSharedSetting")
    shown = await networks.show("port", port["id"], by="admin")
    assert (shown["binding:host_id"], shown["binding:vif_type"], shown["status"]) == ("", "unbound", "DOWN")
    bound = await networks.change("port", port["id"], by="admin", **{"binding:host_id": "host"})
    assert (bound["binding:vif_type"], bound["status"]) == ("tap", "ACTIVE")


async def test_what_only_admins_say_of_networks(networks: NetworkSession) -> None:
    for name in ("shared", "router:external"):
        assert (await networks.refused("POST", "/networks", {"network": {name: True}}))[0] == 403
    other = {"network": {"project_id": "another"}}
    assert (await networks.refused("POST", "/networks", other))[0] == 403
    made = await networks.make("network", by="admin", project_id="another")
    assert (made["project_id"], made["tenant_id"]) == ("another", "another")
    first = await networks.make("network", by="admin", **{"router:external": True, "is_default": True})
    await networks.make("network", by="admin", **{"router:external": True, "is_default": True})
    assert (await networks.show("network", first["id"]))["is_default"] is False, "one is the default"
    for mtu in (67, 1501):
        assert (await networks.refused("POST", "/networks", {"network": {"mtu": mtu}}))[0] == 400
    assert (await networks.make("network", mtu=1400))["mtu"] == 1400
    assert (await networks.make("network", mtu=0))["mtu"] == 1500


async def test_lists(networks: NetworkSession) -> None:
    made = [await networks.make("network", name=name) for name in ("b", "a", "c", "a")]
    await networks.ask("PUT", f"/networks/{made[0]['id']}/tags", {"tags": ["red", "blue"]})
    await networks.ask("PUT", f"/networks/{made[2]['id']}/tags/red")

    async def names(query: str) -> list[str]:
        return [one["name"] for one in await networks.listed("network", query)]

    assert await names("?sort_key=name&sort_dir=desc") == ["c", "b", "a", "a"]
    assert await names("?name=b&name=c&sort_key=name") == ["b", "c"]
    assert await names("?tags=red,blue") == ["b"]
    assert await names("?tags-any=red,blue&sort_key=name") == ["b", "c"]
    assert await names("?not-tags=red,blue&sort_key=name") == ["a", "a", "c"]
    assert await names("?not-tags-any=red,blue") == ["a", "a"]
    assert await names("?admin_state_up=False") == []
    unnamed = await networks.make("network")
    assert [one["id"] for one in await networks.listed("network", "?name=")] == [unnamed["id"]]
    assert await networks.listed("network", "?fields=name&name=b") == [{"name": "b"}]
    for query in ("?surprise=1", "?limit=x", "?sort_key=surprise", "?sort_key=name&sort_dir=up", "?marker=none"):
        assert (await networks.refused("GET", f"/networks{query}"))[0] == 400
    assert (await networks.refused("GET", "/networks?shared=perhaps"))[0] == 400


async def test_pages_in_both_directions(networks: NetworkSession) -> None:
    for number in range(5):
        await networks.make("network", name=f"n{number}")
    seen: list[list[str]] = []
    path = "/networks?limit=2&sort_key=name"
    while path:
        answer = (await networks.ask("GET", path)).json()
        seen.append([one["name"] for one in answer["networks"]])
        links = {one["rel"]: one["href"].rpartition("/v2.0")[2] for one in answer.get("networks_links", [])}
        path = links.get("next", "")
    assert [names for names in seen if names] == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    last = (await networks.listed("network", "?name=n4"))[0]["id"]
    before = await networks.listed("network", f"?limit=2&sort_key=name&marker={last}&page_reverse=True")
    assert [one["name"] for one in before] == ["n2", "n3"]


async def test_quotas(networks: NetworkSession, cloud: Any) -> None:
    project = cloud.first.project_ids["demo"]
    for name in ("network", "port"):
        answer = await networks.ask("PUT", f"/quotas/{project}", {"quota": {name: 2}}, by="admin")
        assert answer.json()["quota"][name] == 2
    body: dict[str, Any] = {"network": {}}
    answers = await asyncio.gather(*(networks.ask("POST", "/networks", body) for _ in range(6)))
    assert sorted(one.status_code for one in answers) == [201, 201, 409, 409, 409, 409]
    assert {one.json()["NeutronError"]["type"] for one in answers if one.status_code == 409} == {"OverQuota"}
    details = (await networks.ask("GET", f"/quotas/{project}/details")).json()["quota"]
    assert details["network"] == {"limit": 2, "used": 2, "reserved": 0}
    lower = {"quota": {"network": 1, "check_limit": True}}
    assert (await networks.refused("PUT", f"/quotas/{project}", lower, by="admin"))[0] == 400
    listed = (await networks.ask("GET", "/quotas", by="admin")).json()["quotas"]
    assert [(one["project_id"], one["network"]) for one in listed] == [(project, 2)]
    assert (await networks.ask("DELETE", f"/quotas/{project}", by="admin")).status_code == 204
    assert (await networks.ask("GET", f"/quotas/{project}")).json()["quota"]["network"] == -1


async def test_what_is_not_there_is_named(networks: NetworkSession) -> None:
    for path in ("/subnetpools", "/qos/policies", "/trunks", "/trunks/x"):
        status, _, message = await networks.refused("GET", path)
        assert status == 404
        assert path.split("/")[1] in message
    status, kind, _ = await networks.refused("PATCH", "/networks", {})
    assert (status, kind) == (405, "HTTPMethodNotAllowed")
    for path in ("/networks/none", "/ports/00000000-0000-4000-8000-000000000000"):
        assert (await networks.refused("GET", path))[0] == 404
    assert (await networks.refused("POST", "/networks", {}))[0] == 400
    assert (await networks.refused("POST", "/networks", {"network": {}, "networks": [{}]}))[0] == 400
    assert (await networks.refused("POST", "/networks", {"networks": [{}] * 201}))[0] == 400
    assert (await networks.refused("POST", "/networks", {"network": {"name": "a\u0000b"}}))[0] == 400
