"""From what is wanted of networks to what a host has to have. Pure: the same question has the same answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

import msgspec

from skep.compute.drivers.libvirt.bridged.advertisements import AdvertisedLeg, advertisements
from skep.compute.drivers.libvirt.bridged.filters import bridge_rules
from skep.compute.drivers.libvirt.bridged.leases import configuration
from skep.compute.drivers.libvirt.bridged.names import (
    BRIDGE,
    LEG,
    LEG_CABLE,
    OF_NETWORK,
    OF_ROUTER,
    OUTSIDE,
    SERVICE,
    SERVICE_ADDRESS,
    SERVICE_CABLE,
    SERVICE_MAC,
    TUNNEL,
    UPLINK,
    address,
    block,
    leg_alias,
    leg_digest,
    link_local,
    mac,
    number,
    tap,
    uid,
)
from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.compute.drivers.libvirt.bridged.routing import (
    RoutedNetwork,
    host_rules,
    router_rules,
    router_rules6,
    service_rules,
)
from skep.compute.drivers.libvirt.bridged.state import Bridge, Cable, HostWiring, LinkRoute, NetworkSpace, Tap, Tunnel
from skep.domain.host_networks import HostNetworks, HostRouter, RouterLeg, Segment, SegmentSubnet

UPLINK_MTU = 1500
LEAST_MTU6 = 1280
"""Bytes: links with less have no IPv6 (RFC 8200, section 5)."""
FIRST = 2
"""The first number of a namespace: the address of the host itself is before it."""


def owners(wanted: HostNetworks) -> tuple[str, ...]:
    """Return the namespaces that have a way to the outside: those of networks, for their DNS, and of routers."""
    networks = (f"network:{uid(one.network)}" for one in wanted.segments)
    routers = (f"router:{uid(one.id)}" for one in wanted.routers if one.admin_state_up and one.outside)
    return (*networks, *routers)


def numbered(wanted: Sequence[str], found: Mapping[str, int], most: int) -> dict[str, int]:
    """Return a number for each owner: the one that it has, else the smallest that is free.

    Raises ValueError where none is left up to `most`.
    """
    kept = {owner: found[owner] for owner in wanted if FIRST <= found.get(owner, 0) <= most}
    taken = set(kept.values())
    free = (one for one in range(FIRST, most + 1) if one not in taken)
    for owner in wanted:
        if owner not in kept:
            one = next(free, None)
            if one is None:
                raise ValueError(f"there are more than {most - FIRST + 1} networks and routers on the host")
            kept[owner] = one
    return kept


def most_numbers(options: BridgeOptions) -> int:
    """Return the largest number: each is an address, and a zone of connections (16 bits)."""
    return min(options.transit.num_addresses - 2, 0xFFFF)


def plan(wanted: HostNetworks, options: BridgeOptions, numbers: Mapping[str, int]) -> HostWiring:
    """Return what a host has to have. Raises ValueError, which names it, for what is no address, id or number."""
    routers = [one for one in wanted.routers if one.admin_state_up]
    segments = {one.network: one for one in wanted.segments}
    uplinks = [_uplink(owner, numbers[owner], options) for owner in owners(wanted)]
    floating = {
        str(address(one.address)): numbers[f"router:{router.id}"]
        for router in routers
        if router.outside
        for one in router.floating
    }
    tunnels = tuple(_tunnels(wanted.segments, options))
    leg_cables = _leg_cables(routers, segments, options)
    sources = [(one.name, str(options.transit[int(one.name.removeprefix(UPLINK))])) for one in uplinks]
    sources += [(f"{UPLINK}{place}", one) for one, place in floating.items()]
    rules = host_rules(
        options,
        zones={f"{BRIDGE}{one.number}": numbers[f"network:{one.network}"] for one in wanted.segments},
        sources=sources,
        floating=floating,
        peers={peer for one in tunnels for peer in one.peers},
    )
    return HostWiring(
        bridges=tuple(Bridge(name=f"{BRIDGE}{number(one.number)}", mtu=int(one.mtu)) for one in wanted.segments),
        tunnels=tunnels,
        taps=tuple(tap for one in wanted.segments for tap in _taps(one)),
        cables=(
            *(_service_cable(one, options) for one in wanted.segments),
            *leg_cables.values(),
            *uplinks,
        ),
        spaces=(
            *(_network_space(one, options) for one in wanted.segments),
            *(_router_space(one, options, numbers, segments, leg_cables) for one in routers),
        ),
        ruleset=bridge_rules(wanted, options.tunnel_address) + rules,
        routes=(
            *(LinkRoute(destination=one, device=cable.name) for cable in uplinks for one in cable.addresses),
            *(
                LinkRoute(destination=f"{one}/32", device=f"{UPLINK}{place}", via=str(options.transit[place]))
                for one, place in floating.items()
            ),
        ),
        proxied=tuple(sorted(floating)) if options.outside_interface else (),
        own_spaces=tuple(f"{options.spaces}{kind}-" for kind in (OF_NETWORK, OF_ROUTER)),
    )


def with_possible_addresses(wanted: HostNetworks, *, ipv6: bool) -> HostNetworks:
    """Return the same without legs that the kernel of a host refuses: `ipv6` tells whether it has IPv6.

    Nor with floating addresses of IPv6, which 0.11.0 gave: nothing translates to them, and rules that name one are
    refused with all others.
    """
    wide = {one.network for one in wanted.segments if one.mtu >= LEAST_MTU6} if ipv6 else frozenset[str]()
    routers = (
        msgspec.structs.replace(
            one,
            legs=tuple(
                leg
                for leg in one.legs
                if (own := address(leg.address)).version == 4 or (leg.network in wide and not own.is_multicast)
            ),
            floating=tuple(led for led in one.floating if address(led.address).version == 4),
        )
        for one in wanted.routers
    )
    return msgspec.structs.replace(wanted, routers=tuple(routers))


def _taps(segment: Segment) -> Iterator[Tap]:
    for port in segment.ports:
        up = segment.admin_state_up and port.admin_state_up
        yield Tap(name=tap(port.id), bridge=f"{BRIDGE}{segment.number}", mtu=segment.mtu, up=up)


def _tunnels(segments: Iterable[Segment], options: BridgeOptions) -> Iterator[Tunnel]:
    if not options.tunnel_address:
        return
    local = address(options.tunnel_address)
    for one in segments:
        peers = sorted(str(peer) for peer in map(address, one.peers) if peer.version == local.version)
        yield Tunnel(
            name=f"{TUNNEL}{one.number}",
            number=one.number,
            bridge=f"{BRIDGE}{one.number}",
            mtu=one.mtu,
            local=str(local),
            port=options.tunnel_port,
            peers=tuple(peers),
        )


def _uplink(owner: str, place: int, options: BridgeOptions) -> Cable:
    kind, _, identity = owner.partition(":")
    return Cable(
        name=f"{UPLINK}{place}",
        inner=OUTSIDE,
        namespace=f"{options.spaces}{OF_NETWORK if kind == 'network' else OF_ROUTER}-{identity}",
        mtu=UPLINK_MTU,
        addresses=(f"{options.transit[place]}/32",),
        outer_addresses=(f"{options.gateway}/32",),
        alias=owner,
    )


def _service_cable(segment: Segment, options: BridgeOptions) -> Cable:
    return Cable(
        name=f"{SERVICE_CABLE}{segment.number}",
        inner=SERVICE,
        namespace=f"{options.spaces}{OF_NETWORK}-{segment.network}",
        mtu=segment.mtu,
        bridge=f"{BRIDGE}{segment.number}",
        mac=SERVICE_MAC,
        addresses=(f"{SERVICE_ADDRESS}/32",),
    )


def _subnet(leg: RouterLeg, segments: Mapping[str, Segment]) -> SegmentSubnet:
    for one in segments[leg.network].subnets if leg.network in segments else ():
        if one.id == leg.subnet:
            return one
    raise ValueError(f"the subnet {leg.subnet[:80]!r} of a router is not among those of the host")


def _leg_cables(
    routers: Iterable[HostRouter], segments: Mapping[str, Segment], options: BridgeOptions
) -> dict[str, Cable]:
    """Return the cables of legs, by name: one for a leg with several addresses.

    A name has few bits of what it stands for, and users choose hardware addresses. A leg whose name another one has is
    left out, so that its owner has no use of that and the others of the host no harm.
    """
    found: dict[str, Cable] = {}
    for router in routers:
        for leg in router.legs:
            cable = _leg_cable(router, leg, segments, options)
            other = found.setdefault(cable.name, cable)
            if other is not cable and msgspec.structs.replace(other, addresses=cable.addresses) == cable:
                both = dict.fromkeys((*other.addresses, *cable.addresses))
                found[cable.name] = msgspec.structs.replace(other, addresses=tuple(both))
    return found


def _leg_cable(router: HostRouter, leg: RouterLeg, segments: Mapping[str, Segment], options: BridgeOptions) -> Cable:
    own, hardware = address(leg.address), mac(leg.mac_address)
    addresses = [f"{own}/{ip_network(_subnet(leg, segments).cidr).prefixlen}"]
    if own.version == 6:
        hardware = leg_alias(leg, options.tunnel_address)
        addresses.append(f"{link_local(hardware)}/64")
    segment, digest = segments[leg.network], leg_digest(leg)
    return Cable(
        name=f"{LEG_CABLE}{digest}",
        inner=f"{LEG}{digest}",
        namespace=f"{options.spaces}{OF_ROUTER}-{uid(router.id)}",
        mtu=segment.mtu,
        bridge=f"{BRIDGE}{segment.number}",
        mac=hardware,
        addresses=tuple(addresses),
    )


def _network_space(segment: Segment, options: BridgeOptions) -> NetworkSpace:
    blocks = [IPv4Network(one.cidr) for one in segment.subnets if one.ip_version == 4]
    service = str(SERVICE_ADDRESS)
    leases = any(one.enable_dhcp and one.ip_version == 4 for one in segment.subnets)
    return NetworkSpace(
        name=f"{options.spaces}{OF_NETWORK}-{segment.network}",
        forwards=False,
        routes=(
            *(LinkRoute(destination=str(one), device=SERVICE, source=service) for one in blocks),
            LinkRoute(destination="0.0.0.0/0", device=OUTSIDE, via=str(options.gateway)),
        ),
        ruleset=service_rules(),
        dnsmasq=configuration(segment, options.resolvers) if leases else None,
    )


def _router_space(
    router: HostRouter,
    options: BridgeOptions,
    numbers: Mapping[str, int],
    segments: Mapping[str, Segment],
    cables: Mapping[str, Cable],
) -> NetworkSpace:
    name = f"{options.spaces}{OF_ROUTER}-{uid(router.id)}"
    place = numbers.get(f"router:{router.id}")
    outside = [] if place is None else [LinkRoute(destination="0.0.0.0/0", device=OUTSIDE, via=str(options.gateway))]
    routes = {one.destination: one for one in outside}
    mine = [leg for leg in router.legs if cables[f"{LEG_CABLE}{leg_digest(leg)}"].namespace == name]
    legs = [(ip_network(_subnet(leg, segments).cidr), leg) for leg in mine]
    legs6 = [
        AdvertisedLeg(
            link=f"{LEG}{leg_digest(leg)}",
            segment=segments[leg.network],
            subnet=(subnet := _subnet(leg, segments)),
            leads=subnet.gateway_ip is not None and address(subnet.gateway_ip) == address(leg.address),
        )
        for cidr, leg in legs
        if cidr.version == 6
    ]
    nowhere = {address(leg.address) for leg in mine} | {cidr.broadcast_address for cidr, _ in legs if cidr.version == 4}
    for one in router.routes:
        hop = address(one.nexthop)
        # What no leg leads to leads nowhere; by its own address, or by all of a network, the kernel leads nothing.
        devices = (f"{LEG}{leg_digest(leg)}" for cidr, leg in legs if hop in cidr and hop not in nowhere)
        device = next(devices, None)
        if device is not None:
            destination = str(block(one.destination))
            routes[destination] = LinkRoute(destination=destination, device=device, via=str(hop))
    transit = options.gateway if place is None else options.transit[place]
    networks = _routed(legs)
    return NetworkSpace(
        name=name,
        forwards=True,
        routes=tuple(routes.values()),
        ruleset=router_rules(router, str(transit), networks) + (router_rules6(networks) if legs6 else ""),
        dnsmasq=advertisements(legs6),
    )


def _routed(legs: Iterable[tuple[IPv4Network | IPv6Network, RouterLeg]]) -> tuple[RoutedNetwork, ...]:
    """Return the networks in which a router has these legs."""
    found: dict[str, list[tuple[IPv4Network | IPv6Network, str]]] = {}
    for cidr, leg in legs:
        found.setdefault(leg.network, []).append((cidr, f"{LEG}{leg_digest(leg)}"))
    return tuple(
        RoutedNetwork(
            links=tuple(dict.fromkeys(link for _, link in some)),
            blocks4=tuple(collapse_addresses(cidr for cidr, _ in some if isinstance(cidr, IPv4Network))),
            blocks6=tuple(collapse_addresses(cidr for cidr, _ in some if isinstance(cidr, IPv6Network))),
        )
        for _, some in sorted(found.items())
    )
