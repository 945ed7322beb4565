"""Hosts of one machine in network namespaces of their own, as on machines of their own, with cables to a bridge.

The machine's own network namespace, in which the bridge is, is what those hosts have outside
(docs/decisions/1112-hosts-in-namespaces.md). Everything may be done again, and be cut at any point.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged import dnsmasq, programs
from skep.compute.drivers.libvirt.bridged.host import SPACES, ensure_space
from skep.compute.drivers.libvirt.bridged.nft import NftTable

BRIDGE = "skep-up"
"""The bridge; cables are named by it and the number of their host."""
OUTER = "outer"
"""The end of a cable at its host."""
BLOCK = IPv4Network("100.126.0.0/24")
"""Addresses of the hosts; the first one is the machine's own. Nothing that the machine reaches has one of them."""
TABLE = "skep_up"
RUN = Path("/run")
PROC = Path("/proc")
FORWARDING = PROC / "sys/net/ipv4/ip_forward"
MODULE = "br_netfilter"
_PROBE = (
    ("link", "add", "name", "probe1", "type", "vxlan", "id", "1", "local", "127.0.0.1", "dstport", "4789"),
    ("link", "add", "name", "probe2", "type", "veth", "peer", "name", "probe3"),
)

Links = Mapping[str, Mapping[str, Any]]


class HostSpace(msgspec.Struct, frozen=True):
    """Where one host is."""

    host: str
    address: IPv4Address
    """By which the machine and the other hosts reach it."""

    @property
    def name(self) -> str:
        """Of its network namespace."""
        return f"skep-{self.host}"

    @property
    def inside(self) -> str:
        """How the names of the network namespaces begin that the host has itself."""
        return f"{self.name}."

    @property
    def file(self) -> Path:
        """Of its network namespace."""
        return SPACES / self.name


