"""Arithmetic of a subnet's addresses: which are given out, and what one is called where their order counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from skep.domain.networking import AllocationPool

IpNetwork = IPv4Network | IPv6Network
IpAddress = IPv4Address | IPv6Address

SMALLEST_WITH_BROADCAST = 31
"""Prefix from which on an IPv4 network has neither a network address nor one of broadcasts (RFC 3021)."""


class BadSubnet(ValueError):
    """Values that make no subnet; the text says why."""


class GatewayInPool(BadSubnet):
    """A gateway whose address a port could be given."""


def network_of(cidr: str, version: int) -> IpNetwork:
    """Return the network that a CIDR names; bits of a host in it are dropped, as Neutron does.

    Raises BadSubnet, also where an IPv4 network has its length as a mask: Neutron takes a number only.
    """
    network = block_of(cidr)
    length = cidr.partition("/")[2]
    if not length or (network.version == 4 and length != str(network.prefixlen)):
        raise BadSubnet(f"'{cidr}' is not a valid IP subnet, expected '{network.network_address}/{network.prefixlen}'")
    if network.version != version:
        raise BadSubnet(f"cidr '{cidr}' does not match the ip_version '{version}'")
    if network.is_multicast or network.is_loopback or int(network.network_address) == 0 or network.prefixlen == 0:
        raise BadSubnet(f"'{cidr}' is not a valid IP subnet")
    return network


def block_of(text: str) -> IpNetwork:
    """Return the addresses that a CIDR names, whatever they are for; bits of a host in it are dropped.

    Raises BadSubnet, also for a zone (`%`): that is a word of one host.
    """
    try:
        if "%" in text:
            raise ValueError(text)
        return ip_network(text, strict=False)
    except ValueError as error:
        raise BadSubnet(f"'{text}' is not a valid IP subnet") from error


def address_of(text: str) -> IpAddress:
    """Return an address. Raises BadSubnet."""
    try:
        if "%" in text:
            raise ValueError(text)
        return ip_address(text)
    except ValueError as error:
        raise BadSubnet(f"'{text}' is not a valid IP address") from error


def key(address: IpAddress) -> str:
    """Return an address as it is stored: texts of this form are in the order of the addresses."""
    return f"{int(address):032x}"


def from_key(stored: str, version: int) -> IpAddress:
    """Return the address that is stored so."""
    number = int(stored, 16)
    return IPv4Address(number) if version == 4 else IPv6Address(number)


def ends(network: IpNetwork) -> tuple[int, int]:
    """Return the first and the last address that a port may have, as numbers."""
    first, last = int(network.network_address), int(network.broadcast_address)
    if network.version == 4:
        return (first, last) if network.prefixlen >= SMALLEST_WITH_BROADCAST else (first + 1, last - 1)
    # The first of IPv6 is the anycast address of the subnet's routers (RFC 4291, 2.6.1).
    return (first, last) if network.prefixlen >= 127 else (first + 1, last)


def is_usable(network: IpNetwork, address: IpAddress) -> bool:
    """Tell whether a port on the network may have the address."""
    first, last = ends(network)
    return address.version == network.version and first <= int(address) <= last


def first_address(network: IpNetwork) -> str:
    """Return the address that a gateway has unless another is said."""
    return _text(ends(network)[0], network.version)


def pools_beside(network: IpNetwork, gateway: str | None) -> tuple[AllocationPool, ...]:
    """Return the pools of a subnet for which none are said: everything but the gateway."""
    first, last = ends(network)
    taken = int(address_of(gateway)) if gateway is not None else None
    if taken is None or not first <= taken <= last:
        return (_pool(first, last, network.version),)
    ranges = [(first, taken - 1), (taken + 1, last)]
    return tuple(_pool(start, end, network.version) for start, end in ranges if start <= end)


def check_pools(network: IpNetwork, pools: Sequence[AllocationPool], gateway: str | None) -> tuple[AllocationPool, ...]:
    """Return pools in the usual form of their addresses, in order.

    Raises BadSubnet where one is not on the network or has no address, where two overlap, or one has the gateway.
    """
    found: list[tuple[int, int]] = []
    for pool in pools:
        start, end = address_of(pool.start), address_of(pool.end)
        if start.version != network.version or end.version != network.version:
            raise BadSubnet(f"the allocation pool {pool.start}-{pool.end} is not of the subnet's IP version")
        if int(start) > int(end):
            raise BadSubnet(f"the start of the allocation pool {pool.start}-{pool.end} is beyond its end")
        if not is_usable(network, start) or not is_usable(network, end):
            raise BadSubnet(f"the allocation pool {pool.start}-{pool.end} spans beyond the subnet cidr {network}")
        found.append((int(start), int(end)))
    found.sort()
    for (_, before), (after, _) in itertools.pairwise(found):
        if after <= before:
            raise BadSubnet("allocation pools overlap")
    if gateway is not None and any(start <= int(address_of(gateway)) <= end for start, end in found):
        raise GatewayInPool(f"Gateway ip {gateway} conflicts with allocation pool.")
    return tuple(_pool(start, end, network.version) for start, end in found)


def eui64(network: IpNetwork, mac_address: str) -> IpAddress:
    """Return the address that a port makes itself on a network of IPv6 (RFC 4291, appendix A).

    Raises BadSubnet where the network is not of 64 bits.
    """
    if network.version != 6 or network.prefixlen != 64:
        raise BadSubnet(f"cidr {network}: expected a prefix of 64 bits for addresses that ports make themselves")
    octets = bytes.fromhex(mac_address.replace(":", ""))
    host = bytes([octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]])
    return IPv6Address(int(network.network_address) | int.from_bytes(host, "big"))


def ranges(pools: Iterable[AllocationPool]) -> list[tuple[int, int]]:
    """Return pools as numbers, in order."""
    return sorted((int(ip_address(pool.start)), int(ip_address(pool.end))) for pool in pools)


def following(pools: Sequence[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """Return the same addresses as ranges in the order of a search that begins at `at` and comes round."""
    before = [(start, min(end, at - 1)) for start, end in pools if start < at]
    after = [(max(start, at), end) for start, end in pools if end >= at]
    return after + before


def _pool(start: int, end: int, version: int) -> AllocationPool:
    return AllocationPool(_text(start, version), _text(end, version))


def _text(number: int, version: int) -> str:
    return str(IPv4Address(number) if version == 4 else IPv6Address(number))
