"""How many files and connections the system lets this process have open."""

from __future__ import annotations

import contextlib
import resource

OTHER_FILES = 256
"""Databases, images, journals, messaging: all that is no connection of an HTTP port."""
MOST_PORTS = 3
"""HTTP ports of one process: compute, identity, images."""


def connections_within(wanted: int) -> int:
    """Return how many connections one port may have, at most `wanted`.

    The soft limit of open files is raised to the hard one first: it is low by custom, for programs of old.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return share_of(soft, wanted)


def share_of(files: int, wanted: int) -> int:
    """Return what of a limit of open files one port may use for connections, at most `wanted`, at least one."""
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, (files - OTHER_FILES) // MOST_PORTS))
