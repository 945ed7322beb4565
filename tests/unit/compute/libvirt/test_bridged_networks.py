"""What a host has to have for its networks, as data: links, rules, leases; and that no text breaks out of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged import dnsmasq, programs
from skep.compute.drivers.libvirt.bridged.advertisements import AdvertisedLeg, advertisements
from skep.compute.drivers.libvirt.bridged.filters import bridge_rules
from skep.compute.drivers.libvirt.bridged.interfaces import tap_interfaces
from skep.compute.drivers.libvirt.bridged.leases import configuration
from skep.compute.drivers.libvirt.bridged.names import host_name, leg_alias, leg_digest, link_local
from skep.compute.drivers.libvirt.bridged.options import BridgeOptions, bridge_options, resolvers_of_host
from skep.compute.drivers.libvirt.bridged.plan import most_numbers, numbered, owners, plan, with_possible_addresses
from skep.compute.drivers.libvirt.bridged.state import Bridge, HostWiring, LinkRoute, Tap, Tunnel
from skep.compute.drivers.libvirt.domain import GuestLabel, GuestShape, guest_xml, taps_of
from skep.compute.drivers.libvirt.options import Options
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
from skep.domain.ids import InstanceUuid
from skep.domain.networking import AddressPair, HostRoute, Ipv6Mode
from skep.domain.vifs import Vif

PORT, SERVER, NETWORK, SUBNET, GROUP, ROUTER = (f"{one:08x}-0000-4000-8000-000000000000" for one in range(1, 7))
OPTIONS = BridgeOptions(transit=IPv4Network("100.127.0.0/24"), tunnel_address="198.51.100.1", resolvers=("192.0.2.53",))
GUEST = PluggedPort(
    id=PORT, server=SERVER, mac_address="FA:16:3e:00:00:01", addresses=("10.7.0.11",), host_name="one", groups=(GROUP,)
)
BLOCK = SegmentSubnet(id=SUBNET, cidr="10.7.0.0/24", ip_version=4, gateway_ip="10.7.0.1")
INSIDE = Segment(
    network=NETWORK, number=7, mtu=1400, subnets=(BLOCK,), ports=(GUEST,), peers=("198.51.100.2", "fd00::2")
)
LEG = RouterLeg(network=NETWORK, subnet=SUBNET, address="10.7.0.1", mac_address="fa:16:3e:00:01:01")
LEADING_OUT = HostRouter(
    id=ROUTER,
    legs=(LEG,),
    outside=True,
    floating=(FloatingAddress(address="203.0.113.5", fixed_address="10.7.0.11", port=PORT),),
)
BLOCK6 = SegmentSubnet(
    id=GROUP,
    cidr="2001:db8::/64",
    ip_version=6,
    gateway_ip="2001:db8::1",
    dns_nameservers=("192.0.2.1", "2001:db8::53"),
)
LEG6 = RouterLeg(network=NETWORK, subnet=GROUP, address="2001:db8::1", mac_address="fa:16:3e:00:01:06")
WANTED = HostNetworks(version="1", segments=(INSIDE,), groups=(Group(id=GROUP),), routers=(LEADING_OUT,))

DUAL = msgspec.structs.replace(
    WANTED,
    segments=(
        msgspec.structs.replace(
            INSIDE,
            subnets=(BLOCK, BLOCK6),
            ports=(msgspec.structs.replace(GUEST, addresses=("10.7.0.11", "2001:db8::b")),),
        ),
    ),
    routers=(msgspec.structs.replace(LEADING_OUT, legs=(LEG, LEG6)),),
)


def planned(wanted: HostNetworks = WANTED, options: BridgeOptions = OPTIONS) -> HostWiring:
    return plan(wanted, options, numbered(owners(wanted), {}, most_numbers(options)))


def rules_of(wanted: HostNetworks, chain: str) -> list[str]:
    """Return the rules of a chain for frames."""
    return rules_in(bridge_rules(wanted, OPTIONS.tunnel_address), chain)


def rules_in(text: str, chain: str) -> list[str]:
    """Return the rules of a chain."""
    found = re.search(rf"^ chain {chain} {{\n(.*?)^ }}$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, text
    return [line.strip() for line in found[1].splitlines()]


def test_the_links_of_a_network_and_its_router() -> None:
    state = planned()
    assert state.bridges == (Bridge(name="sk-b7", mtu=1400),)
    assert state.tunnels == (
        Tunnel(
            name="sk-x7", number=7, bridge="sk-b7", mtu=1400, local="198.51.100.1", port=4789, peers=("198.51.100.2",)
        ),
    )
    assert state.taps == (Tap(name="tap00000001-00", bridge="sk-b7", mtu=1400, up=True),)
    ends = {one.name: (one.bridge, one.namespace, one.addresses) for one in state.cables if one.bridge}
    leg = next(name for name in ends if name.startswith("sk-l"))
    assert ends == {
        "sk-d7": ("sk-b7", f"sk-n-{NETWORK}", ("169.254.169.254/32",)),
        leg: ("sk-b7", f"sk-r-{ROUTER}", ("10.7.0.1/24",)),
    }
    assert {one.alias: (one.name, one.addresses) for one in state.cables if not one.bridge} == {
        f"network:{NETWORK}": ("sk-u2", ("100.127.0.2/32",)),
        f"router:{ROUTER}": ("sk-u3", ("100.127.0.3/32",)),
    }
    assert LinkRoute(destination="203.0.113.5/32", device="sk-u3", via="100.127.0.3") in state.routes
    names = [one.name for one in state.cables] + [one.inner for one in state.cables]
    assert max(map(len, names)) <= 15, "the kernel's longest name"


def test_no_guest_sends_to_the_tunnels_of_other_hosts() -> None:
    def forward(options: BridgeOptions) -> tuple[list[str], str]:
        _, table = planned(options=options).ruleset.split("table inet skep {")
        hosts = re.search(r"^ set hosts {\n  type ipv4_addr\n(.*?)^ }$", table, re.MULTILINE | re.DOTALL)
        assert hosts is not None
        return rules_in(table, "forward"), hosts[1].strip()

    closing = [
        'iifname "sk-u*" udp dport 4789 drop',
        'iifname "sk-u*" ip daddr @hosts ct state != { established, related } drop',
    ]
    rules, hosts = forward(OPTIONS)
    assert rules[3:6] == [*closing, 'iifname "sk-u*" ip daddr @closed drop']
    assert hosts == "elements = { 198.51.100.2 }"
    rules, hosts = forward(msgspec.structs.replace(OPTIONS, tunnel_port=4790, resolvers=("198.51.100.2",)))
    assert rules[3] == closing[0].replace("4789", "4790")
    assert hosts == "", "it resolves names for guests"
    rules, _ = forward(msgspec.structs.replace(OPTIONS, tunnel_address=""))
    assert not set(closing) & set(rules)


def test_a_leg_with_two_addresses_has_one_cable() -> None:
    further = msgspec.structs.replace(LEG, address="10.7.0.2")
    state = planned(
        msgspec.structs.replace(WANTED, routers=(msgspec.structs.replace(LEADING_OUT, legs=(LEG, further)),))
    )
    assert [one.addresses for one in state.cables if one.name.startswith("sk-l")] == [("10.7.0.1/24", "10.7.0.2/24")]


def test_a_leg_whose_name_another_one_has_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.compute.drivers.libvirt.bridged.plan.leg_digest", lambda _leg: "0123456789")
    twin = msgspec.structs.replace(LEG, address="10.7.0.2", mac_address="fa:16:3e:00:01:02")
    routes = (HostRoute(destination="10.9.0.0/16", nexthop="10.7.0.254"),)
    second = HostRouter(id=SERVER, legs=(twin,), routes=routes)
    first = msgspec.structs.replace(LEADING_OUT, routes=routes)
    state = planned(msgspec.structs.replace(WANTED, routers=(first, second)))
    [cable] = [one for one in state.cables if one.name.startswith("sk-l")]
    assert (cable.namespace, cable.addresses) == (f"sk-r-{ROUTER}", ("10.7.0.1/24",))
    routed = {one.name: [route.destination for route in one.routes] for one in state.spaces if one.forwards}
    assert routed == {f"sk-r-{ROUTER}": ["0.0.0.0/0", "10.9.0.0/16"], f"sk-r-{SERVER}": []}, "no link leads there"


def test_a_leg_of_ipv6_has_addresses_of_its_host_and_says_them_to_other_hosts() -> None:
    state = planned(DUAL)
    [cable] = [one for one in state.cables if "2001:db8::1/64" in one.addresses]
    alias = leg_alias(LEG6, OPTIONS.tunnel_address)
    assert (cable.mac, cable.addresses) == (alias, ("2001:db8::1/64", f"{link_local(alias)}/64"))
    assert len(cable.inner) <= 15
    rules = rules_of(DUAL, "to_tunnel")
    target = "0x20010db8000000000000000000000001"
    assert rules[-2:] == [
        f'oifname "sk-x7" ether type ip6 icmpv6 type 135 @th,64,128 {{ {target} }} drop',
        'oifname "sk-x7" ip6 saddr { 2001:db8::1 } drop',
    ]


def test_a_host_has_no_leg_that_its_kernel_refuses() -> None:
    narrow = msgspec.structs.replace(DUAL, segments=(msgspec.structs.replace(DUAL.segments[0], mtu=1279),))
    assert with_possible_addresses(DUAL, ipv6=True) == DUAL
    for less in (with_possible_addresses(DUAL, ipv6=False), with_possible_addresses(narrow, ipv6=True)):
        assert [router.legs for router in less.routers] == [(LEG,)]
    group = msgspec.structs.replace(LEG6, address="ff05::1")
    many = msgspec.structs.replace(DUAL, routers=(msgspec.structs.replace(LEADING_OUT, legs=(LEG, group)),))
    assert [router.legs for router in with_possible_addresses(many, ipv6=True).routers] == [(LEG,)]


def test_a_kernel_that_cannot_look_up_routes_for_rules_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routers' rules would be refused, and with them all networks of the host."""

    def refused(arguments: Sequence[str], told: str = "") -> bytes:
        if "table ip6" in told:
            raise DriverError("NetworksUnavailable", f"{' '.join(arguments)}: No such file or directory")
        return b""

    monkeypatch.setattr(programs, "missing_means", lambda *_: ())
    monkeypatch.setattr(programs, "FILTERS", Path("/"))
    monkeypatch.setattr(programs, "_run", refused)
    assert programs.missing() == ("the kernel's nft_fib_ipv6 (modprobe nft_fib_ipv6)",)


