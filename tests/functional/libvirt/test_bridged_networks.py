"""Networks on hosts, by real bridges, tunnels, rules and leases: what reaches a guest, and what does not.

Guests are namespaces with one link. Each test has hosts of its own, in namespaces that end with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import msgspec
import pytest

from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.contracts.eventually import eventually
from skep.domain.host_networks import (
    FloatingAddress,
    Group,
    GroupRule,
    HostNetworks,
    HostRouter,
    PluggedPort,
    RouterLeg,
    Segment,
    SegmentSubnet,
)
from skep.domain.networking import HostRoute
from tests.support.bridged_hosts import PARTS, TRANSIT, BridgedHost, bridged_host, join

pytestmark = [*PARTS, pytest.mark.timeout(300)]

FLOATING = "203.0.113.5"
SERVICE = "169.254.169.254"


def uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


INSIDE, OTHER, OPEN, CLOSED, ROUTER = uid(10), uid(11), uid(50), uid(51), uid(60)
SUBNET = SegmentSubnet(id=uid(20), cidr="10.7.0.0/24", ip_version=4, gateway_ip="10.7.0.1")
OTHER_SUBNET = SegmentSubnet(id=uid(21), cidr="10.8.0.0/24", ip_version=4, gateway_ip="10.8.0.1")
OUTWARDS = GroupRule(direction="egress", ethertype="IPv4")
LEGS = (
    RouterLeg(network=INSIDE, subnet=SUBNET.id, address="10.7.0.1", mac_address="fa:16:3e:00:01:01"),
    RouterLeg(network=OTHER, subnet=OTHER_SUBNET.id, address="10.8.0.1", mac_address="fa:16:3e:00:01:02"),
)


def port(number: int, address: str, *groups: str) -> PluggedPort:
    return PluggedPort(
        id=uid(number),
        server=uid(100 + number),
        mac_address=f"fa:16:3e:00:00:{number:02x}",
        addresses=(address,),
        host_name=f"guest-{number}",
        groups=groups,
    )


def segment(*ports: PluggedPort, network: str = INSIDE, peers: tuple[str, ...] = ()) -> Segment:
    number, subnet = (7, SUBNET) if network == INSIDE else (8, OTHER_SUBNET)
    return Segment(network=network, number=number, mtu=1400, subnets=(subnet,), ports=ports, peers=peers)


def group(name: str, *rules: GroupRule, members: tuple[str, ...] = ()) -> Group:
    return Group(id=name, rules=(OUTWARDS, *rules), members=members)


def wanted(*segments: Segment, groups: tuple[Group, ...] = (), routers: tuple[HostRouter, ...] = ()) -> HostNetworks:
    return HostNetworks(version="1", segments=segments, groups=groups, routers=routers)


PING = GroupRule(direction="ingress", ethertype="IPv4", protocol="icmp")


def pings(host: BridgedHost, guest: str, address: str) -> bool:
    return host.ask("busybox", "ping", "-c", "1", "-W", "1", address, guest=guest)[0] == 0


async def reaches(host: BridgedHost, guest: str, address: str) -> None:
    async def so() -> bool:
        return pings(host, guest, address)

    await eventually(so, f"{guest} reaches {address}", seconds=20)


def give_address(host: BridgedHost, guest: str, address: str, gateway: str) -> None:
    host.run("ip", "address", "add", f"{address}/24", "dev", "eth0", guest=guest)
    host.run("ip", "route", "add", "default", "via", gateway, guest=guest)


def lease(host: BridgedHost, guest: str, tmp_path: Path) -> dict[str, str]:
    """Return what DHCP tells a guest."""
    script = tmp_path / "told"
    script.write_text("#!/bin/sh\n[ $1 = bound ] && env\nexit 0\n")
    script.chmod(0o755)
    words = ("busybox", "udhcpc", "-f", "-q", "-n", "-i", "eth0", "-t", "5", "-T", "1", "-s", script)
    said = host.run(*words, "-O", "staticroutes", "-O", "mtu", guest=guest)
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def leave_outside(host: BridgedHost, address: str = "192.0.2.2") -> None:
    """Have a machine of the outside, which knows no address of the host's networks but the floating ones."""
    host.run("ip", "netns", "add", "outside")
    host.run("ip", "link", "add", "out", "type", "veth", "peer", "name", "eth0", "netns", "outside")
    host.run("ip", "address", "add", "192.0.2.1/24", "dev", "out")
    host.run("ip", "link", "set", "out", "up")
    host.run("ip", "address", "add", f"{address}/24", "dev", "eth0", guest="outside")
    host.run("ip", "link", "set", "eth0", "up", guest="outside")
    host.run("ip", "route", "add", "203.0.113.0/24", "dev", "eth0", guest="outside")


