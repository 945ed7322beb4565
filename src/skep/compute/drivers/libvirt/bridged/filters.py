"""What goes through the bridges of a host: who may send as whom, security groups, and what stays on the host.

The family `bridge` sees each frame between two links of a bridge. Which connection a frame belongs to is known to the
family `inet`, which frames pass too (`br_netfilter`), and is told by a mark: kernels may have no other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses

from skep.compute.drivers.libvirt.bridged.names import (
    GROUP,
    LEG_CABLE,
    METADATA_PORT,
    SERVICE_ADDRESS,
    SERVICE_CABLE,
    SERVICE_MAC,
    TUNNEL,
    address,
    block,
    leg_alias,
    link_local,
    mac,
    number,
    tap,
    uid,
)
from skep.compute.drivers.libvirt.bridged.nft import NftTable
from skep.domain.host_networks import Group, GroupRule, HostNetworks, PluggedPort, RouterLeg

KNOWN = 0x20000000
"""The bit of a frame's mark that says: it belongs to a connection that was let through."""
OURS = f"iifgroup != {GROUP} accept"
"""The first rule of each chain: bridges of others are not looked at."""
NEIGHBOURS = "icmpv6 type { 131, 132, 133, 135, 136, 143 }"
"""How guests find each other, and listen to groups, by IPv6."""
ICMP, ICMPV6 = 1, 58
PROTOCOLS = {
    "icmp": ICMP,
    "igmp": 2,
    "ipip": 4,
    "tcp": 6,
    "egp": 8,
    "udp": 17,
    "dccp": 33,
    "ipv6-encap": 41,
    "ipv6-route": 43,
    "ipv6-frag": 44,
    "rsvp": 46,
    "gre": 47,
    "esp": 50,
    "ah": 51,
    "icmpv6": ICMPV6,
    "ipv6-icmp": ICMPV6,
    "ipv6-nonxt": 59,
    "ipv6-opts": 60,
    "ospf": 89,
    "pgm": 113,
    "vrrp": 112,
    "sctp": 132,
    "udplite": 136,
}
"""Names of protocols that rules may have, and their numbers (IANA's registry)."""


def bridge_rules(wanted: HostNetworks, tunnel_address: str) -> str:
    """Return the table for frames. Raises ValueError for what is no address, id or protocol."""
    table = NftTable("bridge")
    ports = [port for one in wanted.segments if one.admin_state_up for port in one.ports if port.admin_state_up]
    _add_groups(table, wanted.groups)
    _add_fabric(table, wanted, tunnel_address)
    for port in ports:
        name = uid(port.id)
        table.chain(f"s_{name}", _sender(port))
        for side, chain in (("i", "in"), ("o", "out")):
            allowed = [f"jump {side}_{uid(group)}" for group in port.groups]
            table.chain(f"{chain}_{name}", [*allowed, "drop"] if port.port_security_enabled else ["accept"])
    known = ((port, address(one)) for port in ports for one in port.addresses)
    own = (f'"{tap(port.id)}" . {one}' for port, one in known if isinstance(one, IPv4Address))
    table.set("own4", "ifname . ipv4_addr", own)
    stateless = {group.id for group in wanted.groups if not group.stateful}
    plain = [port for port in ports if stateless.isdisjoint(port.groups)]
    others = [port for port in ports if not stateless.isdisjoint(port.groups)]
    _add_verdicts(table, "sender", "s", ports)
    for chain in ("in", "out"):
        _add_verdicts(table, f"ports_{chain}", chain, plain)
        _add_verdicts(table, f"stateless_{chain}", chain, others)
    table.chain("prerouting", _arrives(), hook="filter hook prerouting priority -300")
    table.chain("egress", _leaves_a_guest(), hook="filter hook forward priority 100")
    table.chain("ingress", _reaches_a_guest(), hook="filter hook forward priority 110")
    table.chain("input", [f"iifgroup {GROUP} drop"], hook="filter hook input priority 0")
    return table.text()


def _add_verdicts(table: NftTable, name: str, chain: str, ports: Iterable[PluggedPort]) -> None:
    table.map(name, "ifname : verdict", {f'"{tap(port.id)}"': f"goto {chain}_{port.id}" for port in ports})


def _arrives() -> Iterator[str]:
    """Yield what is done with each frame before a bridge looks where it goes."""
    yield OURS
    yield f"meta mark set meta mark & {KNOWN ^ 0xFFFFFFFF:#x}"
    yield f'iifname "{TUNNEL}*" goto from_tunnel'
    # However a guest routes it, what is for the host's own service goes there.
    yield f"ip daddr {SERVICE_ADDRESS} ether daddr set {SERVICE_MAC}"
    # By its own address only a port asks for metadata, and is answered: whatever else it may send as.
    yield f"ip daddr {SERVICE_ADDRESS} tcp dport {METADATA_PORT} iifname . ip saddr != @own4 drop"
    yield 'iifname "sk-*" accept'
    yield "iifname vmap @sender"
    yield "drop"