def test_no_floating_address_of_ipv6_is_in_the_rules() -> None:
    six = FloatingAddress(address="2001:db8:1::5", fixed_address="10.7.0.11", port=PORT)
    both = msgspec.structs.replace(LEADING_OUT, floating=(*LEADING_OUT.floating, six))
    wanted = msgspec.structs.replace(WANTED, routers=(both,))
    assert with_possible_addresses(wanted, ipv6=True) == WANTED


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("slaac", ["dhcp-range=set:v0,2001:db8::,ra-only,64,86400"]),
        ("dhcpv6-stateless", ["dhcp-range=set:v0,2001:db8::,ra-stateless,64,86400"]),
        (
            "dhcpv6-stateful",
            ["dhcp-range=set:v0,2001:db8::,static,64,86400", "dhcp-host=fa:16:3e:00:00:01,[2001:db8::b],one"],
        ),
    ],
)
def test_what_a_router_advertises(mode: Ipv6Mode, told: list[str]) -> None:
    subnet = msgspec.structs.replace(BLOCK6, ipv6_ra_mode=mode)
    leg = AdvertisedLeg(link="g1", segment=DUAL.segments[0], subnet=subnet, leads=True)
    said = (advertisements([leg]) or "").splitlines()
    assert set(said) >= {"port=0", "interface=g1", "ra-param=g1,mtu:1400,200,1800", *told}
    assert "dhcp-option=tag:v0,option6:dns-server,[2001:db8::53]" in said
    assert ("enable-ra" in said) is (mode == "dhcpv6-stateful")
    assert sum(line.startswith("dhcp-host=") for line in said) == len(told) - 1
    off = msgspec.structs.replace(leg, subnet=msgspec.structs.replace(leg.subnet, enable_dhcp=False))
    odd = "2001:db8::/63" if mode == "dhcpv6-stateful" else "2001:db8::/65"
    other = msgspec.structs.replace(leg, subnet=msgspec.structs.replace(leg.subnet, cidr=odd))
    assert advertisements([off, other]) is None, "dnsmasq would not start"


