"""Networks of a host that are too large for one message as they are."""

from __future__ import annotations

import ipaddress
import random
import zlib

import msgspec
import pytest

from skep.domain import host_networks
from skep.domain.host_networks import Group, GroupRule, HostNetworks, packed, unpacked, versioned
from skep.messages.to_cell_conductor import NetworksOfHost

PORTS = 25_000
IN_ONE_MESSAGE = 1 << 20
"""Bytes that NATS takes, as it is set by default."""


def large() -> HostNetworks:
    """Return the networks of a host whose guests let through a group of many ports, of both versions of IP."""
    dice = random.Random(1)
    first, prefix = int(ipaddress.ip_address("10.0.0.0")), int(ipaddress.ip_address("2001:db8:1:2::"))
    # Of a port without a hint, an IPv6 address is made of the MAC address, of which three bytes are random.
    members = [str(ipaddress.ip_address(first + number)) for number in range(PORTS)] + [
        str(ipaddress.ip_address(prefix + 0xF8163EFFFE000000 + dice.getrandbits(24))) for _ in range(PORTS)
    ]
    rule = GroupRule(direction="ingress", ethertype="IPv4", remote_group="group")
    return versioned(HostNetworks(groups=(Group(id="group", rules=(rule,), members=tuple(members)),)))


def test_a_group_of_many_ports_fits_into_a_message() -> None:
    networks = large()
    assert len(msgspec.json.encode(networks)) > IN_ONE_MESSAGE
    small = packed(networks)
    assert small is not None
    assert len(msgspec.json.encode(NetworksOfHost(packed=small))) < IN_ONE_MESSAGE // 2
    assert unpacked(small) == networks


def test_what_is_small_goes_as_it_is() -> None:
    assert packed(versioned(HostNetworks())) is None


def test_what_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = packed(large())
    assert small is not None
    for content in (b"", b"none", small[:-1], zlib.compress(b"[]"), zlib.compress(b"{")):
        with pytest.raises(ValueError):
            unpacked(content)
    monkeypatch.setattr(host_networks, "MOST_UNPACKED", 1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        unpacked(small)
