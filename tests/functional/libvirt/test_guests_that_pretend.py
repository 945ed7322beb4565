"""Guests that pretend to be another one, or a host, by way of routers: by real bridges, tunnels and rules."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.domain.host_networks import FloatingAddress, GroupRule, HostRouter, RouterLeg, SegmentSubnet
from skep.domain.networking import HostRoute
from tests.functional.libvirt.test_bridged_networks import (
    FLOATING,
    INSIDE,
    LEGS,
    OPEN,
    OTHER,
    PING,
    ROUTER,
    SUBNET,
    give_address,
    group,
    leave_outside,
    pings,
    port,
    reaches,
    segment,
    talking,
    uid,
    wanted,
)
from tests.functional.libvirt.test_ipv6_on_hosts import EDGE, GROUPS, PREFIXES, both, dual, has
from tests.support.bridged_hosts import PARTS, TRANSIT, BridgedHost, bridged_host, join

pytestmark = [*PARTS, pytest.mark.timeout(300)]

BACK = RouterLeg(network=INSIDE, subnet=uid(22), address="10.17.0.1", mac_address="fa:16:3e:00:01:03")
UDP = GroupRule(direction="ingress", ethertype="IPv4", protocol="udp")
HEARING = """
import socket, sys
server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
server.bind(("::", 7001))
print("listens", flush=True)
while True:
    print(server.recv(99).decode(), flush=True)
"""
"""A guest that says what it hears."""
SENDING = """
import socket, sys
source, to, said = sys.argv[1:]
sock = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((source, 0))
sock.sendto(said.encode(), (to, 7001))
"""
REFUSED = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("10.7.0.12", 7000))
sock.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
sock.connect(("10.9.0.6", 7001))
sock.send(b"x")
print("sent", flush=True)
sock.settimeout(10)
try:
    sock.recv(1)
except OSError as error:
    print(error.strerror, flush=True)
"""
"""Says what becomes of a datagram."""
REFUSING = """
import socket, struct

def summed(words):
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    return struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)

ends = socket.inet_aton("10.7.0.12") + socket.inet_aton("10.9.0.6")
start = struct.pack("!BBHHHBB", 0x45, 0, 29, 0, 0, 64, socket.IPPROTO_UDP)
lost = start + summed(start + bytes(2) + ends) + ends + struct.pack("!HHHH", 7000, 7001, 9, 0)
told = bytes((3, 1)) + summed(bytes((3, 1)) + bytes(6) + lost) + bytes(4) + lost
sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
sock.bind(("192.0.2.200", 0))
sock.sendto(told, ("10.7.0.12", 0))
"""
"""Says that the datagram did not arrive, as a machine on its way does (RFC 792)."""
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


def send(host: BridgedHost, guest: str, source: str, to: str, said: str) -> None:
    """Have a guest send from an address, which it has then."""
    if f" {source}/" not in host.run("ip", "address", "show", guest=guest):
        host.run("ip", "address", "add", source, "dev", "lo", guest=guest)
    host.run(sys.executable, "-c", SENDING, source, to, said, guest=guest)


