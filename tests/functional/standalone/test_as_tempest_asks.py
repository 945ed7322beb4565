"""What OpenStack's own tests and clients ask of a network service beyond what its document says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.network_session import NetworkSession


async def test_numbers_and_truth_values_as_text(networks: NetworkSession) -> None:
    network = await networks.make("network", admin_state_up="false", mtu="1400")
    assert (network["admin_state_up"], network["mtu"]) == (False, 1400)
    assert (await networks.change("network", network["id"], admin_state_up="True"))["admin_state_up"] is True
    subnet = await networks.make("subnet", network_id=network["id"], ip_version="4", cidr="10.0.0.0/24", enable_dhcp=0)
    assert (subnet["ip_version"], subnet["enable_dhcp"]) == (4, False)
    group = await networks.make("security_group", name="web")
    rule = {"security_group_id": group["id"], "direction": "ingress", "protocol": "6"}
    made = await networks.make("security_group_rule", **rule, port_range_min="80", port_range_max="81")
    assert (made["protocol"], made["port_range_min"], made["port_range_max"]) == ("6", 80, 81)


@pytest.mark.parametrize(
    "said", [{"name": 5}, {"admin_state_up": "maybe"}, {"admin_state_up": 2}, {"mtu": "x"}, {"mtu": 1400.5}]
)
async def test_other_texts_are_refused(networks: NetworkSession, said: dict[str, Any]) -> None:
    status, _, message = await networks.refused("POST", "/networks", {"network": said})
    assert (status, f"network.{next(iter(said))}: " in message) == (400, True), message
    assert await networks.listed("network") == []


@pytest.mark.parametrize(
    ("version", "small", "large"), [(4, "10.0.0.0/31", "10.0.0.0/30"), (6, "fd00::/127", "fd00::/126")]
)
async def test_dhcp_needs_room(networks: NetworkSession, version: int, small: str, large: str) -> None:
    network = await networks.make("network")
    said = {"network_id": network["id"], "ip_version": version, "gateway_ip": None}
    status, kind, message = await networks.refused("POST", "/subnets", {"subnet": {**said, "cidr": small}})
    assert (status, kind, "incompatible with DHCP" in message) == (400, "InvalidInput", True), message
    without = await networks.make("subnet", **said, cidr=small, enable_dhcp=False)
    turned_on = {"subnet": {"enable_dhcp": True}}
    assert (await networks.refused("PUT", f"/subnets/{without['id']}", turned_on))[:2] == (400, "InvalidInput")
    assert (await networks.change("subnet", without["id"], name="small"))["enable_dhcp"] is False
    await networks.delete("subnet", without["id"])
    assert (await networks.make("subnet", **said, cidr=large))["enable_dhcp"] is True


async def test_no_group_becomes_a_second_default(networks: NetworkSession) -> None:
    group = await networks.make("security_group", name="web")
    body = {"security_group": {"name": "default"}}
    refused = await networks.refused("PUT", f"/security-groups/{group['id']}", body)
    assert refused[:2] == (409, "SecurityGroupDefaultAlreadyExists")
    assert (await networks.show("security_group", group["id"]))["name"] == "web"


@pytest.mark.parametrize(
    ("least", "most", "why"),
    [
        (-16, 80, "Invalid value for port -16"),
        (80, 65536, "Invalid value for port 65536"),
        (None, 6, "port_range_min must be <= port_range_max"),
    ],
)
async def test_a_port_that_is_none_is_named(
    networks: NetworkSession, least: int | None, most: int | None, why: str
) -> None:
    group = await networks.make("security_group", name="web")
    rule = {"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp"}
    said = {"security_group_rule": {**rule, "port_range_min": least, "port_range_max": most}}
    status, _, message = await networks.refused("POST", "/security-group-rules", said)
    assert (status, why in message) == (400, True), message