def test_only_the_gateway_of_a_subnet_is_the_way_out_of_it() -> None:
    """In a network that is shared, another project's router may have a leg, too."""
    subnet = msgspec.structs.replace(BLOCK6, ipv6_ra_mode="slaac")
    segment = msgspec.structs.replace(DUAL.segments[0], subnets=(BLOCK, subnet))
    other = msgspec.structs.replace(LEG6, address="2001:db8::9")
    for leg, seconds in ((LEG6, 1800), (other, 0)):
        router = msgspec.structs.replace(LEADING_OUT, legs=(LEG, leg))
        state = planned(msgspec.structs.replace(DUAL, segments=(segment,), routers=(router,)))
        [said] = [one.dnsmasq for one in state.spaces if one.dnsmasq is not None and "ra-param" in one.dnsmasq]
        assert f",mtu:{segment.mtu},200,{seconds}\n" in said


def test_hosts_of_one_machine_tell_their_namespaces_apart() -> None:
    state = planned(options=msgspec.structs.replace(OPTIONS, spaces="a."))
    named = {f"a.sk-n-{NETWORK}", f"a.sk-r-{ROUTER}"}
    assert {one.name for one in state.spaces} == {one.namespace for one in state.cables} == named
    assert all(name.startswith(state.own_spaces) for name in named)
    assert not any(name.removeprefix("a.").startswith(state.own_spaces) for name in named), "that is another's"


