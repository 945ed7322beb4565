"""Makes a host have what a `HostWiring` says: compares it with what is there, and changes the difference.

Everything may be done again, and be cut at any point: what is there in part is made whole by the next call. Rules come
first, so that nothing is plugged that they do not know.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged import dnsmasq
from skep.compute.drivers.libvirt.bridged.names import (
    GROUP,
    NEW_TAP,
    PREFIX,
    ROUTES,
    UPLINK,
)
from skep.compute.drivers.libvirt.bridged.nft import TABLE
from skep.compute.drivers.libvirt.bridged.programs import (
    bridge,
    forwarding_entries,
    ip,
    look,
    nft,
    set_kernel,
    tables,
)
from skep.compute.drivers.libvirt.bridged.state import Cable, HostWiring, LinkRoute, NetworkSpace, Tap, Tunnel

KERNEL = Path("/proc/sys/net")
SPACES = Path("/run/netns")
OURS = "skep"
"""The alias of taps that Skep made."""
ALL = "00:00:00:00:00:00"
"""Where a device of VXLAN sends what it knows no place of."""
FAMILIES = {"bridge", "inet"}
"""Of the tables in the host's own namespace."""
HOST_KERNEL = {"bridge/bridge-nf-call-iptables": "1", "bridge/bridge-nf-call-ip6tables": "1", "ipv4/ip_forward": "1"}
SPACE_KERNEL = {
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
    "ipv4/conf/all/arp_ignore": "1",
}
NO_IPV6 = {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}

Link = dict[str, Any]
Command = tuple[str, ...]


def links_of(space: str | None = None) -> dict[str, Link]:
    """Return the links of a namespace, with their addresses, by name. Raises DriverError."""
    return {one["ifname"]: one for one in look(("-details", "address", "show"), space)}


def numbers_of(links: Mapping[str, Link]) -> dict[str, int]:
    """Return the numbers of namespaces that have a way to the outside, as the links say."""
    found = {}
    for name, link in links.items():
        number = name.removeprefix(UPLINK)
        if number != name and number.isdigit() and "ifalias" in link:
            found[str(link["ifalias"])] = int(number)
    return found


def make_so(state: HostWiring, links: Mapping[str, Link], kept: Collection[str], outside: str, directory: Path) -> None:
    """Make the host so. Raises DriverError, OSError.

    Users choose addresses and routes, and kernels refuse some: what fails inside of one namespace, or of one dnsmasq,
    keeps nothing else from being made, and is raised after that.

    `links`: those that are there; `kept`: taps that stay though nothing wants them, in no network; `outside`: the
    interface on which the host answers for addresses; `directory`: for files of dnsmasq.
    """
    _make_spaces(state.spaces)
    set_kernel(_host_kernel())
    nft(state.ruleset)
    for space in state.spaces:
        nft(space.ruleset, space.name)
    links = _without_unwanted(state, links, kept)
    inner = {space.name: links_of(space.name) for space in state.spaces}
    broken = [one.name for one in state.cables if one.name in links and _is_broken(one, links, inner)]
    broken += [one.name for one in state.tunnels if one.name in links and _is_other(one, links[one.name])]
    ip([("link", "delete", "dev", name) for name in broken])
    links = {name: link for name, link in links.items() if name not in broken}
    _make_links(state, links)
    failed: list[DriverError] = []
    for space in state.spaces:
        try:
            _make_inside(space, [one for one in state.cables if one.namespace == space.name], inner[space.name])
        except DriverError as error:
            failed.append(error)
    _make_entries(state)
    _make_routes(state.routes, None)
    _make_proxied(state.proxied, outside)
    try:
        dnsmasq.make_so(dnsmasq_texts(state), directory)
    except DriverError as error:
        failed.append(error)
    _remove_spaces({space.name for space in state.spaces}, state.own_spaces)
    if failed:
        raise failed[0]


def ensure_space(name: str) -> None:
    """Make a network namespace that is not there. Raises DriverError, OSError."""
    place = SPACES / name
    if place.exists() and not os.path.ismount(place):
        # What made it was cut before the namespace was there.
        place.unlink()
    if not place.exists():
        ip([("netns", "add", name)])


def dnsmasq_texts(state: HostWiring) -> dict[str, str]:
    """Return the configurations of dnsmasq by the namespaces that have one."""
    return {space.name: space.dnsmasq for space in state.spaces if space.dnsmasq is not None}


