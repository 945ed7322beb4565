"""Guests that pretend to be another one, or a host, by way of routers: by real bridges, tunnels and rules."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.domain.host_networks import FloatingAddress, GroupRule, HostRouter
from tests.functional.libvirt.test_bridged_networks import (
    FLOATING,
    LEGS,
    OPEN,
    OTHER,
    PING,
    ROUTER,
    give_address,
    group,
    pings,
    port,
    reaches,
    segment,
    talking,
    wanted,
)
from tests.support.bridged_hosts import PARTS, TRANSIT, bridged_host, join

pytestmark = [*PARTS, pytest.mark.timeout(300)]

UDP = GroupRule(direction="ingress", ethertype="IPv4", protocol="udp")
HEARING = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 7001))
print("listens", flush=True)
while True:
    print(server.recv(99).decode(), flush=True)
"""
"""A guest that says what it hears."""
TUNNELLING = """
import socket, struct, sys
peer, hardware, said = sys.argv[1:]

def summed(header):
    total = sum(struct.unpack("!10H", header))
    return struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)

told = said.encode()
datagram = struct.pack("!HHHH", 7000, 7001, 8 + len(told), 0) + told
start = struct.pack("!BBHHHBB", 0x45, 0, 20 + len(datagram), 0, 0, 64, socket.IPPROTO_UDP)
ends = socket.inet_aton("10.7.0.99") + socket.inet_aton("10.7.0.12")
packet = start + summed(start + bytes(2) + ends) + ends + datagram
frame = bytes.fromhex(hardware.replace(":", "")) + bytes.fromhex("fa163e000099") + bytes.fromhex("0800") + packet
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.sendto(bytes((8, 0, 0, 0)) + (7 << 8).to_bytes(4, "big") + frame, (peer, 4789))
"""
"""Sends a frame of the network whose number is 7 as a host would (RFC 7348)."""


async def test_no_guest_speaks_to_another_host_as_its_own_host_does(tmp_path: Path) -> None:
    one, two, three = port(1, "10.8.0.11", OPEN), port(2, "10.7.0.12", OPEN), port(3, "10.8.0.13", OPEN)
    leads = FloatingAddress(address=FLOATING, fixed_address="10.8.0.13", port=three.id)
    groups = (group(OPEN, PING, UDP),)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                bridged_host(
                    tmp_path / address,
                    BridgeOptions(transit=TRANSIT, tunnel_address=address, outside_interface="under"),
                )
            )
            for address in ("198.51.100.1", "198.51.100.2")
        )
        join(first, second)
        # The floating addresses of the other host.
        first.run("ip", "route", "add", "203.0.113.0/24", "dev", "under")
        for host, name, its in ((first, "one", one), (second, "two", two), (second, "three", three)):
            host.add_guest(name, its)
            give_address(host, name, its.addresses[0], its.addresses[0].rsplit(".", 1)[0] + ".1")
        mine, yours = ("198.51.100.1",), ("198.51.100.2",)
        router = HostRouter(id=ROUTER, legs=LEGS[1:], outside=True)
        here = (segment(peers=yours), segment(one, network=OTHER, peers=yours))
        there = (segment(two, peers=mine), segment(three, network=OTHER, peers=mine))
        first.make_so(wanted(*here, groups=groups, routers=(router,)))
        second.make_so(
            wanted(
                *there, groups=groups, routers=(HostRouter(id=ROUTER, legs=LEGS[1:], outside=True, floating=(leads,)),)
            )
        )
        await reaches(first, "one", FLOATING)
        await reaches(first, "one", "10.8.0.13")
        assert not pings(first, "one", "198.51.100.2"), "the other host itself"
        with talking(second, "two", HEARING) as hearing:
            assert hearing.readline() == "listens\n"
            sending = (sys.executable, "-c", TUNNELLING, "198.51.100.2", two.mac_address)
            first.run(*sending, "guest", guest="one")
            first.run(*sending, "host")
            assert hearing.readline() == "host\n"