def test_nothing_is_had_of_a_router_that_is_off_or_of_ports_that_are() -> None:
    off = msgspec.structs.replace(LEADING_OUT, admin_state_up=False)
    down = msgspec.structs.replace(INSIDE, ports=(msgspec.structs.replace(GUEST, admin_state_up=False),))
    state = planned(msgspec.structs.replace(WANTED, segments=(down,), routers=(off,)))
    assert [one.name for one in state.spaces] == [f"sk-n-{NETWORK}"]
    assert [one.up for one in state.taps] == [False]
    assert "tap00000001-00" not in state.ruleset


def test_a_router_has_the_routes_that_a_leg_leads_to() -> None:
    routes = (
        HostRoute(destination="10.9.0.0/16", nexthop="10.7.0.254"),
        HostRoute(destination="10.10.0.0/16", nexthop="192.0.2.1"),
        HostRoute(destination="0.0.0.0/0", nexthop="10.7.0.253"),
        HostRoute(destination="10.11.0.0/16", nexthop="10.7.0.1"),
        HostRoute(destination="10.12.0.0/16", nexthop="10.7.0.255"),
    )
    router = msgspec.structs.replace(LEADING_OUT, routes=routes)
    [space] = [one for one in planned(msgspec.structs.replace(WANTED, routers=(router,))).spaces if one.forwards]
    assert {one.destination: one.via for one in space.routes} == {
        "10.9.0.0/16": "10.7.0.254",
        "0.0.0.0/0": "10.7.0.253",
    }


def test_a_router_takes_from_each_network_what_it_leads_there_alone() -> None:
    other = msgspec.structs.replace(
        DUAL.segments[0], network=SERVER, number=8, subnets=(msgspec.structs.replace(BLOCK, cidr="10.8.0.0/24"),)
    )
    away = RouterLeg(network=SERVER, subnet=SUBNET, address="10.8.0.1", mac_address="fa:16:3e:00:01:02")
    twice = msgspec.structs.replace(LEG, address="10.7.0.2", mac_address="fa:16:3e:00:01:03")
    router = msgspec.structs.replace(LEADING_OUT, legs=(LEG, LEG6, twice, away))
    state = planned(msgspec.structs.replace(DUAL, segments=(DUAL.segments[0], other), routers=(router,)))
    [space] = [one for one in state.spaces if one.forwards]
    of4, of6 = space.ruleset.split("table ip6 skep {")
    inside = ", ".join(f'"g{leg_digest(one)}"' for one in (LEG, LEG6, twice))
    outside = f'"g{leg_digest(away)}"'
    answered = [f"iifname {{ {one} }} fib saddr oifname != {{ {one} }} drop" for one in (outside, inside)]
    kind = "type filter hook prerouting priority -150; policy accept;"
    assert rules_in(of4, "sources") == [
        kind,
        "meta l4proto icmp ct state related accept",
        f'iifname != {{ "lo", {outside} }} ip saddr {{ 10.8.0.0/24 }} drop',
        answered[0],
        f'iifname != {{ "lo", {inside} }} ip saddr {{ 10.7.0.0/24 }} drop',
        answered[1],
    ]
    assert rules_in(of6, "sources") == [
        kind,
        "ip6 saddr { ::, fe80::/10 } accept",
        "meta l4proto icmpv6 ct state related accept",
        answered[0],
        f'iifname != {{ "lo", {inside} }} ip6 saddr {{ 2001:db8::/64 }} drop',
        answered[1],
    ]