def ours(links: Mapping[str, Link]) -> frozenset[tuple[Any, ...]]:
    """Return what there is of Skep's links, and how they are plugged: equal as long as nobody has touched them."""
    return frozenset(
        (name, link.get("ifindex"), link.get("master"), link.get("mtu"), link.get("group"), "UP" in link["flags"])
        for name, link in links.items()
        if link.get("ifalias") == OURS or name.startswith(PREFIX)
    )


def rules_in_force() -> dict[str, int] | None:
    """Return the handles of the rules of the host's own namespace: equal as long as nobody has replaced them.

    None: some are gone, or the kernel leads nothing through them any more. Raises DriverError, OSError.
    """
    found = tables(TABLE)
    leads = all(Path(KERNEL, name).read_text().strip() == value for name, value in _host_kernel().items())
    return found if leads and found.keys() >= FAMILIES else None


def ensure_taps(names: Sequence[str], alias: str = OURS, *, queues: bool = False) -> None:
    """Make taps that are not there, in no network yet. Raises DriverError where another has the name of one.

    `queues`: they have several; one that is there and does not do as is said is made anew.
    """
    links = links_of()
    missing: list[Command] = []
    for name in names:
        if name not in links:
            missing += _new_tap(name, links, alias, queues=queues)
        elif links[name].get("ifalias") != alias:
            raise DriverError("NetworksUnavailable", f"{name} is a link that Skep did not make")
        elif _has_queues(links[name]) != queues:
            missing += [("link", "delete", "dev", name), *_new_tap(name, links, alias, queues=queues)]
    ip(missing)


def open_taps(names: Sequence[str]) -> list[str]:
    """Return those of taps that a process has open, as that of a guest; one that is down is not known to be.

    Raises DriverError.
    """
    links = links_of()
    return [name for name in names if "LOWER_UP" in links.get(name, {}).get("flags", ())]


def remove_taps(names: Collection[str], alias: str = OURS) -> None:
    """Remove taps; those that are not there, or that Skep did not make, are left out. Raises DriverError."""
    links = links_of()
    ours = [name for name in names if name in links and links[name].get("ifalias") == alias]
    ip([("link", "delete", "dev", name) for name in ours])


def _host_kernel() -> dict[str, str]:
    return {name: value for name, value in HOST_KERNEL.items() if Path(KERNEL, name).exists()}


def _make_spaces(spaces: Iterable[NetworkSpace]) -> None:
    for space in spaces:
        ensure_space(space.name)
        if set(links_of(space.name)) == {"lo"}:
            values = {**SPACE_KERNEL, **NO_IPV6, "ipv4/ip_forward": "1" if space.forwards else "0"}
            known = {name: value for name, value in values.items() if Path(KERNEL, name).exists()}
            set_kernel(known, space.name)
            ip([("link", "set", "dev", "lo", "up")], space.name)


def _remove_spaces(wanted: Collection[str], own: tuple[str, ...]) -> None:
    there = [str(one["name"]) for one in look(("netns", "list"))]
    ours = [name for name in there if name.startswith(own) and name not in wanted]
    ip([("netns", "delete", name) for name in ours])


def _without_unwanted(state: HostWiring, links: Mapping[str, Link], kept: Collection[str]) -> dict[str, Link]:
    """Remove links that Skep made and nothing wants; return the others."""
    taps = {one.name for one in state.taps}
    wanted = {one.name for kind in (state.bridges, state.tunnels, state.cables) for one in kind}
    gone, loose = [], []
    for name, link in links.items():
        if link.get("ifalias") == OURS and not name.startswith(NEW_TAP):
            if name not in taps and name not in kept:
                gone.append(name)
            elif name not in taps and "master" in link:
                loose.append(name)
        elif name.startswith(PREFIX) and name not in wanted:
            gone.append(name)
    ip([*(("link", "set", "dev", name, "nomaster") for name in loose), *_deletes(gone)])
    return {name: link for name, link in links.items() if name not in gone}


def _deletes(names: Iterable[str]) -> Iterator[Command]:
    return (("link", "delete", "dev", name) for name in names)


def _is_broken(cable: Cable, links: Mapping[str, Link], inner: Mapping[str, Mapping[str, Link]]) -> bool:
    """Tell whether a cable leads elsewhere, or was cut while it was made."""
    return cable.inner not in inner[cable.namespace] or links[cable.name].get("ifalias", "") != cable.alias


def _is_other(tunnel: Tunnel, link: Link) -> bool:
    data = link.get("linkinfo", {}).get("info_data", {})
    local = data.get("local", data.get("local6"))
    return (data.get("id"), local, data.get("port")) != (tunnel.number, tunnel.local, tunnel.port)