async def test_a_guest_has_its_lease_and_what_is_told_with_it(tmp_path: Path) -> None:
    one = port(1, "10.7.0.11", OPEN)
    odd = msgspec.structs.replace(port(2, "10.7.0.12", OPEN), host_name="Ein Name,\nset:x\"';")
    routes = (HostRoute(destination="10.9.0.0/16", nexthop="10.7.0.254"),)
    told = msgspec.structs.replace(SUBNET, host_routes=routes, dns_nameservers=("192.0.2.53", "192.0.2.54"))
    with bridged_host(tmp_path / "host") as host:
        host.add_guest("one", one)
        host.add_guest("odd", odd)
        inside = msgspec.structs.replace(segment(one, odd), subnets=(told,))
        assert host.make_so(wanted(inside, groups=(group(OPEN),)))
        said = lease(host, "one", tmp_path)
        assert {key: said[key] for key in ("ip", "mask", "router", "mtu", "hostname", "dns", "serverid")} == {
            "ip": "10.7.0.11",
            "mask": "24",
            "router": "10.7.0.1",
            "mtu": "1400",
            "hostname": "guest-1",
            "dns": "192.0.2.53 192.0.2.54",
            "serverid": SERVICE,
        }
        own = [one for one in json.loads(host.run("ip", "-json", "-6", "address", "show")) if one["ifname"] != "lo"]
        assert own == [], "the host itself has no address in the network"
        assert said["staticroutes"] == f"{SERVICE}/32 0.0.0.0 10.9.0.0/16 10.7.0.254 0.0.0.0/0 10.7.0.1"
        said = lease(host, "odd", tmp_path)
        assert (said["ip"], said["hostname"]) == ("10.7.0.12", "ein-name-set-x")


async def test_groups_let_through_what_they_say_and_nothing_else(tmp_path: Path) -> None:
    one, two, three = port(1, "10.7.0.11", OPEN), port(2, "10.7.0.12", CLOSED), port(3, "10.7.0.13", OPEN)
    members = ("10.7.0.11", "10.7.0.13")
    among = GroupRule(direction="ingress", ethertype="IPv4", remote_group=OPEN)
    groups = (group(OPEN, among, members=members), group(CLOSED))
    with bridged_host(tmp_path / "host") as host:
        for name, its, address in (("one", one, "10.7.0.11"), ("two", two, "10.7.0.12"), ("three", three, "10.7.0.13")):
            host.add_guest(name, its)
            give_address(host, name, address, "10.7.0.1")
        host.make_so(wanted(segment(one, two, three), groups=groups))
        await reaches(host, "one", "10.7.0.13")
        assert not pings(host, "one", "10.7.0.12"), "nothing is let in"
        assert not pings(host, "two", "10.7.0.11"), "it is no member"
        letting = GroupRule(
            direction="ingress", ethertype="IPv4", protocol="icmp", port_range_min=8, remote_ip_prefix="10.7.0.11/32"
        )
        host.make_so(wanted(segment(one, two, three), groups=(groups[0], group(CLOSED, letting))))
        await reaches(host, "one", "10.7.0.12")
        assert not pings(host, "three", "10.7.0.12"), "it is not of the prefix"
        host.make_so(wanted(segment(one, two, three), groups=(groups[0], Group(id=CLOSED, rules=(letting,)))))
        assert pings(host, "one", "10.7.0.12"), "an answer needs no rule"
        assert not pings(host, "two", SERVICE), "without a rule nothing goes out"
        bare = msgspec.structs.replace(two, port_security_enabled=False, groups=())
        host.make_so(wanted(segment(one, bare, three), groups=groups))
        await reaches(host, "three", "10.7.0.12")
        down = msgspec.structs.replace(three, admin_state_up=False)
        host.make_so(wanted(segment(one, two, down), groups=groups))
        assert not pings(host, "one", "10.7.0.13"), "the port is down"