async def test_a_router_takes_packets_from_where_it_leads_answers_to_them(tmp_path: Path) -> None:
    two, three = port(2, "10.7.0.12", OPEN), port(3, "10.8.0.13", OPEN)
    odd = msgspec.structs.replace(port(4, "10.8.0.14"), port_security_enabled=False)
    twice = msgspec.structs.replace(port(5, "10.7.0.15", OPEN), addresses=("10.7.0.15", "10.17.0.15"))
    second = SegmentSubnet(id=BACK.subnet, cidr="10.17.0.0/24", ip_version=4, gateway_ip="10.17.0.1")
    router = HostRouter(
        id=ROUTER,
        legs=(*LEGS, BACK),
        outside=True,
        floating=(FloatingAddress(address=FLOATING, fixed_address="10.7.0.12", port=two.id),),
        routes=(HostRoute("10.9.0.0/16", "10.8.0.14"), HostRoute("10.7.0.11/32", "10.8.0.14")),
    )
    inside = msgspec.structs.replace(segment(two, twice), subnets=(SUBNET, second))
    with bridged_host(tmp_path / "host", BridgeOptions(transit=TRANSIT, outside_interface="out")) as host:
        leave_outside(host)
        for its in (two, three, odd, twice):
            host.add_guest(its.host_name, its)
            give_address(host, its.host_name, its.addresses[0], its.addresses[0].rsplit(".", 1)[0] + ".1")
        groups = (group(OPEN, PING, UDP),)
        host.make_so(wanted(inside, segment(three, odd, network=OTHER), groups=groups, routers=(router,)))
        await reaches(host, "guest-4", "10.7.0.12")
        await reaches(host, "outside", FLOATING)
        with talking(host, "guest-2", HEARING) as hearing, talking(host, "guest-3", HEARING) as other:
            assert (hearing.readline(), other.readline()) == ("listens\n", "listens\n")
            for source in ("10.7.0.77", "10.17.0.9", "10.7.0.1", "192.0.2.200"):
                send(host, "guest-4", source, "10.7.0.12", f"{source} from another network")
            send(host, "guest-4", "10.7.0.11", "10.7.0.12", "an address that is routed to another network")
            send(host, "outside", "10.7.0.11", FLOATING, "an address of the network from outside")
            send(host, "guest-4", "10.8.0.14", "10.7.0.12", "its own")
            send(host, "guest-4", "10.9.0.5", "10.7.0.12", "routed")
            send(host, "outside", "192.0.2.2", FLOATING, "outside")
            assert [hearing.readline() for _ in range(3)] == ["its own\n", "routed\n", "outside\n"]
            send(host, "guest-5", "10.17.0.15", "10.8.0.13", "by the router of its other subnet")
            assert other.readline() == "by the router of its other subnet\n"
        with talking(host, "guest-2", REFUSED) as sending:
            assert sending.readline() == "sent\n"
            host.run(sys.executable, "-c", REFUSING, guest="guest-4")
            assert sending.readline() == "No route to host\n"


async def test_a_router_takes_packets_of_ipv6_from_where_it_leads_answers_to_them(tmp_path: Path) -> None:
    two = dual(2, INSIDE, OPEN)
    odd = msgspec.structs.replace(dual(4, OTHER), port_security_enabled=False)
    routes = (HostRoute("2001:db8:9::/48", odd.addresses[1]), HostRoute(f"{PREFIXES[INSIDE]}11/128", odd.addresses[1]))
    router = msgspec.structs.replace(EDGE, routes=routes)
    udp = msgspec.structs.replace(UDP, ethertype="IPv6")
    groups = (msgspec.structs.replace(GROUPS[0], rules=(*GROUPS[0].rules, udp)),)
    with bridged_host(tmp_path / "host") as host:
        for its in (two, odd):
            host.add_guest(its.host_name, its)
        host.make_so(wanted(both(INSIDE, two), both(OTHER, odd), groups=groups, routers=(router,)))
        for its in (two, odd):
            await has(host, its.host_name, its.addresses[1])
        await reaches(host, "guest-4", two.addresses[1])
        with talking(host, "guest-2", HEARING) as hearing:
            assert hearing.readline() == "listens\n"
            for source in (f"{PREFIXES[INSIDE]}77", f"{PREFIXES[INSIDE]}11", "2001:db8:77::1"):
                send(host, "guest-4", source, two.addresses[1], f"{source} from another network")
            send(host, "guest-4", odd.addresses[1], two.addresses[1], "its own")
            send(host, "guest-4", "2001:db8:9::5", two.addresses[1], "routed")
            assert [hearing.readline() for _ in range(2)] == ["its own\n", "routed\n"]
