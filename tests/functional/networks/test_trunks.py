"""A trunk of Neutron's: its parent port is an interface as any other, and Neutron alone changes its subports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skep.domain.ids import new_uuid
from skep_lab.faulty_service import Passes
from tests.functional.networks.test_bindings_of_live_migrations import NEVER_DONE, Mover
from tests.functional.networks.test_resource_requests import Asking, asking

SUBPORT = "trunk:subport"
"""Owner of a port that a trunk carries, as Neutron says it."""


async def trunk(demo: Asking) -> tuple[str, str]:
    """Make a trunk of two ports, as Neutron shows them; return its parent and its subport."""
    outer, inner = await demo.network("10.1.0.0/24", "outer"), await demo.network("10.2.0.0/24", "inner")
    sub = await demo.port(inner)
    await change(demo, sub, {"device_owner": SUBPORT})
    carried = {"segmentation_id": 100, "segmentation_type": "vlan", "port_id": sub, "mac_address": "fa:16:3e:00:00:01"}
    parent = await demo.port(outer, trunk_details={"trunk_id": new_uuid(), "sub_ports": [carried]})
    return parent, sub


async def change(demo: Asking, port: str, fields: dict[str, Any]) -> None:
    """Change a port as an admin, or as Neutron itself would."""
    url = f"{demo.networks_url}/v2.0/ports/{port}"
    answer = await demo.admin.client.put(url, json={"port": fields}, headers={"X-Auth-Token": demo.admin.token})
    assert answer.status_code == 200, answer.text


async def shown(demo: Asking, port: str) -> tuple[str, str, str]:
    """Return what of a port is a server's: its device, the owner, the host."""
    url = f"{demo.networks_url}/v2.0/ports/{port}"
    said = (await demo.admin.client.get(url, headers={"X-Auth-Token": demo.admin.token})).json()["port"]
    return said["device_id"], said["device_owner"], said["binding:host_id"]


def noting(asked: list[str], port: str) -> Passes:
    """Return what notes each request that changes a port."""

    def passes(method: str, path: str, moment: str) -> None:
        if moment == "before" and method != "GET" and port in path:
            asked.append(f"{method} {path}")

    return passes


async def interfaces(demo: Asking, server: str) -> list[str]:
    """Return the ports that a server has."""
    listed = (await demo.compute.ask("GET", f"/servers/{server}/os-interface")).json()
    return [one["port_id"] for one in listed["interfaceAttachments"]]


async def test_a_server_has_the_parent_and_moves_with_it(tmp_path: Path) -> None:
    """The parent's binding follows the server, in two bindings while it is copied. Its subports follow the parent:
    Neutron binds them, and nothing is asked of them."""
    async with asking(tmp_path, NEVER_DONE, of_hosts=()) as demo:
        parent, sub = await trunk(demo)
        asked: list[str] = []
        demo.neutron.passes = noting(asked, sub)
        server = await demo.built([{"port": parent}])
        assert server["status"] == "ACTIVE", server
        assert await interfaces(demo, server["id"]) == [parent]
        mover = Mover(demo, demo.admin, {"id": server["id"], "ports": [parent]})
        source = await mover.host()
        await mover.bound_to(source)
        await change(demo, sub, {"binding:host_id": source})

        await mover.begin()
        target = await mover.copying()
        assert await mover.bindings() == [{source: "ACTIVE", target: "INACTIVE"}]
        await mover.force()
        await mover.ends_as("completed")
        await mover.bound_to(target)

        assert (await demo.act(server["id"], {"migrate": None})).status_code == 202
        await demo.beside.calm(demo.compute, server["id"], "VERIFY_RESIZE")
        await mover.bound_to(source)
        assert (await demo.act(server["id"], {"revertResize": None})).status_code == 202
        await demo.beside.calm(demo.compute, server["id"], "ACTIVE")
        await mover.bound_to(target)
        await demo.no_differences()

        assert await interfaces(demo, server["id"]) == [parent]
        await demo.delete(server["id"])
        assert (await shown(demo, parent))[::2] == ("", "")
        assert await shown(demo, sub) == ("", SUBPORT, source)
        assert asked == []


async def test_a_parent_is_attached_and_detached(tmp_path: Path) -> None:
    """Its subports stay in the trunk."""
    async with asking(tmp_path, of_hosts=()) as demo:
        parent, sub = await trunk(demo)
        asked: list[str] = []
        demo.neutron.passes = noting(asked, sub)
        server = await demo.built("none")
        body = {"interfaceAttachment": {"port_id": parent}}
        answer = await demo.compute.ask("POST", f"/servers/{server['id']}/os-interface", body)
        assert answer.status_code == 200, answer.text
        assert await interfaces(demo, server["id"]) == [parent]
        gone = await demo.compute.ask("DELETE", f"/servers/{server['id']}/os-interface/{parent}")
        assert gone.status_code == 202, gone.text
        assert await interfaces(demo, server["id"]) == []
        assert await shown(demo, sub) == ("", SUBPORT, "")
        assert asked == []