async def test_a_guest_sends_as_itself_only(tmp_path: Path) -> None:
    one, two = port(1, "10.7.0.11", OPEN), port(2, "10.7.0.12", OPEN)
    groups = (group(OPEN, PING),)
    with bridged_host(tmp_path / "host") as host:
        for name, its, address in (("one", one, "10.7.0.11"), ("two", two, "10.7.0.12")):
            host.add_guest(name, its)
            give_address(host, name, address, "10.7.0.1")
        host.make_so(wanted(segment(one, two), groups=groups))
        await reaches(host, "one", "10.7.0.12")
        host.run("ip", "address", "add", "10.7.0.99/24", "dev", "eth0", guest="one")
        command = ("busybox", "ping", "-c", "1", "-W", "1")
        assert host.ask(*command, "-I", "10.7.0.99", "10.7.0.12", guest="one")[0] != 0, "another address"
        # A gateway that is none: what another guest asks for is not answered.
        host.run("ip", "address", "add", "10.7.0.1/24", "dev", "eth0", guest="one")
        assert not pings(host, "two", "10.7.0.1")
        host.run("ip", "link", "set", "eth0", "address", "fa:16:3e:00:00:77", guest="one")
        assert not pings(host, "one", "10.7.0.12"), "another hardware address"


async def test_a_router_leads_out_and_a_floating_address_in(tmp_path: Path) -> None:
    one, two, three = port(1, "10.7.0.11", OPEN), port(2, "10.7.0.12", OPEN), port(3, "10.8.0.13", OPEN)
    router = HostRouter(
        id=ROUTER,
        legs=LEGS,
        outside=True,
        floating=(FloatingAddress(address=FLOATING, fixed_address="10.7.0.11", port=one.id),),
    )
    options = BridgeOptions(transit=TRANSIT, outside_interface="out")
    with bridged_host(tmp_path / "host", options) as host:
        leave_outside(host)
        for name, its, address in (("one", one, "10.7.0.11"), ("two", two, "10.7.0.12"), ("three", three, "10.8.0.13")):
            host.add_guest(name, its)
            give_address(host, name, address, address.rsplit(".", 1)[0] + ".1")
        segments = (segment(one, two), segment(three, network=OTHER))
        host.make_so(wanted(*segments, groups=(group(OPEN, PING),), routers=(router,)))
        await reaches(host, "two", "10.8.0.13")
        await reaches(host, "two", "192.0.2.2")
        await reaches(host, "outside", FLOATING)
        assert pings(host, "two", FLOATING), "also from inside"
        for address in ("192.0.2.1", str(TRANSIT[1]), "127.0.0.1"):
            own = address == "127.0.0.1"
            assert pings(host, "two", address) is own, f"a guest reaches the host at {address}"
        host.make_so(wanted(*segments, groups=(group(OPEN),), routers=(router,)))
        assert not pings(host, "outside", FLOATING), "its group does not let it in"
        no_snat = msgspec.structs.replace(router, enable_snat=False)
        host.make_so(wanted(*segments, groups=(group(OPEN, PING),), routers=(no_snat,)))
        assert pings(host, "one", "192.0.2.2"), "by its floating address"
        assert not pings(host, "two", "192.0.2.2"), "it has no address outside"
        host.make_so(wanted(*segments, groups=(group(OPEN, PING),)))
        assert not pings(host, "outside", FLOATING)
        assert "203.0.113.5" not in host.run("ip", "neighbour", "show", "proxy") + host.run("ip", "route")


