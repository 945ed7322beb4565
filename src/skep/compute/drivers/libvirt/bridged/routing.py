"""The rules of nft outside of bridges: of a host's own namespace, of routers, and of the service of a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import msgspec

from skep.compute.drivers.libvirt.bridged.filters import KNOWN
from skep.compute.drivers.libvirt.bridged.names import BRIDGE, LEG, METADATA_PORT, OUTSIDE, SERVICE, UPLINK, address
from skep.compute.drivers.libvirt.bridged.nft import NftTable, quoted
from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.domain.host_networks import HostRouter

NOWHERE = ("127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4")
"""Blocks of addresses that no guest reaches by way of the host."""


class RoutedNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A network of a router."""

    links: tuple[str, ...]
    """By which the router is in it."""
    blocks4: tuple[IPv4Network, ...] = ()
    """Its subnets in which the router has an address."""
    blocks6: tuple[IPv6Network, ...] = ()


def host_rules(
    options: BridgeOptions,
    *,
    zones: Mapping[str, int],
    sources: Iterable[tuple[str, str]],
    floating: Iterable[str],
    peers: Iterable[str],
) -> str:
    """Return the table of the host's own namespace.

    `zones`: bridges, and the numbers by which connections of one network are told from those of another with the same
    addresses; `sources`: links to the outside, and the addresses that may come from them; `peers`: where the tunnels of
    other hosts are. What a guest sends leaves with the host's own address, which those hosts trust.
    """
    table = NftTable("inet")
    table.set("sources", "ifname . ipv4_addr", (f'"{link}" . {one}' for link, one in sources))
    table.set("floating", "ipv4_addr", floating)
    table.set("closed", "ipv4_addr", (*NOWHERE, *map(str, options.closed_to_guests)), interval=True)
    known = [address(one) for one in peers]
    peers4 = [str(one) for one in known if isinstance(one, IPv4Address)]
    table.set("peers4", "ipv4_addr", peers4)
    # A host may be who resolves names for the guests of the others.
    table.set("hosts", "ipv4_addr", (one for one in peers4 if one not in options.resolvers))
    table.set("peers6", "ipv6_addr", (str(one) for one in known if isinstance(one, IPv6Address)))
    pairs = ", ".join(f'"{bridge}" : {zone}' for bridge, zone in sorted(zones.items()))
    table.chain(
        "raw",
        (
            *([f"ct zone set iifname map {{ {pairs} }}"] if pairs else []),
            f'iifname "{UPLINK}*" meta nfproto ipv6 drop',
            f'iifname "{UPLINK}*" iifname . ip saddr != @sources drop',
        ),
        hook="filter hook prerouting priority -300",
    )
    of_tunnels = (
        f"udp dport {options.tunnel_port} ip saddr != @peers4 drop",
        f"udp dport {options.tunnel_port} ip6 saddr != @peers6 drop",
    )
    table.chain(
        "input",
        (
            *(of_tunnels if options.tunnel_address else ()),
            f'iifname "{UPLINK}*" ct state established,related accept',
            'iifname "sk-*" drop',
        ),
        hook="filter hook input priority -10",
    )
    to_hosts = (
        f'iifname "{UPLINK}*" udp dport {options.tunnel_port} drop',
        # Their guests come with their addresses, and are answered.
        f'iifname "{UPLINK}*" ip daddr @hosts ct state != {{ established, related }} drop',
    )
    within = f'iifname "{BRIDGE}*" oifname "{BRIDGE}*"'
    table.chain(
        "forward",
        (
            f"{within} ct state established,related meta mark set meta mark | {KNOWN:#x}",
            f"{within} accept",
            *(to_hosts if options.tunnel_address else ()),
            f'iifname "{UPLINK}*" ip daddr @closed drop',
            f'oifname "{UPLINK}*" ct state established,related accept',
            f'oifname "{UPLINK}*" ip daddr @floating accept',
            f'oifname "{UPLINK}*" drop',
            f'iifname "{BRIDGE}*" drop',
        ),
        hook="filter hook forward priority -10",
    )
    table.chain(
        "postrouting",
        [f'ip saddr {options.transit} oifname != "sk-*" masquerade'],
        hook="nat hook postrouting priority srcnat",
    )
    return table.text()


