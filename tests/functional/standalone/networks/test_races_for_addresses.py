"""Many requests at once: no address, and nothing else that only one may have, is given to two."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.support.embedded_networks import AskedNetworks


async def statuses(*asked: Any) -> Counter[int]:
    return Counter(response.status_code for response in await asyncio.gather(*asked))


async def test_two_hundred_ports_on_a_subnet_with_fifty_addresses(net: AskedNetworks) -> None:
    pool = [{"start": "10.0.0.10", "end": "10.0.0.59"}]
    subnet = await net.subnet(allocation_pools=pool)
    body = {"port": {"network_id": subnet["network_id"]}}
    answers = await asyncio.gather(*(net.answer("POST", "ports", body) for _ in range(200)))
    assert Counter(one.status_code for one in answers) == {201: 50, 409: 150}
    made = [one.json()["port"]["fixed_ips"] for one in answers if one.status_code == 201]
    assert sorted(fixed["ip_address"] for [fixed] in made) == sorted(f"10.0.0.{last}" for last in range(10, 60))
    faults = {one.json()["NeutronError"]["type"] for one in answers if one.status_code == 409}
    assert faults == {"IpAddressGenerationFailure"}
    assert len(await net.listed("ports")) == 50


async def test_one_address_for_two(net: AskedNetworks) -> None:
    subnet = await net.subnet()
    wanted = [{"subnet_id": subnet["id"], "ip_address": "10.0.0.77"}]
    body = {"port": {"network_id": subnet["network_id"], "fixed_ips": wanted}}
    assert await statuses(*(net.answer("POST", "ports", body) for _ in range(8))) == {201: 1, 409: 7}
    found = await net.listed("ports", params={"fixed_ips": "ip_address=10.0.0.77"})
    assert len(found) == 1


async def test_one_hardware_address_for_two(net: AskedNetworks) -> None:
    subnet = await net.subnet()
    body = {"port": {"network_id": subnet["network_id"], "mac_address": "fa:16:3e:00:00:01"}}
    assert await statuses(*(net.answer("POST", "ports", body) for _ in range(4))) == {201: 1, 409: 3}


async def test_one_floating_address_for_two(net: AskedNetworks) -> None:
    outside = await net.outside()
    body = {"floatingip": {"floating_network_id": outside["network_id"], "floating_ip_address": "203.0.113.9"}}
    assert await statuses(*(net.answer("POST", "floatingips", body, by="admin") for _ in range(4))) == {201: 1, 409: 3}


async def test_two_floating_addresses_for_one_port(net: AskedNetworks) -> None:
    outside, subnet = await net.outside(), await net.subnet()
    router = await net.make("router", external_gateway_info={"network_id": outside["network_id"]})
    await net.ask("PUT", f"routers/{router['id']}/add_router_interface", {"subnet_id": subnet["id"]})
    port = await net.make("port", network_id=subnet["network_id"])
    floating = [await net.make("floatingip", floating_network_id=outside["network_id"]) for _ in range(4)]
    body = {"floatingip": {"port_id": port["id"]}}
    asked = (net.answer("PUT", f"floatingips/{one['id']}", body) for one in floating)
    assert await statuses(*asked) == {200: 1, 409: 3}
    leading = await net.listed("floatingips", params={"port_id": port["id"]})
    assert [one["fixed_ip_address"] for one in leading] == [port["fixed_ips"][0]["ip_address"]]


async def test_one_port_for_two_routers(net: AskedNetworks) -> None:
    subnet = await net.subnet()
    port = await net.make("port", network_id=subnet["network_id"])
    routers = [await net.make("router") for _ in range(3)]
    body = {"port_id": port["id"]}
    asked = (net.answer("PUT", f"routers/{one['id']}/add_router_interface", body) for one in routers)
    assert await statuses(*asked) == {200: 1, 409: 2}


async def test_a_network_goes_while_ports_are_made_on_it(net: AskedNetworks) -> None:
    for before in (0, 1, 5):
        subnet = await net.subnet()
        path = f"networks/{subnet['network_id']}"
        body = {"port": {"network_id": subnet["network_id"]}}
        asked = [net.answer("POST", "ports", body) for _ in range(10)]
        asked.insert(before, net.answer("DELETE", path))
        answers = await asyncio.gather(*asked)
        gone = answers[before].status_code == 204
        made = [one for one in answers if one.status_code == 201]
        if gone:
            assert not made
            assert {one.status_code for one in answers} == {204, 404}
            await net.refused(404, "GET", path)
            await net.refused(404, "GET", f"subnets/{subnet['id']}")
        else:
            assert answers[before].status_code == 409
            assert len(made) == 10
            assert len(await net.listed("ports", params={"network_id": subnet["network_id"]})) == 10


async def test_requests_at_once_stay_within_a_quota(net: AskedNetworks) -> None:
    project = net.projects["demo"]
    await net.ask("PUT", f"quotas/{project}", {"quota": {"network": 3}}, by="admin")
    body = {"network": {"name": "one of many"}}
    assert await statuses(*(net.answer("POST", "networks", body) for _ in range(10))) == {201: 3, 409: 7}
    assert (await net.refused(409, "POST", "networks", body))[0] == "OverQuota"
