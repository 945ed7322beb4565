"""How what Skep makes on a host is named, and the checks by which no text of users gets into a name or a file."""

from __future__ import annotations

import hashlib
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from skep.domain.host_networks import LEAST_SEGMENT, MOST_SEGMENT, RouterLeg

PREFIX = "sk-"
"""Of all links, but those that guests are plugged with, and of all network namespaces."""
BRIDGE, TUNNEL, SERVICE_CABLE, LEG_CABLE, UPLINK, NEW_TAP = (
    f"{PREFIX}b",
    f"{PREFIX}x",
    f"{PREFIX}d",
    f"{PREFIX}l",
    f"{PREFIX}u",
    f"{PREFIX}t",
)
"""How names begin: bridges, devices of VXLAN, the host's ends of cables into namespaces of networks, of routers, and
from both to the outside; taps until they are known as Skep's."""
SERVICE, OUTSIDE, LEG = "svc", "up", "g"
"""Inside of namespaces: the end in the network, the one that leads to the outside, and how those of a router begin."""
OF_NETWORK, OF_ROUTER = f"{PREFIX}n", f"{PREFIX}r"
"""How namespaces are named."""
GROUP = 21216
"""The group of links that are plugged into bridges: rules tell Skep's bridges from others by it."""
ROUTES = 213
"""The protocol of routes that Skep made."""
SERVICE_ADDRESS = IPv4Address("169.254.169.254")
"""Where DHCP, DNS and metadata are in every network: each host answers its own guests."""
METADATA_PORT = 80
SERVICE_MAC = "02:5c:e9:00:00:01"
TAP = re.compile(r"tap[0-9a-f-]{11}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 63


def uid(text: str) -> str:
    """Return an id. Raises ValueError where it is no UUID."""
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no UUID")
    return text


def mac(text: str) -> str:
    """Return a hardware address. Raises ValueError."""
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no MAC address")
    return text.lower()


def address(text: str) -> IPv4Address | IPv6Address:
    """Return an address that programs read as one. Raises ValueError."""
    found = ip_address(text)
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise ValueError(f"{text[:80]!r} has a zone")
    return found


def block(text: str) -> IPv4Network | IPv6Network:
    """Return a block of addresses, or a single one as a block. Raises ValueError."""
    found = ip_network(text, strict=False)
    if "%" in str(found):
        raise ValueError(f"{text[:80]!r} has a zone")
    return found


def number(segment: int) -> int:
    """Return the number of a network. Raises ValueError."""
    if not LEAST_SEGMENT <= segment <= MOST_SEGMENT:
        raise ValueError(f"{segment} is no number of a network")
    return segment


def tap(port: str) -> str:
    """Return the device of a port: `Vif.device_name`."""
    return f"tap{uid(port)}"[:14]


def host_name(text: str) -> str:
    """Return what DHCP may name a guest: a label of DNS; empty where nothing is left."""
    return _NOT_IN_NAMES.sub("-", text.lower())[:_LONGEST_NAME].strip("-")


def link_local(hardware: str) -> IPv6Address:
    """Return the address of the link itself that follows from a hardware address (RFC 4291, appendix A)."""
    bits = bytes.fromhex(hardware.replace(":", ""))
    return IPv6Address(b"\xfe\x80" + bytes(6) + bytes((bits[0] ^ 2, *bits[1:3], 0xFF, 0xFE, *bits[3:])))


def leg_digest(leg: RouterLeg) -> str:
    """Return what tells a leg of a router from all others, in ten characters."""
    return _digest(uid(leg.network), uid(leg.subnet), mac(leg.mac_address))[:10]


def leg_alias(leg: RouterLeg, tunnel_address: str) -> str:
    """Return the hardware address by which a router's leg on one host is known to the other hosts.

    All hosts have the same leg, and frames between hosts say of which one they are. A leg of IPv6 has this address
    itself: its neighbours hear hardware addresses inside of packets, too.
    """
    digest = _digest(tunnel_address, leg_digest(leg))
    return "02:" + ":".join(digest[at : at + 2] for at in range(0, 10, 2))


def _digest(*words: str) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()
