"""Ports for listeners and for processes that are about to be started."""

from __future__ import annotations

import contextlib
import socket

from skep.config.sections import LOOPBACK


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of an address: a colon makes it IPv6."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def free_ports(host: str, count: int) -> list[int]:
    """Return ports that nobody listens on now, each another."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(count):
            probe = held.enter_context(socket.socket(family_of(host), socket.SOCK_STREAM))
            probe.bind((host, 0))
            ports.append(int(probe.getsockname()[1]))
        return ports


def free_port() -> int:
    """Return one such port of loopback."""
    return free_ports(LOOPBACK, 1)[0]
