"""Arithmetic of addresses: what a port may have, pools, and the order in which they are searched."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Network, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.networking import AllocationPool
from skep.domain.subnet_addresses import (
    BadSubnet,
    address_of,
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

ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


@pytest.mark.parametrize(
    ("cidr", "first", "last"),
    [
        ("10.0.0.0/24", "10.0.0.1", "10.0.0.254"),
        ("10.0.0.0/30", "10.0.0.1", "10.0.0.2"),
        ("10.0.0.4/31", "10.0.0.4", "10.0.0.5"),
        ("10.0.0.4/32", "10.0.0.4", "10.0.0.4"),
        ("2001:db8::/64", "2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"),
        ("2001:db8::4/127", "2001:db8::4", "2001:db8::5"),
    ],
)
def test_what_ports_may_have(cidr: str, first: str, last: str) -> None:
    network = ip_network(cidr)
    assert ends(network) == (int(ip_address(first)), int(ip_address(last)))
    assert first_address(network) == first
    assert is_usable(network, ip_address(first))
    assert is_usable(network, ip_address(last))
    assert not is_usable(network, ip_address(first) - 1)
    assert not is_usable(network, ip_address(last) + 1)


@pytest.mark.parametrize(
    "cidr",
    [
        "",
        "nothing",
        "10.0.0.0/33",
        "0.0.0.0/0",
        "127.0.0.0/8",
        "224.0.0.0/4",
        "::/0",
        "10.0.0.0",
        "10.0.0.0/0.0.0.255",
        "10.0.0.0/255.255.255.0",
    ],
)
def test_what_is_no_subnet(cidr: str) -> None:
    with pytest.raises(BadSubnet):
        network_of(cidr, 6 if ":" in cidr else 4)


def test_a_subnet_is_of_its_version_and_loses_bits_of_a_host() -> None:
    assert str(network_of("10.0.0.7/24", 4)) == "10.0.0.0/24"
    with pytest.raises(BadSubnet, match="ip_version"):
        network_of("10.0.0.0/24", 6)


@pytest.mark.parametrize("text", ["", "10.0.0", "10.0.0.256", "fe80::1%eth0", "a" * 50])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadSubnet, match="not a valid IP address"):
        address_of(text)


@given(one=ADDRESSES, other=ADDRESSES)
def test_stored_addresses_are_in_the_order_of_addresses(one: Any, other: Any) -> None:
    assert (key(one) < key(other)) is (int(one) < int(other))
    assert from_key(key(one), one.version) == one


@pytest.mark.parametrize(
    ("cidr", "gateway", "pools"),
    [
        ("10.0.0.0/29", "10.0.0.1", ["10.0.0.2-10.0.0.6"]),
        ("10.0.0.0/29", "10.0.0.6", ["10.0.0.1-10.0.0.5"]),
        ("10.0.0.0/29", "10.0.0.3", ["10.0.0.1-10.0.0.2", "10.0.0.4-10.0.0.6"]),
        ("10.0.0.0/29", None, ["10.0.0.1-10.0.0.6"]),
        ("10.0.0.4/32", "10.0.0.4", []),
        ("2001:db8::/126", "fe80::1", ["2001:db8::1-2001:db8::3"]),
    ],
)
def test_pools_that_nobody_said(cidr: str, gateway: str | None, pools: list[str]) -> None:
    assert [f"{pool.start}-{pool.end}" for pool in pools_beside(ip_network(cidr), gateway)] == pools


@pytest.mark.parametrize(
    ("pools", "why"),
    [
        (["10.0.0.9-10.0.0.8"], "beyond its end"),
        (["10.0.0.2-10.0.1.2"], "spans beyond"),
        (["10.0.0.0-10.0.0.2"], "spans beyond"),
        (["10.0.0.2-10.0.0.9", "10.0.0.9-10.0.0.12"], "overlap"),
        (["10.0.0.1-10.0.0.9"], "Gateway ip 10.0.0.1"),
        (["2001:db8::1-2001:db8::2"], "IP version"),
        (["x-10.0.0.9"], "not a valid IP address"),
    ],
)
def test_pools_that_cannot_be(pools: list[str], why: str) -> None:
    said = [AllocationPool(*pool.split("-")) for pool in pools]
    with pytest.raises(BadSubnet, match=why):
        check_pools(ip_network("10.0.0.0/24"), said, "10.0.0.1")


def test_pools_are_put_in_order() -> None:
    said = [AllocationPool("10.0.0.20", "10.0.0.29"), AllocationPool("10.0.0.2", "10.0.0.9")]
    assert [pool.start for pool in check_pools(ip_network("10.0.0.0/24"), said, None)] == ["10.0.0.2", "10.0.0.20"]


def test_the_address_that_a_port_makes_itself() -> None:
    # The example of RFC 4291, appendix A: 34-56-78-9A-BC-DE.
    made = eui64(IPv6Network("2001:db8::/64"), "34:56:78:9a:bc:de")
    assert str(made) == "2001:db8::3656:78ff:fe9a:bcde"
    with pytest.raises(BadSubnet, match="64 bits"):
        eui64(IPv6Network("2001:db8::/80"), "34:56:78:9a:bc:de")


@given(
    bounds=st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True).map(sorted),
    at=st.integers(-2, 62),
)
def test_a_search_meets_every_address_once_and_begins_where_it_is_told(bounds: list[int], at: int) -> None:
    pools = [(bounds[n], bounds[n + 1]) for n in range(0, len(bounds) - 1, 2)]
    searched = [number for start, end in following(pools, at) for number in range(start, end + 1)]
    every = [number for start, end in pools for number in range(start, end + 1)]
    assert sorted(searched) == every
    assert searched == [number for number in every if number >= at] + [number for number in every if number < at]


def test_pools_as_numbers() -> None:
    pools = [AllocationPool("10.0.0.5", "10.0.0.9"), AllocationPool("10.0.0.1", "10.0.0.2")]
    first = int(IPv4Address("10.0.0.0"))
    assert ranges(pools) == [(first + 1, first + 2), (first + 5, first + 9)]
