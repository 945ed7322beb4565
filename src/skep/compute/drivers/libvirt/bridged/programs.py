"""The programs `ip`, `nft` and `dnsmasq`: started without a shell, with limits of time, and read as JSON."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged.nft import NftTable
from skep.compute.drivers.libvirt.commands import PATH
from skep.domain.decoding import json_decoder

SECONDS = 30.0
"""So long a program may take."""
PACKAGES = {"ip": "iproute2", "nft": "nftables", "dnsmasq": "dnsmasq-base"}
"""Programs, and the distribution's packages that bring them."""
FILTERS = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
STATUS = Path("/proc/self/status")
NEEDED = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
"""Rights, and their bits: of links and rules, and of network namespaces."""
_WORD = re.compile(r"[A-Za-z0-9:./_-]+")
_MOST_OF_AN_ERROR = 500
_decoder = json_decoder(list[dict[str, Any]])
_decoder_of_rules = json_decoder(dict[str, list[dict[str, dict[str, Any]]]])


def missing() -> tuple[str, ...]:
    """Return what the host lacks for networks of its own, and how to get it."""
    lacks = missing_means(tuple(NEEDED), tuple(PACKAGES))
    if not FILTERS.exists():
        lacks = (*lacks, "the kernel's br_netfilter (modprobe br_netfilter)")
    if not lacks:
        lacks = tuple(_missing_lookups())
    return lacks


def _missing_lookups() -> Iterator[str]:
    """Yield the modules that routers' rules need and the kernel cannot load; nft asks it for them when it checks."""
    for family, module in (("ip", "nft_fib_ipv4"), ("ip6", "nft_fib_ipv6")):
        table = NftTable(family)
        rule = 'fib saddr oifname != { "lo" } drop'
        table.chain("checked", [rule], hook="filter hook prerouting priority -150")
        try:
            _run(["nft", "--check", "-f", "-"], table.text())
        except DriverError:
            yield f"the kernel's {module} (modprobe {module})"


def missing_means(rights: Sequence[str], programs: Sequence[str]) -> tuple[str, ...]:
    """Return which of these rights and programs the agent lacks, and how to get them."""
    lacks = []
    status = re.search(r"^CapEff:\s*([0-9a-f]+)$", STATUS.read_text(), re.MULTILINE)
    bits = int(status[1], 16) if status else 0
    absent = [name for name in rights if not bits >> NEEDED[name] & 1]
    if absent:
        lacks.append(f"the right {' and '.join(absent)} (run the agent as root)")
    packages = [PACKAGES[program] for program in programs if shutil.which(program, path=PATH) is None]
    if packages:
        lacks.append(f"{', '.join(packages)} (apt-get install {' '.join(packages)})")
    return tuple(lacks)


def ip(commands: Sequence[Sequence[str]], space: str | None = None) -> None:
    """Have `ip` do several things, in order, in a namespace. Raises DriverError at the first that it cannot."""
    if not commands:
        return
    for words in commands:
        for word in words:
            if not _WORD.fullmatch(word):
                raise DriverError("NetworksUnavailable", f"ip: {word!r} is no word")
    _run([*_ip(space), "-batch", "-"], "".join(f"{' '.join(words)}\n" for words in commands))


def look(words: Sequence[str], space: str | None = None) -> list[dict[str, Any]]:
    """Return what `ip` says of links, addresses or routes. Raises DriverError."""
    said = _run([*_ip(space), "-json", *words])
    return _read(said)


def forwarding_entries(link: str) -> list[dict[str, Any]]:
    """Return what is known to be behind a link. Raises DriverError."""
    said = _run(["bridge", "-json", "fdb", "show", "dev", link])
    return _read(said)


def bridge(commands: Sequence[Sequence[str]]) -> None:
    """Have `bridge` do several things, in order. Raises DriverError."""
    if commands:
        _run(["bridge", "-batch", "-"], "".join(f"{' '.join(words)}\n" for words in commands))


def run(words: Sequence[str], told: str = "") -> None:
    """Run another program of the host. Raises DriverError where it fails."""
    _run(words, told)


def nft(ruleset: str, space: str | None = None) -> None:
    """Apply rules, all or none. Raises DriverError."""
    _run([*_within(space), "nft", "-f", "-"], ruleset)


def tables(name: str) -> dict[str, int]:
    """Return the families in which the host has a table of nft with this name, and its handle in each.

    A table that is made anew has another handle. Raises DriverError.
    """
    said = _decoder_of_rules.decode(_run(["nft", "--json", "list", "tables"]))
    found = [one["table"] for one in said["nftables"] if "table" in one]
    return {one["family"]: one["handle"] for one in found if one["name"] == name}


def set_kernel(values: Mapping[str, str], space: str | None = None) -> None:
    """Set values below `/proc/sys/net`. Raises DriverError."""
    for value in sorted(set(values.values())):
        files = [f"/proc/sys/net/{name}" for name, wanted in values.items() if wanted == value]
        _run([*_within(space), "tee", *files], value)


def start_dnsmasq(space: str, file: Path) -> None:
    """Start a dnsmasq in a namespace; it goes on by itself. Raises DriverError where its configuration is refused."""
    _run([*_within(space), "dnsmasq", f"--conf-file={file}"])


def _read(said: bytes) -> list[dict[str, Any]]:
    # Of nothing some programs say nothing, and not an empty list.
    return _decoder.decode(said) if said.strip() else []


def _ip(space: str | None) -> list[str]:
    return ["ip", *([] if space is None else ["-netns", space])]


def _within(space: str | None) -> list[str]:
    return [] if space is None else ["ip", "netns", "exec", space]


def _run(arguments: Sequence[str], told: str = "") -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - programs and options are words of this package
            arguments,
            input=told.encode(),
            env={"PATH": PATH, "LC_ALL": "C"},
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DriverError("NetworksUnavailable", f"{arguments[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-_MOST_OF_AN_ERROR:]
        raise DriverError("NetworksUnavailable", f"{' '.join(arguments[:6])} ended with {done.returncode}: {said}")
    return done.stdout
