"""Ports for listeners and for processes that are about to be started."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
from pathlib import Path

from skep.config.sections import LOOPBACK

LOWEST = 20_000
"""Below are the ports that services are known by."""
HIGHEST = 32_767
"""Above Linux takes ports for connections, unless it is told otherwise."""
TRIES = 1000


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of an address: a colon makes it IPv6."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def free_ports(host: str, count: int) -> list[int]:
    """Return ports that nobody listens on now, each another.

    The kernel gives none of them to a connection or to somebody who asks for any port, so that they are still free a
    moment later, and when a server comes back. Raises OSError when there are none.
    """
    highest = _highest()
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(TRIES):
            if len(ports) == count:
                return ports
            probe = held.enter_context(socket.socket(family_of(host), socket.SOCK_STREAM))
            try:
                probe.bind((host, LOWEST + secrets.randbelow(highest - LOWEST)))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                ports.append(int(probe.getsockname()[1]))
        raise OSError(errno.EADDRINUSE, f"no {count} ports of {host} between {LOWEST} and {highest} are free")


def free_port() -> int:
    """Return one such port of loopback."""
    return free_ports(LOOPBACK, 1)[0]


def _highest() -> int:
    """Return the port below which the kernel chooses none; `HIGHEST` where it does not say, or leaves no room."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return HIGHEST
    return first if first >= LOWEST + TRIES else HIGHEST
