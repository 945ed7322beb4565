"""Hosts with the driver `libvirt`: real QEMU, in software, under a libvirt inside the test's process."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skep.compute.drivers.base import Driver
from skep.compute.drivers.registry import DriverSetup, make_driver
from skep.config.compute import ComputeSettings
from skep.domain.clock import Clock

PARTS = tuple(
    pytest.mark.needs_part(part)
    for part in (
        "qemu-system-x86_64",
        "qemu-img",
        f"{sysconfig.get_path('platlib')}/libvirt.py",
        f"{sysconfig.get_path('platlib')}/pycdlib/__init__.py",
    )
)
"""What tests with guests need: `make install-libvirt`."""

OPTIONS = {"virt_type": "qemu", "shutdown_seconds": 0, "cache_seconds": 0}


@functools.cache
def host_directory() -> Path:
    """Return the directory of the one host of this process, which has one root of an embedded libvirt at most.

    QEMU's user can reach it, and its path is short: sockets are below it.
    """
    path = Path(tempfile.mkdtemp(prefix="skep-", dir="/tmp"))  # pytest's own directories are closed to other users
    path.chmod(0o711)
    atexit.register(shutil.rmtree, path)
    return path


@contextmanager
def other_directory() -> Iterator[Path]:
    """Make the directory of a host whose agent is another process than this one."""
    path = Path(tempfile.mkdtemp(prefix="skep-", dir="/tmp"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def libvirt_driver(directory: Path, options: Mapping[str, Any] | None = None, host: str = "host-1") -> Driver:
    """Return the driver of a host with that directory."""
    section = ComputeSettings(driver="libvirt", driver_options={**OPTIONS, **(options or {})})
    return make_driver(DriverSetup(host=host, directory=directory, clock=Clock(), section=section, has_images=True))


def connection_in(directory: Path) -> Any:
    """Return the connection of this process to the libvirt of a host with that directory. It is not to be closed.

    Each further one would load libvirt's drivers again, which it bears a few times only.
    """
    from skep.compute.drivers.libvirt.connection import embedded_connection  # it imports what may not be installed

    return embedded_connection(f"qemu:///embed?root={directory}/libvirt")


def raw_disk(directory: Path, path: Path) -> bytes:
    """Return the bytes of a disk, as its guest sees them; the guest may run."""
    out = directory / "looked-at"
    subprocess.run(["qemu-img", "convert", "-U", "-f", "qcow2", "-O", "raw", path, out], check=True)
    try:
        return out.read_bytes()
    finally:
        out.unlink()


def is_root() -> bool:
    """Tell whether QEMU runs as another user than the test."""
    return os.geteuid() == 0
