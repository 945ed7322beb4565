"""What guests read of their interfaces, and which keys of addresses an answer has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.functional.networks.test_servers_with_addresses import NEWEST, tenant


def on_drive(root: Path, document: str) -> Any:
    """Return a document of the only config drive."""
    [file] = root.rglob(document)
    return json.loads(file.read_text())


async def test_a_config_drive_names_the_interfaces(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        network = await demo.networks("POST", "networks", {"network": {"name": "mine"}})
        subnet = {"network_id": network["id"], "cidr": "10.1.0.0/24", "ip_version": 4, "enable_dhcp": False}
        await demo.networks("POST", "subnets", {"subnet": subnet})
        wanted = [{"uuid": network["id"], "fixed_ip": "10.1.0.77", "tag": "front"}]
        server = await demo.built(wanted, config_drive=True)
        assert server["status"] == "ACTIVE"
        [port] = await demo.ports(server["id"])

        told = on_drive(tmp_path, "openstack/latest/network_data.json")
        assert [(one["vif_id"], one["ethernet_mac_address"]) for one in told["links"]] == [
            (port["id"], port["mac_address"])
        ]
        assert [(one["type"], one["ip_address"]) for one in told["networks"]] == [("ipv4", "10.1.0.77")]
        [device] = on_drive(tmp_path, "openstack/latest/meta_data.json")["devices"]
        assert (device["mac"], device["tags"]) == (port["mac_address"], ["front"])
        ec2 = on_drive(tmp_path, "ec2/latest/meta-data.json")
        assert (ec2["local-ipv4"], ec2["public-ipv4"], ec2["security-groups"]) == ("10.1.0.77", "", ["default"])


async def test_a_change_of_a_server_shows_kinds_of_addresses_since_2_75(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24", "mine")
        path = f"/servers/{(await demo.built([{'uuid': network['id']}]))['id']}"
        body = {"server": {"name": "two"}}
        for method, said, version, kinds in (
            ("PUT", body, "2.74", False),
            ("PUT", body, "2.75", True),
            ("GET", None, "2.1", True),
            ("GET", None, NEWEST, True),
        ):
            answer = await demo.compute.ask(method, path, said, version=version)
            assert answer.status_code == 200, answer.text
            [address] = answer.json()["server"]["addresses"]["mine"]
            assert ("OS-EXT-IPS:type" in address, "OS-EXT-IPS-MAC:mac_addr" in address) == (kinds, kinds)
