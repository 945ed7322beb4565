"""What a guest reads of its interfaces: `network_data.json`, and which device or disk has which tag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Any

from skep.domain.vifs import Vif, VifAddress, VifSubnet
from skep.domain.volumes import ServerVolume

Json = dict[str, Any]

KNOWN_LINKS = frozenset({"bridge", "dvs", "hw_veb", "hyperv", "ovs", "tap", "vhostuser", "vif"})
"""Types of links that guests know; any other is told as `phy`."""
TRUST_SINCE = "2018-08-27"
NO_PLACE = "none"
"""Bus and address of a device: only its host knows them."""


def network_data(vifs: Sequence[Vif]) -> Json:
    """Return what a guest needs to configure its interfaces; empty without any."""
    if not vifs:
        return {}
    links: list[Json] = []
    networks: list[Json] = []
    servers: dict[str, None] = {}
    for vif in vifs:
        subnets = list(_first_subnets(vif))
        # DHCP tells the MTU itself.
        mtu = None if any(subnet.dhcp for subnet in vif.subnets) else vif.mtu
        links.append(
            {
                "id": vif.device_name,
                "vif_id": vif.id,
                "type": vif.type if vif.type in KNOWN_LINKS else "phy",
                "mtu": mtu,
                "ethernet_mac_address": vif.mac_address,
            }
        )
        for subnet, address in subnets:
            networks.append(_network(vif, subnet, address, len(networks)))
        servers |= dict.fromkeys(server for subnet, _ in subnets for server in subnet.dns)
    return {"links": links, "networks": networks, "services": _services(tuple(servers))}


def _first_subnets(vif: Vif) -> Iterator[tuple[VifSubnet, VifAddress]]:
    """Yield the first subnet of each IP version with its first address: guests are told no others."""
    seen: set[int] = set()
    for subnet in sorted(vif.subnets, key=lambda one: one.version):
        if subnet.addresses and subnet.version not in seen:
            seen.add(subnet.version)
            yield subnet, subnet.addresses[0]


def _network(vif: Vif, subnet: VifSubnet, address: VifAddress, number: int) -> Json:
    mode = f"_{subnet.ipv6_address_mode}" if subnet.ipv6_address_mode else "_dhcp" if subnet.dhcp else ""
    told: Json = {
        "id": f"network{number}",
        "type": f"ipv{subnet.version}{mode}",
        "link": vif.device_name,
        "network_id": vif.network_id,
    }
    if mode == "_dhcp":
        return told
    return told | {
        "ip_address": address.address,
        "netmask": str(ip_network(subnet.cidr).netmask),
        "routes": list(_routes(subnet)),
        "services": _services(subnet.dns),
    }


def _routes(subnet: VifSubnet) -> Iterator[Json]:
    if subnet.gateway is not None:
        anywhere = "0.0.0.0" if subnet.version == 4 else "::"  # noqa: S104 - a destination
        yield {"network": anywhere, "netmask": anywhere, "gateway": subnet.gateway}
    for route in subnet.routes:
        to = ip_network(route.destination)
        yield {"network": str(to.network_address), "netmask": str(to.netmask), "gateway": route.nexthop}


def _services(servers: Sequence[str]) -> list[Json]:
    return [{"type": "dns", "address": server} for server in servers]


def tagged_devices(vifs: Sequence[Vif], version: str) -> list[Json]:
    """Return the interfaces that have tags, as a version of `meta_data.json` says them."""
    trust = {"vf_trusted": False} if version >= TRUST_SINCE else {}
    return [
        {"type": "nic", "bus": NO_PLACE, "address": NO_PLACE, "mac": vif.mac_address, "tags": [vif.tag], **trust}
        for vif in vifs
        if vif.tag is not None
    ]


def tagged_disks(volumes: Sequence[ServerVolume]) -> list[Json]:
    """Return the volumes that have tags, as `meta_data.json` says them."""
    return [
        {
            "type": "disk",
            "bus": NO_PLACE,
            "address": NO_PLACE,
            "serial": one.volume_id,
            "path": one.device,
            "tags": [one.tag],
        }
        for one in volumes
        if one.tag is not None
    ]


def first_address(vifs: Sequence[Vif], *, floating: bool = False) -> str:
    """Return the first IPv4 address of a server, a fixed or a floating one; empty: it has none."""
    addresses = (one for vif in vifs for subnet in vif.subnets if subnet.version == 4 for one in subnet.addresses)
    found = (text for one in addresses for text in (one.floating if floating else (one.address,)))
    return next(found, "")
