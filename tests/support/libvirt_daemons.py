"""Two hosts on one machine, each with a libvirtd of its own: own sockets, own state, loopback only."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.compute.drivers.base import Driver
from skep.compute.drivers.registry import DriverSetup, make_driver
from skep.processes import hosts
from skep_lab.libvirt_daemons import LibvirtDaemon, make_passable, on_loopback
from tests.support.libvirt_hosts import OPTIONS, PARTS, is_root, libvirt_driver

DAEMON_PARTS = (*PARTS, *(pytest.mark.needs_part(part) for part in ("libvirtd", *(("unshare",) if is_root() else ()))))
"""What tests with daemons need: `make install-libvirt`."""
HOSTS = ("cell1-host1", "cell1-host2")
LOWEST, PORTS, PAIRS = 61_000, 40, 56
"""Of migrations: the first port, ports of each daemon, and pairs of daemons that may have others. libvirt looks for one
that is free, and QEMU takes it later: daemons of tests beside this one would look in the same. Connections of Linux
have lower ports."""


@contextmanager
def two_daemons(*certificates: Path) -> Iterator[tuple[LibvirtDaemon, LibvirtDaemon]]:
    """Run two of them, each with its certificates if there are any; what QEMU can do is asked once."""
    with tempfile.TemporaryDirectory(prefix="skep-", dir="/tmp") as name, ExitStack() as running:
        root = Path(name)
        root.chmod(0o711)
        made: list[LibvirtDaemon] = []
        first = LOWEST + 2 * PORTS * secrets.randbelow(PAIRS)
        for number in range(2):
            home = root / f"h{number}"
            make_passable(home)
            ports = range(first + number * PORTS, first + (number + 1) * PORTS)
            daemon = LibvirtDaemon(home, ports, certificates[number] if certificates else None)
            if made:
                shutil.copytree(made[0].root / "cache", home / "cache", dirs_exist_ok=True)
            daemon.start()
            running.callback(daemon.stop)
            made.append(daemon)
        yield made[0], made[1]


@contextmanager
def two_hosts(monkeypatch: pytest.MonkeyPatch, options: Mapping[str, Any]) -> Iterator[dict[str, Path]]:
    """Have the two hosts of a cloud of this process each use a daemon of its own; give the directories of their guests.

    Each has the options of its own, as an agent that is a process has them.
    """
    with two_daemons() as daemons:
        directories = {host: daemon.root / "own" for host, daemon in zip(HOSTS, daemons, strict=True)}
        uris = {host: daemon.uri for host, daemon in zip(HOSTS, daemons, strict=True)}

        def make_own(setup: DriverSetup) -> Driver:
            own: dict[str, Any] = {**OPTIONS, **on_loopback(uris[setup.host]), **options}
            given = {**own, "directory": str(directories[setup.host])}
            section = msgspec.structs.replace(setup.section, driver="libvirt", driver_options=given)
            return make_driver(dataclasses.replace(setup, section=section))

        monkeypatch.setattr(hosts, "make_driver", make_own)
        yield directories


def daemon_driver(daemon: LibvirtDaemon, directory: Path, options: Mapping[str, Any] | None = None) -> Driver:
    """Return the driver of a host with this daemon, whose guests are in this directory."""
    return libvirt_driver(directory, {**daemon.options, **(options or {})})
