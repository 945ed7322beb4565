"""Whether guests of a plain user's `skep up` have a way to the outside: where this machine lets slirp4netns lead."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.way_out.emulator import SLIRP
from skep.compute.drivers.libvirt.way_out.ways import make_way_out
from skep.config.sections import Config
from skep.processes.directory import StateDirectory
from skep.processes.supervisor.hosts_apart import CHOSEN
from skep.processes.supervisor.real_hosts import has_real_hosts

SETTLED = frozenset({*CHOSEN, "uri", "way_out"})
"""Options with which a user has chosen already what guests reach."""


def find_way_out(config: Config, directory: StateDirectory) -> tuple[Mapping[str, object], str]:
    """Return what the drivers of hosts are told of it, and what is said of it. Blocks: it is found out by trying."""
    options = config.compute.driver_options
    if not has_real_hosts(config) or os.geteuid() == 0 or not SETTLED.isdisjoint(options):
        return {}, ""
    try:
        with tempfile.TemporaryDirectory(prefix="way-out-", dir=directory.root) as tried:
            make_way_out(Path(tried), (), None)
    except (DriverError, OSError) as error:
        return {}, f"new guests reach nothing outside of their QEMU: {error}"
    return {"way_out": SLIRP}, "new guests reach the outside by slirp4netns, and nothing of this machine"
