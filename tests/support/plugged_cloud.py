"""A cloud whose host runs QEMU, beside a Neutron whose agents have ports in bridges:
`python -m tests.support.plugged_cloud DIRECTORY PLACE`.

It has a server built, which waits for its port, and deletes it. It makes links, so it is run in namespaces of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from skep.contracts.eventually import eventually
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.functional.neighbours.test_wiring import Wires, guests, unwired
from tests.support.libvirt_hosts import OPTIONS, connection_in


def links() -> dict[str, dict[str, Any]]:
    """Return the links of the host, by name."""
    said = subprocess.run(["ip", "-json", "link"], check=True, capture_output=True).stdout
    return {one["ifname"]: one for one in json.loads(said)}


def in_bridges(_method: str, path: str, answer: Any) -> Any:
    """Have the ports of an answer bound by an agent of bridges."""
    if path.startswith("/v2.0/ports") and isinstance(answer, dict):
        for port in (*answer.get("ports", ()), *filter(None, (answer.get("port"),))):
            if port.get("binding:vif_type") == "tap":
                port["binding:vif_type"] = "bridge"
    return answer


async def walk(demo: BesideNeutron, wires: Wires, place: Path) -> None:
    """Have a server built and deleted."""
    demo.neutron.reworded = in_bridges
    network = await demo.network("10.1.0.0/24")
    answer = await demo.create([{"uuid": network["id"]}])
    assert answer.status_code == 202, answer.text
    server = str(answer.json()["server"]["id"])

    async def plugged() -> Any:
        found = [name for name in links() if name.startswith("tap")]
        return found if found and wires.told else None

    [tap] = await eventually(plugged, "the port is plugged") or []
    [port] = await demo.ports(server)
    assert tap == f"tap{port['id']}"[:14]
    bridge = f"brq{network['id']}"[:14]
    assert links()[tap]["master"] == bridge
    assert (await demo.server(server))["status"] == "BUILD"
    assert await guests(demo) == [], "its guest waits for the port"
    await wires.event(server)
    assert (await demo.settled(server))["status"] == "ACTIVE"
    connection = connection_in(place)
    assert f"<target dev='{tap}' managed='no'/>" in connection.lookupByUUIDString(server).XMLDesc()
    await demo.no_differences()
    await demo.delete(server)

    async def unplugged() -> bool:
        return tap not in links()

    await eventually(unplugged, "the tap goes with its guest")
    assert bridge in links(), "the bridge is the agent's"


async def main(directory: Path, place: Path) -> None:
    """Run the cloud. `place`: of the host, which QEMU's user can reach."""
    options = {**OPTIONS, "networks": "neutron", "directory": str(place)}
    async with unwired(directory, of_hosts={"driver": "libvirt", "driver_options": options}) as (demo, wires):
        await walk(demo, wires, place)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
