"""Every route of the network service is asked, and every kind of resource lives a whole life."""

from __future__ import annotations

import re
from typing import Any

import httpx

from skep.standalone.networks.app import RESOURCES, ROUTES
from tests.support.embedded_networks import AskedNetworks


async def test_every_route_answers(net: AskedNetworks) -> None:
    """This fails for a route that is new: ask it here."""
    asked: set[tuple[str, str]] = set()
    forms = [
        (method, re.compile(re.sub("{[^}]+}", "[^/]+", path)), path)
        for method, path, _ in sorted(ROUTES, key=lambda route: route[1].count("{"))
    ]

    async def note(response: httpx.Response) -> None:
        method, url = response.request.method, response.request.url.path
        found = next((path for verb, form, path in forms if verb == method and form.fullmatch(url)), None)
        if found is not None and response.status_code < 300:
            asked.add((method, found))

    net.client.event_hooks["response"].append(note)
    for path in ("/", "/v2.0"):
        assert (await net.client.get(path)).status_code == 200
    await net.ask("GET", "extensions")
    await net.ask("GET", "extensions/quotas")
    await net.ask("GET", "service-providers?service_type=VPN")
    outside, subnet = await net.outside(), await net.subnet()
    group = await net.make("security-group", name="a group")
    bodies: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "networks": ({}, {"name": "another"}),
        "subnets": (
            {"network_id": subnet["network_id"], "cidr": "10.9.0.0/24", "ip_version": 4},
            {"name": "another"},
        ),
        "ports": ({"network_id": subnet["network_id"]}, {"name": "another"}),
        "security-groups": ({}, {"name": "another"}),
        "security-group-rules": ({"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp"}, {}),
        "routers": ({}, {"name": "another"}),
        "floatingips": ({"floating_network_id": outside["network_id"]}, {"description": "another"}),
    }
    assert bodies.keys() == {resource.path for resource in RESOURCES}
    for resource in RESOURCES:
        new, changes = bodies[resource.path]
        made = await net.ask("POST", resource.path, {resource.member: new})
        one = f"{resource.path}/{made['id']}"
        assert made["id"] in {each["id"] for each in await net.listed(resource.path)}
        assert await net.ask("GET", one) == made
        after = await net.ask("PUT", one, {resource.member: changes})
        assert after.items() >= changes.items()
        assert after["revision_number"] >= made["revision_number"]
        await net.ask("PUT", f"{one}/tags", {"tags": ["red", "blue"]})
        assert sorted(await net.ask("GET", f"{one}/tags")) == ["blue", "red"]
        await net.ask("PUT", f"{one}/tags/green")
        await net.ask("GET", f"{one}/tags/green")
        await net.ask("DELETE", f"{one}/tags/red")
        for query, found in (("tags=blue,green", 1), ("tags=blue,red", 0), ("tags-any=red,green", 1)):
            assert len(await net.listed(f"{resource.path}?{query}")) == found, query
        assert made["id"] not in {each["id"] for each in await net.listed(f"{resource.path}?not-tags-any=blue")}
        await net.ask("DELETE", f"{one}/tags")
        assert (await net.ask("GET", one))["tags"] == []
        await net.ask("DELETE", one)
        await net.refused(404, "GET", one)
        await net.refused(404, "DELETE", one)
    await routers_are_joined(net, subnet["id"])
    await quotas_and_topologies(net, outside["network_id"])
    await ports_are_bound_twice(net, subnet["network_id"])
    assert {(method, path) for method, path, _ in ROUTES} - asked == set()


async def routers_are_joined(net: AskedNetworks, subnet_id: str) -> None:
    router = await net.make("router")
    at = f"routers/{router['id']}"
    await net.ask("PUT", f"{at}/add_router_interface", {"subnet_id": subnet_id})
    route = {"destination": "192.0.2.0/24", "nexthop": "10.0.0.9"}
    added = await net.ask("PUT", f"{at}/add_extraroutes", {"router": {"routes": [route]}})
    assert added["routes"] == [route]
    assert (await net.ask("PUT", f"{at}/remove_extraroutes", {"router": {"routes": [route]}}))["routes"] == []
    await net.ask("PUT", f"{at}/remove_router_interface", {"subnet_id": subnet_id})


async def ports_are_bound_twice(net: AskedNetworks, network_id: str) -> None:
    fields = {"network_id": network_id, "binding:host_id": "one", "binding:profile": {"a": 1}}
    port = await net.ask("POST", "ports", {"port": fields}, by="admin")
    at = f"ports/{port['id']}/bindings"
    said = {"host": "two", "vnic_type": "normal", "profile": {"b": 2}}
    made = await net.ask("POST", at, {"binding": said}, by="admin")
    assert made.items() >= {**said, "status": "INACTIVE", "vif_type": "tap", "vif_details": {}}.items()
    assert await net.ask("GET", f"{at}/two", by="admin") == made
    changed = await net.ask("PUT", f"{at}/two", {"binding": {"profile": {"c": 3}}}, by="admin")
    assert changed == {**made, "profile": {"c": 3}}
    assert [one["host"] for one in await net.ask("GET", at, by="admin")] == ["one", "two"]
    assert (await net.ask("PUT", f"{at}/two/activate", by="admin"))["status"] == "ACTIVE"
    shown = await net.ask("GET", f"ports/{port['id']}", by="admin")
    assert (shown["binding:host_id"], shown["binding:profile"]) == ("two", {"c": 3})
    assert (await net.ask("GET", f"{at}/one", by="admin"))["profile"] == {"a": 1}
    await net.ask("DELETE", f"{at}/one", by="admin")
    assert [one["host"] for one in await net.ask("GET", at, by="admin")] == ["two"]


async def quotas_and_topologies(net: AskedNetworks, outside: str) -> None:
    project = net.projects["demo"]
    await net.ask("PUT", f"quotas/{project}", {"quota": {"port": 7}}, by="admin")
    assert (await net.ask("GET", f"quotas/{project}"))["port"] == 7
    assert len(await net.ask("GET", "quotas", by="admin")) == 1
    assert (await net.ask("GET", f"quotas/{project}/details"))["port"]["limit"] == 7
    await net.ask("GET", f"quotas/{project}/details.json")
    usual = await net.ask("GET", f"quotas/{project}/default")
    await net.ask("DELETE", f"quotas/{project}", by="admin")
    assert await net.ask("GET", f"quotas/{project}") == usual
    await net.ask("PUT", f"networks/{outside}", {"network": {"is_default": True}}, by="admin")
    await net.ask("GET", f"auto-allocated-topology/{project}")
    await net.ask("DELETE", f"auto-allocated-topology/{project}")