def router_rules(router: HostRouter, transit: str, networks: Sequence[RoutedNetwork]) -> str:
    """Return the table of a router's namespace; `transit`: its own address towards the outside."""
    table = NftTable("ip")
    known = [(one.links, one.blocks4) for one in networks]
    table.chain("sources", _sources("ip", known), hook="filter hook prerouting priority -150")
    pairs = [(str(address(one.address)), str(address(one.fixed_address))) for one in router.floating]
    table.map("inward", "ipv4_addr : ipv4_addr", dict(pairs))
    table.map("outward", "ipv4_addr : ipv4_addr", {fixed: outer for outer, fixed in reversed(pairs)})
    table.set("known", "ipv4_addr", (fixed for _, fixed in pairs))
    table.chain("prerouting", ["dnat to ip daddr map @inward"], hook="nat hook prerouting priority dstnat")
    table.chain(
        "postrouting",
        (
            # A guest reaches another one by its floating address, which has to answer by the router, too.
            f'iifname "{LEG}*" oifname "{LEG}*" ct status dnat masquerade',
            f'oifname "{OUTSIDE}" snat to ip saddr map @outward',
            *([f'oifname "{OUTSIDE}" snat to {transit}'] if router.enable_snat else []),
        ),
        hook="nat hook postrouting priority srcnat",
    )
    table.chain(
        "forward",
        (
            f'iifname "{OUTSIDE}" ct state established,related accept',
            f'iifname "{OUTSIDE}" ct status dnat accept',
            f'iifname "{OUTSIDE}" drop',
            *([] if router.enable_snat else [f'oifname "{OUTSIDE}" ip saddr != @known drop']),
        ),
        hook="filter hook forward priority 0",
    )
    table.chain(
        "input",
        ["ct state established,related accept", "meta l4proto icmp accept"],
        hook="filter hook input priority 0",
        policy="drop",
    )
    return table.text()


def router_rules6(networks: Sequence[RoutedNetwork]) -> str:
    """Return the table of IPv6 in a router's namespace: guests reach its DHCP, and each other's networks."""
    table = NftTable("ip6")
    known = [(one.links, one.blocks6) for one in networks]
    of_the_link = "ip6 saddr { ::, fe80::/10 } accept"
    table.chain("sources", (of_the_link, *_sources("ip6", known)), hook="filter hook prerouting priority -150")
    table.chain(
        "forward", [f'iifname "{LEG}*" oifname "{LEG}*" accept'], hook="filter hook forward priority 0", policy="drop"
    )
    table.chain(
        "input",
        ["ct state established,related accept", "meta l4proto icmpv6 accept", f'iifname "{LEG}*" udp dport 547 accept'],
        hook="filter hook input priority 0",
        policy="drop",
    )
    return table.text()


def _sources(
    family: str, networks: Iterable[tuple[Sequence[str], Sequence[IPv4Network | IPv6Network]]]
) -> Iterator[str]:
    """Yield the rules by which a router takes packets from where it leads answers to them only.

    Who turns port security off in a network of his own would send into the others as any of their guests. An address
    of a subnet comes by the network of that subnet, whatever the router's routes say, for users choose these.
    `networks`: links and subnets. A guest may be in several subnets of a network, and answer by the router of one; what
    says that a packet did not arrive comes from any machine on its way.
    """
    yield f"meta l4proto {'icmp' if family == 'ip' else 'icmpv6'} ct state related accept"
    for links, blocks in networks:
        known = ", ".join(quoted(links))
        if blocks:
            own = ", ".join(map(str, blocks))
            yield f'iifname != {{ "lo", {known} }} {family} saddr {{ {own} }} drop'
        yield f"iifname {{ {known} }} fib saddr oifname != {{ {known} }} drop"


def service_rules() -> str:
    """Return the table of a network's namespace: guests reach DHCP, DNS and metadata in it.

    Where nothing takes their requests for metadata they hear so at once, and do not wait for it.
    """
    table = NftTable("ip")
    table.chain(
        "input",
        (
            "ct state established,related accept",
            f'iifname "{SERVICE}" udp dport {{ 53, 67 }} accept',
            f'iifname "{SERVICE}" tcp dport {{ 53, {METADATA_PORT} }} accept',
            f'iifname "{SERVICE}" meta l4proto icmp accept',
        ),
        hook="filter hook input priority 0",
        policy="drop",
    )
    return table.text()