def test_who_has_a_number_keeps_it_and_a_new_one_has_the_smallest_that_is_free() -> None:
    found = {"network:a": 3, "network:gone": 2, "network:odd": 1}
    assert numbered(("network:new", "network:a", "network:odd"), found, 9) == {
        "network:a": 3,
        "network:new": 2,
        "network:odd": 4,
    }
    with pytest.raises(ValueError, match="more than 2 networks"):
        numbered(("a", "b", "c"), {}, 3)
    assert most_numbers(msgspec.structs.replace(OPTIONS, transit=IPv4Network("100.64.0.0/10"))) == 65535


def test_what_dnsmasq_is_told() -> None:
    told = configuration(INSIDE, OPTIONS.resolvers)
    assert told.splitlines()[-8:] == [
        "server=192.0.2.53",
        "dhcp-range=set:s0,10.7.0.0,static,255.255.255.0,86400",
        "shared-network=svc,10.7.0.0",
        "dhcp-option=tag:s0,option:router,10.7.0.1",
        "dhcp-option=tag:s0,option:dns-server,169.254.169.254",
        "dhcp-option=tag:s0,option:mtu,1400",
        "dhcp-option=tag:s0,option:classless-static-route,169.254.169.254/32,0.0.0.0,0.0.0.0/0,10.7.0.1",
        "dhcp-host=fa:16:3e:00:00:01,10.7.0.11,one",
    ]


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        (("192.0.2.1", "2001:db8::1"), "192.0.2.1"),
        (("2001:db8::1",), "169.254.169.254"),
        (("::ffff:192.0.2.1",), "169.254.169.254"),
    ],
)
def test_dhcp_of_ipv4_names_no_dns_server_of_ipv6(servers: tuple[str, ...], told: str) -> None:
    subnet = msgspec.structs.replace(BLOCK, dns_nameservers=servers)
    said = configuration(msgspec.structs.replace(INSIDE, subnets=(subnet,)), ()).splitlines()
    assert f"dhcp-option=tag:s0,option:dns-server,{told}" in said


@pytest.mark.parametrize(
    ("name", "told"),
    [("Ignore", ""), ("infinite", ""), ("45m", ""), ("7", ""), ("ignored", ",ignored"), ("7-up", ",7-up")],
)
def test_a_guest_whose_name_dnsmasq_takes_for_a_word_has_a_lease_without_it(name: str, told: str) -> None:
    guest = msgspec.structs.replace(GUEST, host_name=name)
    said = configuration(msgspec.structs.replace(INSIDE, ports=(guest,)), ()).splitlines()
    assert f"dhcp-host=fa:16:3e:00:00:01,10.7.0.11{told}" in said


def test_a_dnsmasq_that_does_not_start_keeps_no_other_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start(space: str, _file: Path) -> None:
        started.append(space)
        if space == "sk-n-1":
            raise DriverError("NetworksUnavailable", "bad IP address")

    monkeypatch.setattr(dnsmasq, "start_dnsmasq", start)
    with pytest.raises(DriverError, match="bad IP address"):
        dnsmasq.make_so({"sk-n-1": "one", "sk-n-2": "two"}, tmp_path)
    assert started == ["sk-n-1", "sk-n-2"]


