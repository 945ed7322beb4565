"""Whether KVM is of use, found out by booting a kernel with it: a `/dev/kvm` that opens, and even firmware that runs,
say nothing.

The kernel has no root file system, so that its last words are that it finds none. One that says them in time has used
memory, interrupts, clocks and devices as a guest does.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from skep.compute.drivers.libvirt.commands import PATH, Owner
from skep.compute.whole_file import write_whole
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured

log = logging.getLogger(__name__)

KVM = Path("/dev/kvm")
BOOT = Path("/boot")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KERNELS = "vmlinuz*"
FOUND = "kvm.json"
"""Below the directory of a host: what was found in this boot of it."""
SECONDS = 30.0
"""A kernel says its last words within three seconds with KVM that is of use, and in software within ten."""
WORDS = b"Unable to mount root fs"
PROBE = "probe"
"""Below the directory while a kernel is tried: what QEMU's user reads."""
MOST = 1 << 16
"""Bytes that are kept of what a kernel says."""
CPUS: Mapping[str, str] = {"kvm": "host", "tcg": "max"}

Found = Literal["kvm", "qemu"]


class Finding(msgspec.Struct, frozen=True):
    """The content of the file."""

    boot: str
    """Of the host, as its kernel names it."""
    virt_type: Found


_decoder = json_decoder(Finding)


def virt_type_of(directory: Path, kernel: str, owner: Owner | None) -> Found:
    """Return what guests of this host run with: what was found since it booted, or is found now.

    `kernel`: the path of the one that is tried; empty: the newest of the host's own. Raises Misconfigured where there
    is none, OSError.
    """
    boot = BOOT_ID.read_text().strip()
    if not KVM.exists():
        return "qemu"
    known = _read(directory / FOUND)
    if known is None or known.boot != boot:
        useful = boots(_kernel(kernel), directory / PROBE, owner, seconds=SECONDS)
        known = Finding(boot, "kvm" if useful else "qemu")
        log.warning("KVM was tried with a kernel: guests run with %s until the host boots anew", known.virt_type)
        write_whole(directory / FOUND, msgspec.json.encode(known))
    return known.virt_type


def boots(
    kernel: Path,
    directory: Path,
    owner: Owner | None,
    *,
    seconds: float,
    accelerator: Literal["kvm", "tcg"] = "kvm",
) -> bool:
    """Tell whether a kernel boots in time, as QEMU's user; `directory` is there meanwhile. Raises OSError."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(mode=0o700)
    try:
        tried = directory / "kernel"
        shutil.copyfile(kernel, tried)
        if owner is not None:
            for path in (tried, directory):
                os.chown(path, owner.uid, owner.gid)
        return _says(_command(accelerator), directory, owner, seconds)
    finally:
        shutil.rmtree(directory)


def _command(accelerator: str) -> tuple[str, ...]:
    machine = ("-machine", f"pc,accel={accelerator}", "-cpu", CPUS[accelerator], "-m", "256", "-no-reboot")
    outside = ("-nodefaults", "-no-user-config", "-sandbox", "on", "-display", "none", "-serial", "stdio")
    booted = ("-kernel", "kernel", "-append", "console=ttyS0 panic=-1")
    return ("qemu-system-x86_64", *machine, *outside, *booted)


def _says(command: tuple[str, ...], directory: Path, owner: Owner | None, seconds: float) -> bool:
    """Run QEMU until its guest says the words, it ends or the time is over."""
    ends = time.monotonic() + seconds
    said = b""
    with subprocess.Popen(  # noqa: S603 - words of this module
        command,
        cwd=directory,
        env={"PATH": PATH, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        user=None if owner is None else owner.uid,
        group=None if owner is None else owner.gid,
        extra_groups=None if owner is None else (),
    ) as process:
        assert process.stdout is not None
        try:
            while WORDS not in said and (left := ends - time.monotonic()) > 0:
                if not select.select([process.stdout], [], [], left)[0]:
                    break
                more = os.read(process.stdout.fileno(), MOST)
                if not more:
                    break
                said = (said + more)[-MOST:]
        finally:
            process.kill()
    if WORDS not in said:
        log.info("a kernel does not boot: %s", said[-500:].decode(errors="replace"))
    return WORDS in said


def _kernel(named: str) -> Path:
    if named:
        found = [Path(named)] if Path(named).is_file() else []
    else:
        found = [path for path in BOOT.glob(KERNELS) if path.is_file()]
    if not found:
        where = named or BOOT / KERNELS
        raise Misconfigured(
            f"compute.driver_options.virt_type: auto boots a kernel to try KVM, and there is none at {where}: name one "
            "by probe_kernel, or set kvm or qemu"
        )
    return max(found, key=lambda path: path.stat().st_mtime)


def _read(path: Path) -> Finding | None:
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        log.warning("%s cannot be read, KVM is tried anew: %s", path, error)
        return None