class HostSpaces:
    """Those of one cloud: a machine has the hosts of one cloud at most. Everything here blocks."""

    def __init__(self, state: Path, floating: IPv4Network) -> None:
        """`state`: the cloud's directory; `floating`: the addresses that lead to guests."""
        self._tag = hashlib.sha256(str(state).encode()).hexdigest()[:8]
        self._floating = floating
        self._forwarded = RUN / f"skep-{self._tag}.ip_forward"
        """Whether the machine forwarded packets before."""

    def open(self) -> None:
        """Make what all hosts share. Raises DriverError, which says why this machine has no such hosts, and OSError."""
        if not programs.FILTERS.exists():
            programs.run(("modprobe", MODULE))
        lacks = programs.missing()
        if lacks:
            raise DriverError("NetworksUnavailable", "; ".join(lacks))
        links = _links()
        if links.get(BRIDGE, {}).get("ifalias", self._tag) != self._tag:
            raise DriverError("NetworksUnavailable", f"another cloud of this machine has the bridge {BRIDGE}")
        probe = "".join(f"{' '.join(one)}\n" for one in _PROBE)
        programs.run(("unshare", "--net", "ip", "-batch", "-"), probe)
        programs.ip(list(self._bridge(links)))
        programs.nft(self._rules())
        if not self._forwarded.exists():
            self._forwarded.write_text(FORWARDING.read_text(encoding="ascii"), encoding="ascii")
        FORWARDING.write_text("1", encoding="ascii")

    def add(self, host: str) -> HostSpace:
        """Make the namespace of a host, unless it is there. Raises DriverError, OSError."""
        links = _links()
        numbers = _numbers(links)
        free = (one for one in range(2, BLOCK.num_addresses - 1) if one not in numbers.values())
        number = numbers.get(host) or next(free, None)
        if number is None:
            raise DriverError("NetworksUnavailable", f"{len(numbers)} hosts are the most")
        space = HostSpace(host, BLOCK[number])
        ensure_space(space.name)
        cable = f"{BRIDGE}{number}"
        inner = _links(space.name)
        commands: list[tuple[str, ...]] = []
        if OUTER not in inner:
            commands += [("link", "delete", "dev", cable)] if cable in links else []
            commands.append(("link", "add", "name", cable, "type", "veth", "peer", "name", OUTER, "netns", space.name))
        commands += [
            ("link", "set", "dev", cable, "alias", host),
            ("link", "set", "dev", cable, "addrgenmode", "none"),
            ("link", "set", "dev", cable, "master", BRIDGE, "up"),
        ]
        programs.ip(commands)
        outwards = (
            ("link", "set", "dev", "lo", "up"),
            ("address", "replace", f"{space.address}/{BLOCK.prefixlen}", "dev", OUTER),
            ("link", "set", "dev", OUTER, "up"),
            ("route", "replace", str(self._floating), "dev", OUTER),
            ("route", "replace", "default", "via", str(BLOCK[1])),
        )
        programs.ip(outwards, space.name)
        return space

    def close(self, leases: Callable[[str], Path]) -> tuple[str, ...]:
        """Remove the hosts in which no guest runs, and what all share with the last; return the others.

        `leases`: where a host has the files of its dnsmasq. Raises DriverError, OSError.
        """
        links = _links()
        if links.get(BRIDGE, {}).get("ifalias") != self._tag:
            return ()
        kept = []
        for host, number in _numbers(links).items():
            space = HostSpace(host, BLOCK[number])
            if space.file.exists() and _is_used(space.file):
                kept.append(host)
                continue
            if leases(host).exists():
                dnsmasq.make_so({}, leases(host))
            there = [str(one["name"]) for one in programs.look(("netns", "list"))]
            mine = [name for name in there if name == space.name or name.startswith(space.inside)]
            programs.ip([("link", "delete", "dev", f"{BRIDGE}{number}")])
            programs.ip([("netns", "delete", name) for name in mine])
        if not kept:
            programs.nft(f"table inet {TABLE}\ndelete table inet {TABLE}\n")
            if self._forwarded.exists():
                FORWARDING.write_text(self._forwarded.read_text(encoding="ascii"), encoding="ascii")
                self._forwarded.unlink()
            programs.ip([("link", "delete", "dev", BRIDGE)])
        return tuple(kept)

    def _bridge(self, links: Links) -> Iterator[tuple[str, ...]]:
        if BRIDGE not in links:
            yield ("link", "add", "name", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        yield ("link", "set", "dev", BRIDGE, "alias", self._tag)
        yield ("link", "set", "dev", BRIDGE, "addrgenmode", "none")
        yield ("link", "set", "dev", BRIDGE, "up")
        for block in (BLOCK, self._floating):
            yield ("address", "replace", f"{block[1]}/{block.prefixlen}", "dev", BRIDGE)

    def _rules(self) -> str:
        """Return the rules of the machine: hosts and guests reach what is behind it, and nothing of the machine."""
        table = NftTable("inet", TABLE)
        table.chain(
            "input",
            (f'iifname "{BRIDGE}" ct state established,related accept', f'iifname "{BRIDGE}" drop'),
            hook="filter hook input priority -10",
        )
        table.chain(
            "forward",
            (
                f'iifname "{BRIDGE}" accept',
                f'oifname "{BRIDGE}" ct state established,related accept',
                f'oifname "{BRIDGE}" drop',
            ),
            hook="filter hook forward priority -10",
        )
        table.chain(
            "postrouting",
            [f'ip saddr {{ {BLOCK}, {self._floating} }} oifname != "{BRIDGE}" masquerade'],
            hook="nat hook postrouting priority srcnat",
        )
        return table.text()


def _links(space: str | None = None) -> dict[str, dict[str, Any]]:
    return {str(one["ifname"]): one for one in programs.look(("-details", "link", "show"), space)}


def _numbers(links: Links) -> dict[str, int]:
    """Return the numbers of hosts, as their cables say."""
    cables = {name.removeprefix(BRIDGE): link for name, link in links.items() if name.startswith(BRIDGE)}
    return {str(link["ifalias"]): int(number) for number, link in cables.items() if number and "ifalias" in link}


def _is_used(space: Path) -> bool:
    """Tell whether a process is in a network namespace."""
    mine = space.stat()
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                one = (entry / "ns/net").stat()
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue  # it has ended, or has more rights than any process of ours
            if (one.st_dev, one.st_ino) == (mine.st_dev, mine.st_ino):
                return True
    return False
