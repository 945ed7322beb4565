"""What a process and all its descendants cost, as the kernel counts it, by what they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_SERVERS = {"postgres": "postgresql", "nats-server": "nats"}


PROGRAMS = "programs"
"""A kind of its own: what one role started and waited for."""


def cpu_by_kind(root: int, *, programs_of: str | None = None) -> dict[str, float]:
    """Return user and system seconds so far, by role or server, of the living and of their ended children.

    The ended children of the role `programs_of` are the kind `programs` instead.
    """
    spent: dict[str, float] = {}
    for pid in _tree(root):
        fields = _stat(pid)
        if fields:
            kind = _kind(pid)
            apart = PROGRAMS if kind == programs_of else kind
            for name, two in ((kind, fields[11:13]), (apart, fields[13:15])):
                spent[name] = spent.get(name, 0.0) + sum(map(int, two)) / _TICKS
    return spent


def cpu_of_naming(words: frozenset[str]) -> float:
    """Return the seconds so far of all living processes of the machine whose command line has one of these words."""
    found = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    of_these = (_stat(pid) for pid in found if not words.isdisjoint(_command(pid)))
    return sum(sum(map(int, fields[11:13])) / _TICKS for fields in of_these if fields)


def peak_rss_by_kind(root: int) -> dict[str, float]:
    """Return the largest resident memory (MiB, the peak) that one process of each kind had."""
    peaks: dict[str, float] = {}
    for pid in _tree(root):
        kind, peak = _kind(pid), status_mib(pid, "VmHWM")
        peaks[kind] = round(max(peaks.get(kind, 0.0), peak), 1)
    return peaks


def status_mib(pid: int, key: str) -> float:
    """Return `VmRSS` (now) or `VmHWM` (the peak) of one process in MiB; 0 when it has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:")), 0.0)


def _tree(root: int) -> Iterator[int]:
    """Give the process and its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])


def _stat(pid: int) -> list[str]:
    """Return the fields from the third on (the state): after the name, which may hold anything."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _command(pid: int) -> list[str]:
    """Return the words of a command line; none of a process that has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _kind(pid: int) -> str:
    """Name a process by its role, or by the server that it is part of."""
    words = _command(pid)
    try:
        name = (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "ended"
    if "serve" in words[:-1]:
        return words[words.index("serve") + 1]
    return _SERVERS.get(name, "supervisor" if "up" in words else name)