def _leaves_a_guest() -> Iterator[str]:
    yield OURS
    yield f'oifname "{TUNNEL}*" jump to_tunnel'
    yield 'iifname "sk-*" accept'
    yield "ether type arp accept"
    yield "ether type ip udp sport 68 udp dport 67 accept"
    yield f'oifname "{LEG_CABLE}*" ether type ip6 udp sport 546 udp dport 547 accept'
    yield f"ether type ip6 {NEIGHBOURS} accept"
    yield "iifname vmap @stateless_out"
    yield f"meta mark & {KNOWN:#x} != 0 accept"
    yield "iifname vmap @ports_out"
    yield "drop"


def _reaches_a_guest() -> Iterator[str]:
    yield OURS
    yield 'oifname "sk-*" accept'
    yield "ether type arp accept"
    yield f"ip saddr {SERVICE_ADDRESS} tcp sport {METADATA_PORT} oifname . ip daddr != @own4 drop"
    yield f'iifname "{SERVICE_CABLE}*" accept'
    yield f"ether type ip6 {NEIGHBOURS} accept"
    of_routers = f'iifname "{LEG_CABLE}*" ether type ip6 ip6 saddr fe80::/10'
    yield f"{of_routers} icmpv6 type 134 accept"
    yield f"{of_routers} udp sport 547 udp dport 546 accept"
    yield "oifname vmap @stateless_in"
    yield f"meta mark & {KNOWN:#x} != 0 accept"
    yield "oifname vmap @ports_in"
    yield "drop"


def _sender(port: PluggedPort) -> Iterator[str]:
    """Yield the rules by which a port sends as itself only."""
    if not port.port_security_enabled:
        yield "accept"
        return
    senders = _senders(port)
    macs = ", ".join(sorted(senders))
    yield f"ether saddr != {{ {macs} }} drop"
    yield f"ether type arp arp saddr ether != {{ {macs} }} drop"
    yield "ether type ip udp sport 67 udp dport 68 drop"
    yield "ether type ip ip saddr 0.0.0.0 udp sport 68 udp dport 67 accept"
    yield "ether type ip6 icmpv6 type { 134, 137 } drop"
    yield "ether type ip6 udp sport 547 udp dport 546 drop"
    yield f"ether type ip6 ip6 saddr :: {NEIGHBOURS} accept"
    for own, blocks in sorted(senders.items()):
        of4 = [one for one in blocks if isinstance(one, IPv4Network)]
        of6 = [one for one in blocks if isinstance(one, IPv6Network)]
        known = ", ".join(map(str, collapse_addresses([*of4, IPv4Network("0.0.0.0/32")])))
        yield f"arp saddr ether {own} arp saddr ip {{ {known} }} accept"
        if of4:
            yield f"ether saddr {own} ip saddr {{ {', '.join(map(str, collapse_addresses(of4)))} }} accept"
        alike = list(collapse_addresses([*of6, IPv6Network(link_local(own))]))
        told = [(int(one[0]), int(one[-1])) for one in alike]
        ranges = ", ".join(f"{first:#034x}-{last:#034x}" if first != last else f"{first:#034x}" for first, last in told)
        yield f"ether saddr {own} icmpv6 type 136 @th,64,128 != {{ {ranges} }} drop"
        yield f"ether saddr {own} ip6 saddr {{ {', '.join(map(str, alike))} }} accept"
    yield "drop"


def _senders(port: PluggedPort) -> dict[str, list[IPv4Network | IPv6Network]]:
    """Return as which hardware addresses a port may send, and from which blocks of addresses as each."""
    own = mac(port.mac_address)
    senders = {own: [block(one) for one in port.addresses]}
    for pair in port.allowed_address_pairs:
        of = mac(pair.mac_address) if pair.mac_address else own
        senders.setdefault(of, []).append(block(pair.ip_address))
    return senders


def _add_groups(table: NftTable, groups: Sequence[Group]) -> None:
    """Add two chains of each group, and sets of the members' addresses."""
    for group in groups:
        name = uid(group.id)
        members = [address(one) for one in group.members]
        table.set(f"m4_{name}", "ipv4_addr", (str(one) for one in members if isinstance(one, IPv4Address)))
        table.set(f"m6_{name}", "ipv6_addr", (str(one) for one in members if isinstance(one, IPv6Address)))
        for side, direction in (("i", "ingress"), ("o", "egress")):
            table.chain(
                f"{side}_{name}", (f"{_match(one)} accept" for one in group.rules if one.direction == direction)
            )


def _match(rule: GroupRule) -> str:
    """Return what of a frame a rule lets through."""
    version = 4 if rule.ethertype == "IPv4" else 6
    ip, end = ("ip" if version == 4 else "ip6"), ("saddr" if rule.direction == "ingress" else "daddr")
    words = [f"ether type {ip}"]
    if rule.remote_ip_prefix is not None:
        remote = block(rule.remote_ip_prefix)
        if remote.version != version:
            raise ValueError(f"{remote} is not of {rule.ethertype}")
        words.append(f"{ip} {end} {remote}")
    if rule.remote_group is not None:
        words.append(f"{ip} {end} @m{version}_{uid(rule.remote_group)}")
    if rule.protocol is not None:
        words += _protocol(rule, version)
    return " ".join(words)


