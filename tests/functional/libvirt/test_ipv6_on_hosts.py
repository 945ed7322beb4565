"""IPv6 in networks of hosts, by real bridges, tunnels, rules and dnsmasq. Guests are namespaces with one link."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from ipaddress import IPv6Address
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.libvirt.bridged.names import link_local
from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.contracts.eventually import eventually
from skep.domain.host_networks import GroupRule, HostRouter, PluggedPort, RouterLeg, Segment, SegmentSubnet
from skep.domain.networking import HostRoute, Ipv6Mode
from tests.functional.libvirt.test_bridged_networks import (
    CLOSED,
    INSIDE,
    LEGS,
    OPEN,
    OTHER,
    OTHER_SUBNET,
    ROUTER,
    SUBNET,
    group,
    pings,
    port,
    uid,
    wanted,
)
from tests.support.bridged_hosts import PARTS, TRANSIT, BridgedHost, bridged_host, join

pytestmark = [*PARTS, pytest.mark.timeout(300)]

PREFIXES = {INSIDE: "2001:db8:7::", OTHER: "2001:db8:8::"}
SUBNETS = {INSIDE: (SUBNET, uid(30)), OTHER: (OTHER_SUBNET, uid(31))}
OUT6 = GroupRule(direction="egress", ethertype="IPv6")
PING6 = GroupRule(direction="ingress", ethertype="IPv6", protocol="ipv6-icmp", port_range_min=128)
LEGS6 = tuple(
    RouterLeg(network=one, subnet=SUBNETS[one][1], address=f"{prefix}1", mac_address=f"fa:16:3e:00:06:{number:02x}")
    for number, (one, prefix) in enumerate(PREFIXES.items())
)
EDGE = HostRouter(id=ROUTER, legs=(*LEGS, *LEGS6))
GROUPS = (group(OPEN, OUT6, PING6), group(CLOSED, OUT6))
ASKING = """
import json, socket, struct
link = socket.if_nametoindex("eth0")
asking = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
asking.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
asking.settimeout(3)
asking.sendto(bytes((133, 0, 0, 0, 0, 0, 0, 0)), ("ff02::2", 0, 0, link))
while True:
    told, sender = asking.recvfrom(1500)
    if told[0] == 134:
        break
options, at = {}, 16
while at < len(told):
    options[told[at]] = told[at : at + 8 * told[at + 1]].hex()
    at += 8 * told[at + 1]
print(json.dumps([sender[0].partition("%")[0], told[5], struct.unpack("!H", told[6:8])[0], options]))
"""
LEASING = """
import json, socket, struct
link = socket.if_nametoindex("eth0")
hardware = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sock.bind(("::", 546, 0, link))
sock.settimeout(5)

def option(kind, data):
    return struct.pack("!HH", kind, len(data)) + data

own = option(1, b"\\0\\x03\\0\\x01" + hardware)
asked = option(3, b"skep" + bytes(8)) + option(6, struct.pack("!HH", 23, 39)) + option(8, b"\\0\\0")

def say(kind, more=b""):
    sock.sendto(bytes((kind,)) + b"abc" + own + asked + more, ("ff02::1:2", 547, 0, link))
    told = sock.recv(1500)
    options, at = {}, 4
    while at < len(told):
        number, size = struct.unpack("!HH", told[at : at + 4])
        options[number] = told[at + 4 : at + 4 + size]
        at += 4 + size
    return told[0], options