async def test_two_hosts_have_one_network_and_each_its_own_gateway(tmp_path: Path) -> None:
    one, two, three = port(1, "10.7.0.11", OPEN), port(2, "10.7.0.12", OPEN), port(3, "10.8.0.13", OPEN)
    router = HostRouter(id=ROUTER, legs=LEGS)
    groups = (group(OPEN, PING),)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                bridged_host(tmp_path / address, BridgeOptions(transit=TRANSIT, tunnel_address=address))
            )
            for address in ("198.51.100.1", "198.51.100.2")
        )
        join(first, second)
        for host, name, its, address in (
            (first, "one", one, "10.7.0.11"),
            (second, "two", two, "10.7.0.12"),
            (second, "three", three, "10.8.0.13"),
        ):
            host.add_guest(name, its)
            give_address(host, name, address, address.rsplit(".", 1)[0] + ".1")
        mine, yours = ("198.51.100.1",), ("198.51.100.2",)
        here = (segment(one, peers=yours), segment(network=OTHER, peers=yours))
        there = (segment(two, peers=mine), segment(three, network=OTHER, peers=mine))
        first.make_so(wanted(*here, groups=groups, routers=(router,)))
        second.make_so(wanted(*there, groups=groups, routers=(router,)))
        await reaches(first, "one", "10.7.0.12")
        await reaches(first, "one", "10.8.0.13")
        await reaches(second, "three", "10.7.0.11")
        # Each guest knows its gateway and the service by what its own host says.
        assert lease(second, "two", tmp_path)["ip"] == "10.7.0.12"
        for host, name in ((first, "one"), (second, "two")):
            assert "fa:16:3e:00:01:01" in host.run("ip", "neighbour", "show", "10.7.0.1", guest=name)
        first.run("ip", "link", "set", "under", "down")
        assert pings(first, "one", "10.7.0.1"), "its gateway is on its host"
        assert pings(first, "one", SERVICE)
        assert not pings(first, "one", "10.7.0.12")
        first.run("ip", "link", "set", "under", "up")
        await reaches(first, "one", "10.7.0.12")
        first.make_so(wanted(segment(one), groups=groups))
        assert not pings(first, "one", "10.7.0.12"), "the peer is none any more"


async def test_what_is_cut_at_any_point_is_made_whole_and_then_nothing_is_left(tmp_path: Path) -> None:
    one, two = port(1, "10.7.0.11", OPEN), port(2, "10.8.0.12", OPEN)
    router = HostRouter(id=ROUTER, legs=LEGS, outside=True)
    everything = wanted(segment(one), segment(two, network=OTHER), groups=(group(OPEN, PING),), routers=(router,))
    with bridged_host(tmp_path / "host") as host:
        before = host.run("ip", "-br", "link"), host.run("ip", "route")
        finished = False
        for dies_at in range(1, 200, 7):
            finished = host.make_so(everything, dies_at=dies_at)
            if finished:
                break
        assert finished
        host.make_so(everything)
        whole = host.run("ip", "-br", "link")
        assert host.make_so(everything)
        assert host.run("ip", "-br", "link") == whole, "nothing is made anew"
        assert sum("tap" in line for line in whole.splitlines()) == 2
        nothing = HostNetworks(version="2")
        host.make_so(nothing, (f"tap{one.id}"[:14],), dies_at=4)
        host.make_so(nothing, (f"tap{one.id}"[:14],))
        assert sum("tap" in line for line in host.run("ip", "-br", "link").splitlines()) == 1, "that of a guest stays"
        host.make_so(nothing)
        assert (host.run("ip", "-br", "link"), host.run("ip", "route")) == before
        assert host.run("ip", "netns").strip() == ""
        assert list((tmp_path / "host" / "dnsmasq").iterdir()) == []