def _make_links(state: HostWiring, links: Mapping[str, Link]) -> None:
    commands: list[Command] = []
    for one in state.bridges:
        if one.name not in links:
            quiet = ("stp_state", "0", "mcast_snooping", "0", "forward_delay", "0")
            commands.append(("link", "add", "name", one.name, "type", "bridge", *quiet))
        commands += _settings(one.name, links, one.mtu)
    for tunnel in state.tunnels:
        if tunnel.name not in links:
            kind = ("type", "vxlan", "id", str(tunnel.number), "local", tunnel.local)
            commands.append(("link", "add", "name", tunnel.name, *kind, "dstport", str(tunnel.port), "ttl", "64"))
        commands += _plugged(tunnel.name, links, tunnel.bridge, tunnel.mtu)
    for cable in state.cables:
        commands += _cable(cable, links)
    for tap in state.taps:
        commands += _tap(tap, links)
    ip(commands)


def _cable(cable: Cable, links: Mapping[str, Link]) -> Iterator[Command]:
    if cable.name not in links:
        peer = ("peer", "name", cable.inner, "netns", cable.namespace)
        yield ("link", "add", "name", cable.name, "type", "veth", *peer)
    if cable.alias and links.get(cable.name, {}).get("ifalias") != cable.alias:
        yield ("link", "set", "dev", cable.name, "alias", cable.alias)
    if cable.bridge is None:
        yield from _settings(cable.name, links, cable.mtu)
    else:
        yield from _plugged(cable.name, links, cable.bridge, cable.mtu)
    yield from _addresses(cable.name, links, cable.outer_addresses)


def _tap(tap: Tap, links: Mapping[str, Link]) -> Iterator[Command]:
    if tap.name not in links:
        yield from _new_tap(tap.name, links)
    elif links[tap.name].get("ifalias") != OURS:
        raise DriverError("NetworksUnavailable", f"{tap.name} is a link that Skep did not make")
    yield from _plugged(tap.name, links, tap.bridge, tap.mtu, up=tap.up)


def _new_tap(name: str, links: Mapping[str, Link], alias: str = OURS, *, queues: bool = False) -> Iterator[Command]:
    """Yield what makes a tap: under another name, until it says that it is Skep's."""
    new = name.replace("tap", NEW_TAP, 1)
    if new in links:
        yield ("link", "delete", "dev", new)
    yield ("tuntap", "add", "dev", new, "mode", "tap", *(("multi_queue",) if queues else ()))
    yield ("link", "set", "dev", new, "alias", alias)
    yield ("link", "set", "dev", new, "name", name)


def _has_queues(link: Link) -> bool:
    return bool(link.get("linkinfo", {}).get("info_data", {}).get("multi_queue"))


def _settings(name: str, links: Mapping[str, Link], mtu: int, *, up: bool = True) -> Iterator[Command]:
    link = links.get(name, {})
    is_up = "UP" in link.get("flags", ())
    if (link.get("mtu"), is_up, link.get("inet6_addr_gen_mode")) != (mtu, up, "none"):
        # In one command the link would come up first, and give itself an address.
        yield ("link", "set", "dev", name, "addrgenmode", "none")
        yield ("link", "set", "dev", name, "mtu", str(mtu), "up" if up else "down")


def _plugged(name: str, links: Mapping[str, Link], bridge_name: str, mtu: int, *, up: bool = True) -> Iterator[Command]:
    """Yield what plugs a link into a bridge: first it is one of those that the rules are about."""
    link = links.get(name, {})
    if link.get("group") != str(GROUP):
        yield ("link", "set", "dev", name, "group", str(GROUP))
    if link.get("master") != bridge_name:
        yield ("link", "set", "dev", name, "master", bridge_name)
    yield from _settings(name, links, mtu, up=up)


def _addresses(name: str, links: Mapping[str, Link], wanted: Collection[str]) -> Iterator[Command]:
    there = _has(name, links)
    for address in sorted(there.difference(wanted)):
        yield ("address", "delete", address, "dev", name)
    for address in wanted:
        if address not in there:
            # All hosts have the same addresses, and answer for them at once.
            yield ("address", "add", address, "dev", name, *(("nodad",) if ":" in address else ()))


def _has(name: str, links: Mapping[str, Link]) -> set[str]:
    """Return the addresses of a link."""
    return {f"{one['local']}/{one['prefixlen']}" for one in links.get(name, {}).get("addr_info", ())}