def _protocol(rule: GroupRule, version: int) -> Iterator[str]:
    said = (rule.protocol or "").lower()
    known = PROTOCOLS.get(said)
    if known is None and not (said.isascii() and said.isdigit() and int(said) <= 255):
        raise ValueError(f"{said[:80]!r} is no protocol")
    found = int(said) if known is None else known
    if found == ICMP and version == 6:
        found = ICMPV6
    yield f"meta l4proto {found}"
    first, last = rule.port_range_min, rule.port_range_max
    if found in (ICMP, ICMPV6):
        kind = "icmp" if found == ICMP else "icmpv6"
        if first is not None:
            yield f"{kind} type {first:d}"
        if last is not None:
            yield f"{kind} code {last:d}"
    elif first is not None or last is not None:
        yield f"th dport {0 if first is None else first:d}-{65535 if last is None else last:d}"


def _add_fabric(table: NftTable, wanted: HostNetworks, tunnel_address: str) -> None:
    """Add what keeps a host's own router, DHCP and DNS on the host: each host has the same.

    Frames of a router's leg go to other hosts under an address of this host's, and answers to that are the leg's. A leg
    of IPv6 has that address itself, and leads on guests that came live from its host until they hear of another; of its
    others, which all hosts have, nothing is asked and said between hosts.
    """
    numbers = {one.network: number(one.number) for one in wanted.segments}
    everyone = [leg for router in wanted.routers if router.admin_state_up for leg in router.legs]
    legs = [leg for leg in everyone if _is_v4(leg)]
    legs6 = [leg for leg in everyone if not _is_v4(leg)]
    gateways6: dict[str, list[IPv6Address | IPv4Address]] = {}
    for leg in legs6:
        gateways6.setdefault(f"{TUNNEL}{numbers[leg.network]}", []).append(address(leg.address))
    away = {mac(leg.mac_address): leg_alias(leg, tunnel_address) for leg in legs}
    gateways = [f'"{TUNNEL}{numbers[leg.network]}" . {address(leg.address)}' for leg in legs]
    own = [(leg.network, mac(leg.mac_address)) for leg in legs] + [(one, SERVICE_MAC) for one in numbers]
    # Other networks may have such an address, too, and users choose them.
    everywhere = (f'"{TUNNEL}{numbers[network]}" . {one}' for network, one in own)
    table.set("everywhere", "ifname . ether_addr", everywhere)
    table.set("gateways", "ifname . ipv4_addr", gateways)
    table.set("aliases", "ether_addr", away.values())
    table.map("away", "ether_addr : ether_addr", away)
    table.map("home", "ether_addr : ether_addr", {alias: own for own, alias in away.items()})
    of_dhcp = (
        "ether type ip udp sport { 67, 68 } udp dport { 67, 68 } drop",
        "ether type ip6 udp sport { 546, 547 } udp dport { 546, 547 } drop",
        "icmpv6 type { 134, 137 } drop",
    )
    table.chain(
        "from_tunnel",
        (
            "iifname . ether saddr @everywhere drop",
            "iifname . ether daddr @everywhere drop",
            "ether daddr @aliases ether type != arp drop",
            f"ip saddr {SERVICE_ADDRESS} drop",
            f"ip daddr {SERVICE_ADDRESS} drop",
            *of_dhcp,
            "arp daddr ether set arp daddr ether map @home",
            "ether daddr set ether daddr map @home",
            "accept",
        ),
    )
    table.chain(
        "to_tunnel",
        (
            f'iifname "{SERVICE_CABLE}*" drop',
            "oifname . ether daddr @everywhere drop",
            "ether type arp oifname . arp daddr ip @gateways drop",
            f"arp daddr ip {SERVICE_ADDRESS} drop",
            *of_dhcp,
            *(rule for link, found in sorted(gateways6.items()) for rule in _kept_from(link, found)),
        ),
    )
    table.chain(
        "postrouting",
        (
            f'oifname != "{TUNNEL}*" accept',
            "oifname . ether saddr != @everywhere accept",
            # A guest that is asked answers, and goes on to know its gateway by its own host's address.
            "arp operation request arp saddr ip set 0.0.0.0",
            "arp saddr ether set arp saddr ether map @away",
            "ether saddr set ether saddr map @away",
        ),
        hook="filter hook postrouting priority 300",
    )


def _kept_from(tunnel: str, gateways: Sequence[IPv6Address | IPv4Address]) -> Iterator[str]:
    """Yield the rules by which no other host is asked for gateways of IPv6, or told of them."""
    asked = ", ".join(f"{int(one):#034x}" for one in gateways)
    yield f'oifname "{tunnel}" ether type ip6 icmpv6 type 135 @th,64,128 {{ {asked} }} drop'
    yield f'oifname "{tunnel}" ip6 saddr {{ {", ".join(map(str, gateways))} }} drop'


def _is_v4(leg: RouterLeg) -> bool:
    return isinstance(address(leg.address), IPv4Address)