async def test_a_router_that_the_kernel_refuses_keeps_no_other_from_being_made(tmp_path: Path) -> None:
    first = SegmentSubnet(id=uid(22), cidr="2001:db8:1::/64", ip_version=6)
    second = SegmentSubnet(id=uid(23), cidr="2001:db8:2::/64", ip_version=6)
    legs = (
        RouterLeg(network=INSIDE, subnet=first.id, address="2001:db8:1::1", mac_address="fa:16:3e:00:01:03"),
        RouterLeg(network=OTHER, subnet=second.id, address="2001:db8:2::1", mac_address="fa:16:3e:00:01:04"),
    )
    # The next hop of the second is on another link by the first.
    routes = (
        HostRoute(destination="2001:db8:1::5/128", nexthop="2001:db8:2::9"),
        HostRoute(destination="2001:db8:a::/64", nexthop="2001:db8:1::5"),
    )
    bad, good = HostRouter(id=uid(61), legs=legs, routes=routes), HostRouter(id=ROUTER, legs=LEGS, outside=True)
    segments = (
        msgspec.structs.replace(segment(port(1, "10.7.0.11")), subnets=(SUBNET, first)),
        msgspec.structs.replace(segment(network=OTHER), subnets=(OTHER_SUBNET, second)),
    )
    with bridged_host(tmp_path / "host") as host:
        with pytest.raises(AssertionError, match="invalid gateway"):
            host.make_so(wanted(*segments, routers=(bad, good)))
        said = host.run("ip", "-br", "address", guest=f"sk-r-{ROUTER}") + host.run("ip", "route")
        assert all(one in said for one in ("10.7.0.1/24", "10.8.0.1/24", "sk-u")), said
        assert len(list((tmp_path / "host" / "dnsmasq").glob("*.conf"))) == 2
        assert (tmp_path / "host" / "wanted.json").exists(), "after a boot, too"


KILLING = """
for space in $(ip netns list | cut -d' ' -f1); do
    kill -9 $(ip netns pids $space)
    while [ -n "$(ip netns pids $space)" ]; do sleep 0.02; done
done
"""
"""Ends all that runs in the namespaces of a host."""


async def test_a_dnsmasq_that_has_died_comes_back_and_a_look_at_what_is_whole_is_cheap(tmp_path: Path) -> None:
    one = port(1, "10.7.0.11", OPEN)
    with bridged_host(tmp_path / "host") as host:
        tap = f"tap{one.id}"[:14]
        whole, killed, unplugged, again = host.make_so_again(
            wanted(segment(one), groups=(group(OPEN),)),
            ("true",),
            ("sh", "-c", KILLING),
            ("ip", "link", "delete", tap),
            ("true",),
        )
        assert (whole, killed, again) == (2, 3, 2), "one look at links and rules each, and a program that is started"
        assert unplugged > killed
        [space] = [line.split()[0] for line in host.run("ip", "netns", "list").splitlines()]
        assert len(host.run("ip", "netns", "pids", space).split()) == 1
        assert tap in host.run("ip", "-br", "link")