def _of_ipv6(space: NetworkSpace, cables: Iterable[Cable], links: Mapping[str, Link]) -> Iterator[tuple[str, str]]:
    """Yield what the kernel of a namespace is to be told before ends of cables get addresses of IPv6.

    Links in namespaces have no IPv6 but where they are to have an address of it.
    """
    for cable in cables:
        if any(":" in one for one in cable.addresses) and not _has(cable.inner, links).issuperset(cable.addresses):
            yield "ipv6/conf/all/forwarding", "1" if space.forwards else "0"
            for name, value in (("disable_ipv6", "0"), ("accept_ra", "0"), ("autoconf", "0")):
                yield f"ipv6/conf/{cable.inner}/{name}", value


def _make_inside(space: NetworkSpace, cables: Sequence[Cable], links: Mapping[str, Link]) -> None:
    """Make what is to be in a namespace so; `links`: those that were there."""
    set_kernel(dict(_of_ipv6(space, cables, links)), space.name)
    ip(list(_inside(cables, links)), space.name)
    _make_routes(space.routes, space.name)
    if any(":" in one for cable in cables for one in cable.addresses):
        _make_routes(space.routes, space.name, version=6)


def _inside(cables: Iterable[Cable], links: Mapping[str, Link]) -> Iterator[Command]:
    """Yield what is to be done at the inner ends of the cables into a namespace."""
    for cable in cables:
        link = links.get(cable.inner, {})
        if cable.mac is not None and link.get("address") != cable.mac:
            yield ("link", "set", "dev", cable.inner, "address", cable.mac)
        yield from _settings(cable.inner, links, cable.mtu)
        yield from _addresses(cable.inner, links, cable.addresses)


def _make_entries(state: HostWiring) -> None:
    """Have bridges know where the ends in namespaces are, and tunnels which hosts they lead to."""
    ends = [one for one in state.cables if one.bridge is not None and one.mac is not None]
    commands: list[Command] = [("fdb", "replace", str(one.mac), "dev", one.name, "master", "static") for one in ends]
    for tunnel in state.tunnels:
        entries = forwarding_entries(tunnel.name)
        there = {str(one["dst"]) for one in entries if one.get("mac") == ALL and "dst" in one}
        gone, new = sorted(there.difference(tunnel.peers)), [one for one in tunnel.peers if one not in there]
        commands += [("fdb", "delete", ALL, "dev", tunnel.name, "dst", peer) for peer in gone]
        commands += [("fdb", "append", ALL, "dev", tunnel.name, "dst", peer) for peer in new]
    bridge(commands)


def _make_routes(wanted: Iterable[LinkRoute], space: str | None, version: int = 4) -> None:
    """Have those of these routes that are of a version of IP, and no other that Skep made."""
    told = look((f"-{version}", "route", "show", "protocol", str(ROUTES)), space)
    there = {_key(one, version): one for one in told}
    commands: list[Command] = []
    keys = set()
    for route in wanted:
        destination = ip_interface(route.destination)
        if destination.version != version:
            continue
        key = str(destination)
        keys.add(key)
        one = there.get(key, {})
        if (one.get("dev"), one.get("gateway"), one.get("prefsrc")) != (route.device, route.via, route.source):
            commands.append(("route", "replace", key, *_words(route), "protocol", str(ROUTES)))
    commands += [("route", "delete", key, "protocol", str(ROUTES)) for key in sorted(there.keys() - keys)]
    ip(commands, space)


def _key(route: Link, version: int) -> str:
    destination = str(route["dst"])
    if destination == "default":
        return "0.0.0.0/0" if version == 4 else "::/0"
    return str(ip_interface(destination))


def _words(route: LinkRoute) -> Iterator[str]:
    if route.via is not None:
        yield from ("via", route.via)
    if route.device is not None:
        yield from ("dev", route.device)
    if route.source is not None:
        yield from ("src", route.source)
    if route.via is not None:
        yield "onlink"


def _make_proxied(wanted: Collection[str], outside: str) -> None:
    """Have the host answer for addresses on the interface that leads outside, and for no other that Skep chose."""
    if wanted:
        # It answers at once, as the one who has the address would.
        set_kernel({f"ipv4/neigh/{outside}/proxy_delay": "0"})
    found = look(("neighbour", "show", "proxy", "protocol", str(ROUTES)))
    there = {(str(one["dst"]), str(one["dev"])) for one in found}
    keys = {(address, outside) for address in wanted}
    commands: list[Command] = []
    commands += [("neighbour", "delete", "proxy", one, "dev", device) for one, device in sorted(there - keys)]
    ours = ("protocol", str(ROUTES))
    commands += [("neighbour", "add", "proxy", one, "dev", device, *ours) for one, device in sorted(keys - there)]
    ip(commands)
