"""What a host has to have, as data: compared with what is there by `host`, and read by tests."""

from __future__ import annotations

import msgspec


class Bridge(msgspec.Struct, frozen=True, kw_only=True):
    """A network on the host: links are plugged into it, and the host itself is not in it."""

    name: str
    mtu: int


class Tunnel(msgspec.Struct, frozen=True, kw_only=True):
    """Carries a network to other hosts, by VXLAN."""

    name: str
    number: int
    bridge: str
    mtu: int
    local: str
    port: int
    peers: tuple[str, ...] = ()


class Tap(msgspec.Struct, frozen=True, kw_only=True):
    """What a guest is plugged with."""

    name: str
    bridge: str
    mtu: int
    up: bool = True


class Cable(msgspec.Struct, frozen=True, kw_only=True):
    """A pair of links: one in the host's own namespace, the other one, `inner`, in a namespace of Skep."""

    name: str
    inner: str
    namespace: str
    mtu: int
    bridge: str | None = None
    """Into which the host's end is plugged."""
    mac: str | None = None
    """Of the inner end. The bridge knows that it is there, and learns nothing else of it."""
    addresses: tuple[str, ...] = ()
    """Of the inner end, each with the length of its prefix."""
    outer_addresses: tuple[str, ...] = ()
    alias: str = ""
    """What it is for: kept by the kernel beside the name."""


class LinkRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A route to a block of addresses: by a next hop, or what is on the link itself."""

    destination: str
    device: str | None = None
    via: str | None = None
    source: str | None = None


class NetworkSpace(msgspec.Struct, frozen=True, kw_only=True):
    """A network namespace."""

    name: str
    forwards: bool
    routes: tuple[LinkRoute, ...] = ()
    ruleset: str
    """For `nft`: a whole table, which takes the place of that before."""
    dnsmasq: str | None = None
    """The configuration of the dnsmasq in it; None: there is none."""


class HostWiring(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    bridges: tuple[Bridge, ...] = ()
    tunnels: tuple[Tunnel, ...] = ()
    taps: tuple[Tap, ...] = ()
    cables: tuple[Cable, ...] = ()
    spaces: tuple[NetworkSpace, ...] = ()
    ruleset: str
    """For `nft`, in the host's own namespace."""
    routes: tuple[LinkRoute, ...] = ()
    """In the host's own namespace."""
    proxied: tuple[str, ...] = ()
    """Addresses for which the host answers on the interface that leads outside."""
    own_spaces: tuple[str, ...]
    """How the names of all network namespaces begin that Skep made on the host."""
