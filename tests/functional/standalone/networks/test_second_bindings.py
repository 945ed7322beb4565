"""Bindings of one port to several hosts, as the embedded network service has them of Neutron's API."""

from __future__ import annotations

from typing import Any

from tests.support.embedded_networks import AskedNetworks


async def bound(net: AskedNetworks, **fields: Any) -> Any:
    """Make a port on host `one`."""
    subnet = await net.subnet()
    said = {"network_id": subnet["network_id"], "binding:host_id": "one", **fields}
    return await net.ask("POST", "ports", {"port": said}, by="admin")


async def test_what_cannot_be(net: AskedNetworks) -> None:
    port = await bound(net)
    at = f"ports/{port['id']}/bindings"
    two = {"binding": {"host": "two"}}
    await net.ask("POST", at, two, by="admin")
    for host in ("one", "two"):
        await net.refused(409, "POST", at, {"binding": {"host": host}}, by="admin")
    await net.refused(409, "PUT", f"{at}/one/activate", by="admin")
    for method, path in (("GET", "three"), ("DELETE", "three"), ("PUT", "three/activate")):
        await net.refused(404, method, f"{at}/{path}", by="admin")
    bodies: tuple[dict[str, Any], ...] = (
        {},
        {"binding": {}},
        {"binding": {"host": ""}},
        {"binding": {"host": "x", "vnic_type": "odd"}},
    )
    for body in bodies:
        await net.refused(400, "POST", at, body, by="admin")
    await net.refused(400, "PUT", f"{at}/two", {"binding": {"host": "three"}}, by="admin")
    assert [one["host"] for one in await net.ask("GET", at, by="admin")] == ["one", "two"]


async def test_a_port_that_is_bound_by_its_own_field_has_one_binding_for_the_host(net: AskedNetworks) -> None:
    port = await bound(net)
    at = f"ports/{port['id']}/bindings"
    await net.ask("POST", at, {"binding": {"host": "two"}}, by="admin")
    await net.ask("PUT", f"ports/{port['id']}", {"port": {"binding:host_id": "two"}}, by="admin")
    found = {one["host"]: one["status"] for one in await net.ask("GET", at, by="admin")}
    assert found == {"two": "ACTIVE"}


async def test_a_port_without_its_active_binding_is_on_no_host(net: AskedNetworks) -> None:
    port = await bound(net)
    at = f"ports/{port['id']}/bindings"
    await net.ask("POST", at, {"binding": {"host": "two"}}, by="admin")
    await net.ask("DELETE", f"{at}/one", by="admin")
    shown = await net.ask("GET", f"ports/{port['id']}", by="admin")
    assert (shown["binding:host_id"], shown["status"]) == ("", "DOWN")
    await net.ask("PUT", f"{at}/two/activate", by="admin")
    found = {one["host"]: one["status"] for one in await net.ask("GET", at, by="admin")}
    assert found == {"two": "ACTIVE"}


async def test_a_port_of_a_router_has_no_second_binding(net: AskedNetworks) -> None:
    subnet, router = await net.subnet(), await net.make("router")
    await net.ask("PUT", f"routers/{router['id']}/add_router_interface", {"subnet_id": subnet["id"]})
    [port] = await net.listed("ports?device_owner=network:router_interface")
    at = f"ports/{port['id']}/bindings"
    await net.refused(409, "POST", at, {"binding": {"host": "two"}}, by="admin")