def test_a_subnet_without_a_gateway_names_none() -> None:
    bare = msgspec.structs.replace(INSIDE, subnets=(msgspec.structs.replace(BLOCK, gateway_ip=None),))
    told = configuration(bare, ())
    assert "dhcp-option=tag:s0,option:router\n" in told
    assert "0.0.0.0/0" not in told


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        ({"ethertype": "IPv4"}, "ether type ip"),
        (
            {"protocol": "tcp", "port_range_min": 22, "port_range_max": 23},
            "ether type ip meta l4proto 6 th dport 22-23",
        ),
        ({"protocol": "6", "remote_ip_prefix": "10.1.2.3/8"}, "ether type ip ip saddr 10.0.0.0/8 meta l4proto 6"),
        ({"direction": "egress", "remote_ip_prefix": "10.0.0.0/8"}, "ether type ip ip daddr 10.0.0.0/8"),
        ({"remote_group": GROUP}, f"ether type ip ip saddr @m4_{GROUP}"),
        ({"ethertype": "IPv6", "remote_group": GROUP}, f"ether type ip6 ip6 saddr @m6_{GROUP}"),
        (
            {"protocol": "icmp", "port_range_min": 8, "port_range_max": 0},
            "ether type ip meta l4proto 1 icmp type 8 icmp code 0",
        ),
        (
            {"ethertype": "IPv6", "protocol": "icmp", "port_range_min": 128},
            "ether type ip6 meta l4proto 58 icmpv6 type 128",
        ),
        ({"protocol": "VRRP"}, "ether type ip meta l4proto 112"),
    ],
)
def test_what_a_rule_lets_through(rule: dict[str, object], match: str) -> None:
    known = msgspec.convert({"direction": "ingress", "ethertype": "IPv4", **rule}, GroupRule)
    wanted = HostNetworks(version="1", groups=(Group(id=GROUP, rules=(known,)),))
    side = "i" if known.direction == "ingress" else "o"
    assert rules_of(wanted, f"{side}_{GROUP}") == [f"{match} accept"]


def test_a_port_without_groups_reaches_nothing_and_one_without_security_everything() -> None:
    alone = msgspec.structs.replace(GUEST, groups=())
    segments = (msgspec.structs.replace(INSIDE, ports=(alone,)),)
    assert rules_of(msgspec.structs.replace(WANTED, segments=segments), f"out_{PORT}") == ["drop"]
    bare = msgspec.structs.replace(GUEST, port_security_enabled=False)
    segments = (msgspec.structs.replace(INSIDE, ports=(bare,)),)
    for chain in ("s", "in", "out"):
        assert rules_of(msgspec.structs.replace(WANTED, segments=segments), f"{chain}_{PORT}") == ["accept"]


def test_a_port_sends_by_its_further_pairs_too() -> None:
    pairs = (AddressPair("10.7.0.0/28"), AddressPair("fd00::5", "02:00:00:00:00:05"))
    more = msgspec.structs.replace(GUEST, allowed_address_pairs=pairs)
    rules = rules_of(
        msgspec.structs.replace(WANTED, segments=(msgspec.structs.replace(INSIDE, ports=(more,)),)), f"s_{PORT}"
    )
    assert rules[0] == "ether saddr != { 02:00:00:00:00:05, fa:16:3e:00:00:01 } drop"
    assert "ether saddr fa:16:3e:00:00:01 ip saddr { 10.7.0.0/28 } accept" in rules
    assert "ether saddr 02:00:00:00:00:05 ip6 saddr { fd00::5/128, fe80::ff:fe00:5/128 } accept" in rules
    assert rules[-1] == "drop"


def test_a_leg_keeps_its_address_from_tunnels_of_its_own_network_alone() -> None:
    other = msgspec.structs.replace(INSIDE, network=SERVER, number=8, subnets=(), ports=(), peers=())
    text = bridge_rules(msgspec.structs.replace(WANTED, segments=(INSIDE, other)), OPTIONS.tunnel_address)
    [elements] = re.findall(
        r"^ set everywhere {\n  type ifname \. ether_addr\n  elements = { (.*) }$", text, re.MULTILINE
    )
    service = "02:5c:e9:00:00:01"
    assert elements.split(", ") == [f'"sk-x7" . {service}', '"sk-x7" . fa:16:3e:00:01:01', f'"sk-x8" . {service}']