_, advertised = say(1)
kind, leased = say(3, option(2, advertised[2]))
address = leased[3][16:32] if len(leased.get(3, b"")) >= 32 else b""
print(json.dumps([kind, address.hex(), leased.get(23, b"").hex()]))
"""


def both(network: str, *ports: PluggedPort, mode: Ipv6Mode | None = "slaac", peers: tuple[str, ...] = ()) -> Segment:
    """Return a network with a subnet of each version."""
    of4, six = SUBNETS[network]
    of6 = SegmentSubnet(
        id=six,
        cidr=f"{PREFIXES[network]}/64",
        ip_version=6,
        gateway_ip=f"{PREFIXES[network]}1",
        ipv6_ra_mode=mode,
        ipv6_address_mode=mode,
        dns_nameservers=("2001:db8:53::53", "192.0.2.53"),
    )
    number = 7 if network == INSIDE else 8
    return Segment(network=network, number=number, mtu=1400, subnets=(of4, of6), ports=ports, peers=peers)


def own_address(network: str, its: PluggedPort) -> str:
    """Return the address that a guest makes itself of what its router advertises."""
    return str(IPv6Address(int(IPv6Address(PREFIXES[network])) | int(link_local(its.mac_address)) & (1 << 64) - 1))


def dual(number: int, network: str, *groups: str) -> PluggedPort:
    """Return a port with an address of each version."""
    its = port(number, f"10.{7 if network == INSIDE else 8}.0.{10 + number}", *groups)
    return msgspec.structs.replace(its, addresses=(*its.addresses, own_address(network, its)))


async def has(host: BridgedHost, guest: str, address: str) -> None:
    """Wait until a guest has an address by itself, and a router."""

    async def so() -> bool:
        said = host.run("ip", "-6", "address", "show", "dev", "eth0", "-tentative", guest=guest)
        return address in said and "default via fe80::" in host.run("ip", "-6", "route", guest=guest)

    await eventually(so, f"{guest} has {address}", seconds=20)


async def reaches(host: BridgedHost, guest: str, address: str) -> None:
    async def so() -> bool:
        return pings(host, guest, address)

    await eventually(so, f"{guest} reaches {address}", seconds=20)


def sends_as(host: BridgedHost, guest: str, source: str, to: str) -> bool:
    """Tell whether a guest is answered that sends from an address."""
    return host.ask("busybox", "ping", "-c", "1", "-W", "1", "-I", source, to, guest=guest)[0] == 0


async def test_guests_have_addresses_by_themselves_and_reach_the_networks_of_their_router(tmp_path: Path) -> None:
    one, two, three = dual(1, INSIDE, OPEN), dual(2, INSIDE, CLOSED), dual(3, OTHER, OPEN)
    with bridged_host(tmp_path / "host") as host:
        for its in (one, two, three):
            host.add_guest(its.host_name, its)
        segments = (both(INSIDE, one, two), both(OTHER, three))
        host.make_so(wanted(*segments, groups=GROUPS, routers=(EDGE,)))
        for its in (one, two, three):
            await has(host, its.host_name, its.addresses[1])
        await reaches(host, "guest-1", three.addresses[1])
        assert pings(host, "guest-3", one.addresses[1])
        assert pings(host, "guest-2", one.addresses[1]), "an answer needs no rule"
        assert not pings(host, "guest-1", two.addresses[1]), "nothing is let in"
        assert pings(host, "guest-1", f"{PREFIXES[INSIDE]}1"), "its gateway answers"
        for own, other, to in (
            (two.addresses[1], f"{PREFIXES[INSIDE]}99", one.addresses[1]),
            (f"{link_local(two.mac_address)}%eth0", "fe80::99%eth0", f"{link_local(one.mac_address)}%eth0"),
        ):
            plain = f"{other.removesuffix('%eth0')}/64"
            host.run("ip", "address", "add", plain, "dev", "eth0", "nodad", guest="guest-2")
            assert sends_as(host, "guest-2", own, to)
            assert not sends_as(host, "guest-2", other, to)
        of_host = json.loads(host.run("ip", "-json", "-6", "address", "show"))
        assert [one for one in of_host if one["ifname"] != "lo"] == [], "the host itself has no address"
        whole = host.run("ip", "-br", "address", guest=f"sk-r-{ROUTER}")
        routed = msgspec.structs.replace(EDGE, routes=(HostRoute("2001:db8:9::/48", three.addresses[1]),))
        host.make_so(wanted(*segments, groups=GROUPS, routers=(routed,)))
        assert "2001:db8:9::/48" in host.run("ip", "-6", "route", guest=f"sk-r-{ROUTER}")
        assert host.run("ip", "-br", "address", guest=f"sk-r-{ROUTER}") == whole, "nothing is made anew"
        host.make_so(wanted(*segments, groups=GROUPS, routers=(msgspec.structs.replace(EDGE, legs=LEGS),)))
        assert not pings(host, "guest-1", three.addresses[1])


async def test_what_routers_advertise_and_lease_as_the_subnet_says(tmp_path: Path) -> None:
    one = port(1, "10.7.0.11", OPEN)
    fixed = msgspec.structs.replace(one, addresses=(*one.addresses, f"{PREFIXES[INSIDE]}77"))
    servers = IPv6Address("2001:db8:53::53").packed.hex()
    modes: tuple[tuple[Ipv6Mode, int, int], ...] = (
        ("slaac", 0x00, 0xC0),
        ("dhcpv6-stateless", 0x40, 0xC0),
        ("dhcpv6-stateful", 0xC0, 0x80),
    )
    with bridged_host(tmp_path / "host") as host:
        host.add_guest("one", fixed)

        async def speaks() -> bool:
            own = ("address", "show", "dev", "eth0", "scope", "link", "-tentative")
            return "inet6 fe80::" in host.run("ip", "-6", *own, guest="one")

        host.make_so(wanted(both(INSIDE, fixed, mode=None), both(OTHER), groups=GROUPS, routers=(EDGE,)))
        await eventually(speaks, "the guest has an address of the link")
        assert host.ask(sys.executable, "-c", ASKING, guest="one")[0] != 0, "nothing is advertised"
        for mode, flags, of_prefix in modes:
            host.make_so(wanted(both(INSIDE, fixed, mode=mode), both(OTHER), groups=GROUPS, routers=(EDGE,)))
            status, said = host.ask(sys.executable, "-c", ASKING, guest="one")
            assert status == 0, (mode, said)
            sender, has_flags, lifetime, options = eval(said)
            assert (has_flags & 0xC0, lifetime) == (flags, 1800), mode
            assert sender.startswith("fe80::")
            assert options["3"][4:8] == f"40{of_prefix:02x}", mode
            assert options["3"].endswith(IPv6Address(PREFIXES[INSIDE]).packed.hex())
            assert options["5"].endswith(f"{1400:08x}"), "the MTU"
            assert options["25"].endswith(servers), "DNS servers of IPv6 only"
        leased = eval(host.run(sys.executable, "-c", LEASING, guest="one"))
        assert leased == [7, IPv6Address(fixed.addresses[1]).packed.hex(), servers]


async def test_each_host_has_its_own_gateway_of_ipv6(tmp_path: Path) -> None:
    one, two, three = dual(1, INSIDE, OPEN), dual(2, INSIDE, OPEN), dual(3, OTHER, OPEN)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                bridged_host(tmp_path / address, BridgeOptions(transit=TRANSIT, tunnel_address=address))
            )
            for address in ("198.51.100.1", "198.51.100.2")
        )
        join(first, second)
        for host, its in ((first, one), (second, two), (second, three)):
            host.add_guest(its.host_name, its)
        mine, yours = ("198.51.100.1",), ("198.51.100.2",)
        here = (both(INSIDE, one, peers=yours), both(OTHER, peers=yours))
        there = (both(INSIDE, two, peers=mine), both(OTHER, three, peers=mine))
        first.make_so(wanted(*here, groups=GROUPS, routers=(EDGE,)))
        second.make_so(wanted(*there, groups=GROUPS, routers=(EDGE,)))
        for network, host, its in ((INSIDE, first, one), (INSIDE, second, two), (OTHER, second, three)):
            await has(host, its.host_name, own_address(network, its))
        await reaches(first, "guest-1", two.addresses[1])
        await reaches(first, "guest-1", three.addresses[1])
        await reaches(second, "guest-3", one.addresses[1])
        routers = []
        for host, guest in ((first, "guest-1"), (second, "guest-2")):
            assert pings(host, guest, f"{PREFIXES[INSIDE]}1")
            [route] = json.loads(host.run("ip", "-6", "-json", "route", "show", "default", guest=guest))
            routers.append(route["gateway"])
        assert routers[0] != routers[1], "each guest knows the router of its own host only"
        first.run("ip", "link", "set", "under", "down")
        first.run("ip", "-6", "neighbour", "flush", "dev", "eth0", guest="guest-1")
        assert pings(first, "guest-1", f"{PREFIXES[INSIDE]}1"), "it is on its host"
        assert pings(first, "guest-1", f"{PREFIXES[OTHER]}1")
        assert not pings(first, "guest-1", two.addresses[1])
