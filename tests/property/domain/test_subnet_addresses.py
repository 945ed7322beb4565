"""Whatever the subnet is: its pools are on it, a search looks at each address once, keys are in order."""

from __future__ import annotations

import itertools
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skep.domain.networking import AllocationPool
from skep.domain.subnet_addresses import (
    BadSubnet,
    IpAddress,
    IpNetwork,
    block_of,
    check_pools,
    ends,
    eui64,
    first_address,
    following,
    from_key,
    is_usable,
    key,
    network_of,
    pools_beside,
    ranges,
)

V4 = st.builds(
    lambda number, prefix: IPv4Network((number, prefix), strict=False),
    st.integers(1 << 24, (127 << 24) - 1),
    st.integers(8, 32),
)
V6 = st.builds(
    lambda number, prefix: IPv6Network((number, prefix), strict=False),
    st.integers(0x2000 << 112, (0x4000 << 112) - 1),
    st.integers(16, 128),
)
NETWORKS = V4 | V6
SMALL = st.sampled_from([IPv4Network("10.0.0.0/28"), IPv6Network("2001:db8::/124"), IPv4Network("10.0.0.2/31")])
ADDRESSES = st.ip_addresses()
MACS = st.binary(min_size=6, max_size=6)


def inside(network: IpNetwork, number: int) -> IpAddress:
    """Return an address of a network, whichever number is drawn."""
    return network[number % network.num_addresses]


def numbers(pools: list[tuple[int, int]]) -> list[int]:
    return [number for start, end in pools for number in range(start, end + 1)]


@given(st.lists(st.ip_addresses(v=4)) | st.lists(st.ip_addresses(v=6)))
def test_keys_are_in_the_order_of_the_addresses_and_lead_back(addresses: list[IpAddress]) -> None:
    assert sorted(map(key, addresses)) == [key(one) for one in sorted(addresses, key=int)]
    assert [from_key(key(one), one.version) for one in addresses] == addresses


@given(NETWORKS, st.none() | st.integers(0))
def test_pools_beside_a_gateway_are_all_that_is_usable_but_the_gateway(network: IpNetwork, at: int | None) -> None:
    gateway = None if at is None else inside(network, at)
    pools = pools_beside(network, None if gateway is None else str(gateway))
    first, last = ends(network)
    usable = last - first + 1
    taken = int(gateway is not None and is_usable(network, gateway))
    found = ranges(pools)
    assert sum(end - start + 1 for start, end in found) == usable - taken
    assert all(first <= start <= end <= last for start, end in found)
    assert gateway is None or not any(start <= int(gateway) <= end for start, end in found)
    assert check_pools(network, pools, None if gateway is None else str(gateway)) == pools


@given(NETWORKS)
def test_the_first_address_is_usable_and_none_before_it_is(network: IpNetwork) -> None:
    first = ip_address(first_address(network))
    assert is_usable(network, first)
    assert int(first) == int(network.network_address) or not is_usable(network, first - 1)


@given(SMALL, st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=4), st.none() | st.integers(0, 15))
def test_pools_are_taken_if_and_only_if_they_are_apart_and_on_the_subnet(
    network: IpNetwork, drawn: list[tuple[int, int]], at: int | None
) -> None:
    pools = [AllocationPool(str(inside(network, start)), str(inside(network, end))) for start, end in drawn]
    gateway = None if at is None else inside(network, at)
    wanted = [(int(ip_address(pool.start)), int(ip_address(pool.end))) for pool in pools]
    first, last = ends(network)
    every = numbers(wanted)
    good = (
        all(start <= end for start, end in wanted)
        and len(every) == len(set(every))
        and all(first <= number <= last for number in every)
        and (gateway is None or int(gateway) not in every)
    )
    if good:
        found = ranges(check_pools(network, pools, None if gateway is None else str(gateway)))
        assert found == sorted(wanted)
        assert all(before < after for (_, before), (after, _) in itertools.pairwise(found))
    else:
        with pytest.raises(BadSubnet):
            check_pools(network, pools, None if gateway is None else str(gateway))


@given(st.lists(st.integers(0, 60), unique=True, max_size=8).map(sorted), st.integers(-2, 62))
def test_a_search_looks_at_each_address_once_and_comes_round(edges: list[int], at: int) -> None:
    pools = list(zip(edges[::2], edges[1::2], strict=False))
    every = numbers(pools)
    expected = [one for one in every if one >= at] + [one for one in every if one < at]
    assert numbers(following(pools, at)) == expected


@given(st.integers(0x2000 << 48, (0x4000 << 48) - 1), MACS, MACS)
def test_ports_make_addresses_on_the_network_and_each_another_one(upper: int, mac: bytes, other: bytes) -> None:
    network = IPv6Network((upper << 64, 64))
    made = eui64(network, mac.hex(":"))
    assert made in network
    host = int(made).to_bytes(16, "big")[8:]
    assert host[3:5] == b"\xff\xfe"
    assert bytes([host[0] ^ 2]) + host[1:3] + host[5:] == mac
    assert (made == eui64(network, other.hex(":"))) is (mac == other)


@given(NETWORKS)
def test_only_networks_of_64_bits_have_addresses_that_ports_make(network: IpNetwork) -> None:
    assume(network.version == 4 or network.prefixlen != 64)
    with pytest.raises(BadSubnet):
        eui64(network, "fa:16:3e:00:00:01")


@given(NETWORKS, st.integers(0))
def test_bits_of_a_host_in_a_cidr_are_dropped(network: IpNetwork, at: int) -> None:
    assert network_of(f"{inside(network, at)}/{network.prefixlen}", network.version) == network
    with pytest.raises(BadSubnet):
        network_of(str(network), 10 - network.version)


@given(st.text(max_size=40))
def test_any_text_is_a_network_or_refused(text: str) -> None:
    for version in (4, 6):
        try:
            found = network_of(text, version)
        except BadSubnet:
            continue
        assert ip_network(str(found)) == found


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.0/33", "10.0.0/24", "::/0", "0.0.0.0/0", "0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "ff00::/8", "::1"],
)
def test_what_is_no_subnet_of_ports(text: str) -> None:
    for version in (4, 6):
        with pytest.raises(BadSubnet):
            network_of(text, version)


@pytest.mark.parametrize("text", ["fe80::%eth0/64", "fe80::1%eth0/64", "fe80::%eth0"])
def test_a_zone_is_a_word_of_one_host_and_no_part_of_a_subnet(text: str) -> None:
    with pytest.raises(BadSubnet):
        block_of(text)


def test_the_ends_of_small_subnets() -> None:
    expected = {
        "10.0.0.0/30": ("10.0.0.1", "10.0.0.2"),
        "10.0.0.0/31": ("10.0.0.0", "10.0.0.1"),
        "10.0.0.7/32": ("10.0.0.7", "10.0.0.7"),
        "2001:db8::/126": ("2001:db8::1", "2001:db8::3"),
        "2001:db8::/127": ("2001:db8::", "2001:db8::1"),
        "2001:db8::7/128": ("2001:db8::7", "2001:db8::7"),
    }
    for cidr, (first, last) in expected.items():
        network = ip_network(cidr)
        made = IPv4Address if network.version == 4 else IPv6Address
        assert tuple(map(made, ends(network))) == (ip_address(first), ip_address(last)), cidr