def test_a_leg_has_another_address_on_each_host() -> None:
    known = {leg_alias(LEG, host) for host in ("198.51.100.1", "198.51.100.2")}
    assert len(known) == 2
    assert all(re.fullmatch(r"02(:[0-9a-f]{2}){5}", one) for one in known)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": 'x"; flush ruleset; '},
        {"mac_address": "fa:16:3e:00:00:01\n"},
        {"addresses": ("10.7.0.11 } accept",)},
        {"addresses": ("fe80::1%eth0",)},
        {"groups": ("../../etc",)},
        {"allowed_address_pairs": (AddressPair("10.0.0.0/8", "x"),)},
    ],
)
def test_a_port_that_is_none_is_refused(changes: dict[str, object]) -> None:
    odd = msgspec.structs.replace(GUEST, **changes)
    with pytest.raises(ValueError, match=r"UUID|MAC|appear|zone"):
        planned(msgspec.structs.replace(WANTED, segments=(msgspec.structs.replace(INSIDE, ports=(odd,)),)))


@given(st.text())
def test_no_text_of_a_user_adds_a_word_to_what_programs_are_told(text: str) -> None:
    """By host names, which are free text, and by the fields that have to be addresses, ids and protocols."""
    assert re.fullmatch(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?", host_name(text))
    plain = configuration(msgspec.structs.replace(INSIDE, ports=()), ())
    named = configuration(msgspec.structs.replace(INSIDE, ports=(msgspec.structs.replace(GUEST, host_name=text),)), ())
    assert re.fullmatch(r"dhcp-host=fa:16:3e:00:00:01,10\.7\.0\.11(,[a-z0-9-]+)?\n", named.removeprefix(plain))
    rule = GroupRule(direction="ingress", ethertype="IPv4", protocol=text)
    try:
        [match] = rules_of(HostNetworks(version="1", groups=(Group(id=GROUP, rules=(rule,)),)), f"i_{GROUP}")
    except ValueError:
        return
    assert re.fullmatch(r"ether type ip meta l4proto \d{1,3} accept", match)


def test_a_guest_has_links_of_the_host_for_interfaces() -> None:
    vif = Vif(id=PORT, mac_address="FA:16:3e:00:00:01", network_id=NETWORK, network_name="inside", mtu=1400)
    taps = tap_interfaces((vif,), "e1000")
    label = GuestLabel(instance=InstanceUuid(SERVER), attempt=1, name="one", resources={})
    shape = GuestShape(
        label=label, vcpus=1, memory_mb=64, virt_type="qemu", machine="pc", console_file="/c", host_interfaces=taps
    )
    xml = guest_xml(shape)
    assert (
        '<interface type="ethernet"><mac address="fa:16:3e:00:00:01" />'
        '<target dev="tap00000001-00" managed="no" /><model type="e1000" /><mtu size="1400" /><rom enabled="no" />'
        "</interface>"
    ) in xml
    assert taps_of(xml) == (vif.device_name,)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"type": "ovs"}, "ovs"),
        ({"vnic_type": "direct"}, "direct"),
        ({"mac_address": "x"}, "MAC"),
        ({"id": "p"}, "UUID"),
    ],
)
def test_a_port_that_no_bridge_has_is_refused(changes: dict[str, str], why: str) -> None:
    vif = Vif(id=PORT, mac_address="fa:16:3e:00:00:01", network_id=NETWORK, network_name="inside", mtu=1400)
    with pytest.raises(DriverError, match=why):
        tap_interfaces((msgspec.structs.replace(vif, **changes),), "virtio")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"transit": "100.127.0.1/16"}, "transit: .*host bits"),
        ({"transit": "100.127.0.0/30"}, "transit: .*too small"),
        ({"tunnel_address": "host2"}, "tunnel_address: 'host2'"),
        ({"closed_to_guests": ["x"]}, "closed_to_guests: .*'x'"),
        ({"resolvers": ["127.0.0.1; x"]}, "resolvers: .*'127"),
    ],
)
def test_an_option_that_is_wrong_is_named(option: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bridge_options(msgspec.convert({"virt_type": "qemu", **option}, Options))


def test_resolvers_are_those_of_the_host_that_others_reach(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(
        "# nameserver 192.0.2.9\nsearch example\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver x\n"
    )
    assert resolvers_of_host(file) == ("192.0.2.53",)