@pytest.mark.parametrize(
    "spoiling",
    [
        ("nft", "flush", "ruleset"),
        ("nft", "delete", "table", "bridge", "skep"),
        ("sh", "-c", "nft flush ruleset; nft add table inet skep; nft add table bridge skep"),
        ("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0"),
        ("sysctl", "-qw", "net.ipv4.ip_forward=0"),
    ],
)
async def test_rules_that_others_have_removed_come_back(spoiling: tuple[str, ...], tmp_path: Path) -> None:
    one, two = port(1, "10.7.0.11", OPEN), port(2, "10.7.0.12", CLOSED)
    seen = ("nft list ruleset", "sysctl net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables")
    look = ("sh", "-c", " && ".join(seen))
    with bridged_host(tmp_path / "host") as host:
        everything = wanted(segment(one, two), groups=(group(OPEN), group(CLOSED)))
        host.make_so(everything)
        before = host.run(*look)
        mended, again = host.make_so_again(everything, spoiling, ("true",))
        assert mended > again == 2, "then it is whole"
        assert host.run(*look) == before


async def test_a_host_that_boots_has_its_networks_before_it_is_told(tmp_path: Path) -> None:
    one, two = port(1, "10.7.0.11", OPEN), port(2, "10.7.0.12", OPEN)
    with bridged_host(tmp_path / "host") as host:
        host.make_so(wanted(segment(one, two), groups=(group(OPEN, PING),)))
    with bridged_host(tmp_path / "host") as host:
        for name, its, address in (("one", one, "10.7.0.11"), ("two", two, "10.7.0.12")):
            host.add_guest(name, its)
            give_address(host, name, address, "10.7.0.1")
        assert not pings(host, "one", "10.7.0.12")
        host.make_so(None)
        await reaches(host, "one", "10.7.0.12")
        host.make_so(HostNetworks())
        assert pings(host, "one", "10.7.0.12"), "nothing was said yet, which changes nothing"


LISTENING = """
import socket, sys
server = socket.create_server(("10.7.0.12", 80))
print("listens", flush=True)
connection = server.accept()[0]
connection.sendall(b"here")
sys.stdin.read()
"""
CONNECTING = """
import socket, sys
try:
    connection = socket.create_connection(("10.7.0.12", 80), 3, ("10.7.0.11", 7000))
    print(connection.recv(9).decode(), flush=True)
except TimeoutError:
    print("nothing", flush=True)
sys.stdin.read()
"""


@contextmanager
def talking(host: BridgedHost, guest: str, program: str) -> Iterator[IO[str]]:
    """Have a program that runs in a guest; give what it says."""
    command = host.command(sys.executable, "-c", program, guest=guest)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


async def test_networks_with_the_same_addresses_are_apart(tmp_path: Path) -> None:
    """Also for what is known of connections: one that is let through in one network opens none in the other."""
    mine = (port(1, "10.7.0.11", OPEN), port(2, "10.7.0.12", OPEN))
    yours = (port(3, "10.7.0.11", OPEN), port(4, "10.7.0.12", CLOSED))
    other = msgspec.structs.replace(segment(*yours, network=OTHER), subnets=(SUBNET,))
    with bridged_host(tmp_path / "host") as host:
        for its in (*mine, *yours):
            host.add_guest(its.host_name, its)
            give_address(host, its.host_name, its.addresses[0], "10.7.0.1")
        host.make_so(wanted(segment(*mine), other, groups=(group(OPEN, PING), group(CLOSED))))
        await reaches(host, "guest-1", "10.7.0.12")
        assert not pings(host, "guest-3", "10.7.0.12")
        letting = GroupRule(direction="ingress", ethertype="IPv4", protocol="tcp", port_range_min=80, port_range_max=80)
        host.make_so(wanted(segment(*mine), other, groups=(group(OPEN, letting), group(CLOSED))))
        with (
            talking(host, "guest-2", LISTENING) as first,
            talking(host, "guest-4", LISTENING) as second,
        ):
            assert (first.readline(), second.readline()) == ("listens\n", "listens\n")
            with talking(host, "guest-1", CONNECTING) as client:
                assert client.readline() == "here\n"
                # That connection is there still, and has the same addresses and ports.
                with talking(host, "guest-3", CONNECTING) as stranger:
                    assert stranger.readline() == "nothing\n"
