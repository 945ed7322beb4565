"""Who sees and changes what: readers, members, admins, other projects; shared and external networks."""

from __future__ import annotations

from typing import Any

from tests.support.embedded_networks import AskedNetworks


async def seen(net: AskedNetworks, path: str, by: str) -> set[str]:
    return {one["id"] for one in await net.listed(path, by=by)}


async def test_what_is_a_projects_own(net: AskedNetworks) -> None:
    subnet = await net.subnet()
    port = await net.make("port", network_id=subnet["network_id"])
    router = await net.make("router")
    group = await net.make("security-group", name="a group")
    for kind, one in (
        ("network", subnet["network_id"]),
        ("subnet", subnet["id"]),
        ("port", port["id"]),
        ("router", router["id"]),
        ("security-group", group["id"]),
    ):
        path, body = f"{kind}s/{one}", {kind.replace("-", "_"): {"name": "changed"}}
        for by in ("demo", "colleague", "reader", "admin"):
            assert one in await seen(net, f"{kind}s", by), (kind, by)
            assert (await net.ask("GET", path, by=by))["id"] == one
        assert one not in await seen(net, f"{kind}s", "stranger")
        for method in ("GET", "PUT", "DELETE"):
            await net.refused(404, method, path, body if method == "PUT" else None, by="stranger")
        await net.refused(403, "PUT", path, body, by="reader")
        await net.refused(403, "DELETE", path, by="reader")
        for by in ("colleague", "admin"):
            assert (await net.ask("PUT", path, body, by=by))["name"] == "changed"


async def test_a_shared_network(net: AskedNetworks) -> None:
    network = await net.make("network", by="admin", shared=True)
    said: dict[str, Any] = {"network_id": network["id"], "cidr": "10.0.0.0/24", "ip_version": 4}
    subnet = await net.make("subnet", by="admin", **said)
    for by in ("demo", "stranger"):
        assert network["id"] in await seen(net, "networks", by)
        assert subnet["id"] in await seen(net, "subnets", by)
        await net.refused(403, "PUT", f"networks/{network['id']}", {"network": {"name": "mine"}}, by=by)
        await net.refused(403, "DELETE", f"subnets/{subnet['id']}", by=by)
        other = {**said, "cidr": "10.0.1.0/24"}
        await net.refused(403, "POST", "subnets", {"subnet": other}, by=by)
    port = await net.make("port", network_id=network["id"])
    assert port["id"] not in await seen(net, "ports", "stranger")
    chosen = {"network_id": network["id"], "fixed_ips": [{"ip_address": "10.0.0.9"}]}
    await net.refused(403, "POST", "ports", {"port": chosen})
    router = await net.make("router")
    joins = f"routers/{router['id']}/add_router_interface"
    _, told = await net.refused(400, "PUT", joins, {"subnet_id": subnet["id"]})
    assert f"subnet {subnet['id']} is not owned by the project" in told
    await net.ask("PUT", joins, {"port_id": port["id"]})
    body = {"network": {"shared": False}}
    assert (await net.refused(409, "PUT", f"networks/{network['id']}", body, by="admin"))[0] == "InvalidSharedSetting"
    gateway = await net.make("router", by="admin")
    await net.ask("PUT", f"routers/{gateway['id']}/add_router_interface", {"subnet_id": subnet["id"]}, by="admin")


async def test_an_external_network(net: AskedNetworks) -> None:
    outside = await net.outside()
    network_id = outside["network_id"]
    assert network_id in await seen(net, "networks", "demo")
    assert outside["id"] not in await seen(net, "subnets", "demo")
    await net.refused(403, "POST", "ports", {"port": {"network_id": network_id}})
    floating = await net.make("floatingip", floating_network_id=network_id)
    assert floating["id"] not in await seen(net, "floatingips", "stranger")
    await net.refused(404, "DELETE", f"floatingips/{floating['id']}", by="stranger")
    body = {"network": {"router:external": False}}
    assert (await net.refused(409, "PUT", f"networks/{network_id}", body, by="admin"))[0] == "ExternalNetworkInUse"


async def test_ports_of_others_on_ones_network(net: AskedNetworks) -> None:
    subnet = await net.subnet()
    said = {"network_id": subnet["network_id"], "project_id": net.projects["strangers"]}
    port = await net.make("port", by="admin", **said)
    assert port["id"] in await seen(net, "ports", "demo")
    assert port["id"] in await seen(net, "ports", "stranger")
    changes = {"port": {"mac_address": "fa:16:3e:00:00:08"}}
    for who in ("demo", "stranger"):
        await net.refused(403, "PUT", f"ports/{port['id']}", changes, by=who)
    await net.ask("PUT", f"ports/{port['id']}", changes, by="admin")
    await net.ask("PUT", f"ports/{port['id']}", {"port": {"port_security_enabled": True}})
    await net.ask("DELETE", f"ports/{port['id']}")


async def test_what_only_admins_say(net: AskedNetworks) -> None:
    for fields in ({"shared": True}, {"router:external": True}, {"project_id": net.projects["strangers"]}):
        await net.refused(403, "POST", "networks", {"network": fields})
    subnet = await net.subnet()
    body = {"port": {"network_id": subnet["network_id"], "binding:host_id": "host1"}}
    await net.refused(403, "POST", "ports", body)
    await net.refused(403, "PUT", f"quotas/{net.projects['demo']}", {"quota": {"port": 1}})


async def test_several_are_made_or_none(net: AskedNetworks) -> None:
    subnet = await net.subnet(allocation_pools=[{"start": "10.0.0.10", "end": "10.0.0.12"}])
    new = {"network_id": subnet["network_id"]}
    assert (await net.refused(409, "POST", "ports", {"ports": [new] * 4}))[0] == "IpAddressGenerationFailure"
    assert await net.listed("ports") == []
    made = await net.ask("POST", "ports", {"ports": [{**new, "name": name} for name in "abc"]})
    assert [one["name"] for one in made] == ["a", "b", "c"]
    assert len(await net.listed("ports")) == 3
