"""Addresses that are free are found, and pages have every resource once, whatever they are sorted by."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.embedded_networks import AskedNetworks


async def test_floating_addresses_come_from_every_subnet_of_the_outside(net: AskedNetworks) -> None:
    one = await net.outside("203.0.113.0/24", allocation_pools=[{"start": "203.0.113.5", "end": "203.0.113.5"}])
    network_id = one["network_id"]
    pools = [{"start": "198.51.100.5", "end": "198.51.100.6"}]
    other = {"network_id": network_id, "cidr": "198.51.100.0/24", "ip_version": 4, "allocation_pools": pools}
    await net.make("subnet", by="admin", **other)
    made = [(await net.make("floatingip", floating_network_id=network_id))["floating_ip_address"] for _ in range(3)]
    assert sorted(made) == ["198.51.100.5", "198.51.100.6", "203.0.113.5"]
    body = {"floatingip": {"floating_network_id": network_id}}
    assert (await net.refused(409, "POST", "floatingips", body))[0] == "IpAddressGenerationFailure"


async def test_no_floating_address_is_of_ipv6(net: AskedNetworks) -> None:
    """Nothing translates to one, and rules of hosts that named one would be refused whole."""
    outside = await net.outside()
    said = {"network_id": outside["network_id"], "cidr": "2001:db8:1::/64", "ip_version": 6}
    six = await net.make("subnet", by="admin", **said)
    wanted: dict[str, Any] = {"floating_network_id": outside["network_id"]}
    for more, field in (
        ({"subnet_id": six["id"]}, "subnet_id"),
        ({"floating_ip_address": "2001:db8:1::7"}, "floating_ip_address"),
    ):
        _, told = await net.refused(400, "POST", "floatingips", {"floatingip": wanted | more}, by="admin")
        assert f"{field}: expected an IPv4" in told
    given = await net.make("floatingip", **wanted, subnet_id=outside["id"])
    assert given["floating_ip_address"].startswith("203.0.113.")
    assert len(await net.listed("floatingips", by="admin")) == 1


async def test_an_address_that_is_named_is_not_given_to_another_place_of_the_port(net: AskedNetworks) -> None:
    subnet = await net.subnet()
    any_, named = {"subnet_id": subnet["id"]}, {"subnet_id": subnet["id"], "ip_address": "10.0.0.2"}
    port = await net.make("port", network_id=subnet["network_id"], fixed_ips=[any_, named])
    assert [one["ip_address"] for one in port["fixed_ips"]] == ["10.0.0.3", "10.0.0.2"]
    changes = {"port": {"fixed_ips": [any_, {"ip_address": "10.0.0.3"}]}}
    after = await net.ask("PUT", f"ports/{port['id']}", changes)
    assert [one["ip_address"] for one in after["fixed_ips"]] == ["10.0.0.2", "10.0.0.3"]


@pytest.mark.parametrize(
    ("cidr", "gateway", "addresses"),
    [
        ("10.0.0.0/30", "10.0.0.1", ["10.0.0.2"]),
        ("10.0.0.0/31", "10.0.0.0", ["10.0.0.1"]),
        ("10.0.0.5/32", "10.0.0.5", []),
        ("2001:db8::/127", "2001:db8::", ["2001:db8::1"]),
        ("2001:db8::5/128", "2001:db8::5", []),
    ],
)
async def test_the_smallest_subnets(net: AskedNetworks, cidr: str, gateway: str, addresses: list[str]) -> None:
    subnet = await net.subnet(cidr, enable_dhcp=False)
    assert subnet["gateway_ip"] == gateway
    body = {"port": {"network_id": subnet["network_id"]}}
    for expected in addresses:
        port = await net.ask("POST", "ports", body)
        assert [one["ip_address"] for one in port["fixed_ips"]] == [expected]
    assert (await net.refused(409, "POST", "ports", body))[0] == "IpAddressGenerationFailure"


@pytest.mark.parametrize("key", ["gateway_ip", "ipv6_ra_mode", "name", "enable_dhcp", "ip_version"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
async def test_pages_of_subnets_have_every_one_once(net: AskedNetworks, key: str, direction: str) -> None:
    network = await net.make("network")
    for number in range(7):
        gateway: dict[str, Any] = {"gateway_ip": None} if number % 2 else {}
        said: dict[str, Any] = {"cidr": f"10.0.{number}.0/24", "ip_version": 4, "name": f"n{number // 3}"}
        await net.make("subnet", network_id=network["id"], **said, **gateway)
    params = {"sort_key": key, "sort_dir": direction}
    whole = [one["id"] for one in await net.listed("subnets", params=params)]
    assert len(whole) == 7
    for size in (1, 3):
        forward: list[str] = []
        while page := await net.listed("subnets", params={**params, "limit": size, "marker": (forward or [""])[-1]}):
            forward += [one["id"] for one in page]
            assert len(forward) <= 7
        assert forward == whole
        backward = whole[-1:]
        asked = {**params, "limit": size, "page_reverse": "True"}
        while page := await net.listed("subnets", params={**asked, "marker": backward[0]}):
            backward = [one["id"] for one in page] + backward
            assert len(backward) <= 7
        assert backward == whole


async def test_the_links_of_pages_lead_through_all(net: AskedNetworks) -> None:
    names = sorted([(await net.make("network", name=f"n{number}"))["name"] for number in range(5)])
    url, seen = "networks?sort_key=name&limit=2&fields=name", []
    while url:
        shown = (await net.answer("GET", url)).json()
        seen += [one["name"] for one in shown["networks"]]
        assert all(one.keys() == {"name"} for one in shown["networks"])
        links = {one["rel"]: one["href"] for one in shown.get("networks_links", [])}
        url = links.get("next", "").partition("/v2.0/")[2]
    assert seen == names
