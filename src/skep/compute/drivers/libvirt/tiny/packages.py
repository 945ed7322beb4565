"""Packages of Debian, fetched and unpacked into a directory; nothing of them is installed or run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from skep.domain.errors import Misconfigured

KERNEL = "linux-image-cloud-amd64"
"""Depends on the kernel for virtual machines that is newest in the release."""
PACKAGES = (
    "busybox-static",
    "dropbear-bin",
    "libcrypt1",
    "libtomcrypt1",
    "libtommath1",
    "libgmp10",
    "zlib1g",
    "libc6",
    "qemu-guest-agent",
    "libglib2.0-0",
    "libpcre2-8-0",
    "libnuma1",
    "libudev1",
    "liburing2",
    "isolinux",
    "syslinux-common",
)
"""Beside the kernel. Dropbear and the guest agent are linked with the libraries."""
SECONDS = 600
"""So long a fetch may take."""
PROGRAMS = ("apt-get", "apt-cache", "dpkg-deb", "mke2fs", "qemu-img")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def unpack(directory: Path) -> Path:
    """Fetch the packages and return the directory that they are unpacked in. Raises Misconfigured, OSError."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        raise Misconfigured(f"a tiny guest is made with {', '.join(missing)}, which this machine does not have")
    fetched, unpacked = directory / "packages", directory / "unpacked"
    fetched.mkdir()
    unpacked.mkdir()
    lists = _lists(directory)
    run(["apt-get", *lists, "--quiet", "download", _newest_kernel(lists), *PACKAGES], fetched)
    for package in sorted(fetched.glob("*.deb")):
        run(["dpkg-deb", "--extract", str(package), str(unpacked)], directory)
    return unpacked


def _lists(directory: Path) -> tuple[str, ...]:
    """Return options by which apt knows the packages: where the system has no lists, they are fetched for us alone."""
    plain = ("-o", "APT::Sandbox::User=")
    try:
        run(["apt-cache", "show", KERNEL], directory)
    except Misconfigured:
        pass
    else:
        return plain
    own = directory / "lists"
    (own / "partial").mkdir(parents=True)
    options = (*plain, "-o", f"Dir::State::Lists={own}", "-o", f"Dir::Cache={directory / 'cache'}")
    run(["apt-get", *options, "--quiet", "update"], directory)
    return options


def _newest_kernel(lists: Sequence[str]) -> str:
    said = run(["apt-cache", *lists, "depends", KERNEL], Path("/"))
    found = [word for word in said.split() if word.startswith("linux-image-")]
    named = [word for word in found if word != KERNEL]
    if not named:
        raise Misconfigured(f"the package {KERNEL} names no kernel")
    return named[0]


def run(arguments: Sequence[str], directory: Path) -> str:
    """Run a program in a directory and return what it wrote. Raises Misconfigured where it fails."""
    done = subprocess.run(  # noqa: S603 - words of this module
        arguments,
        cwd=directory,
        env={**os.environ, "PATH": PATH, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise Misconfigured(f"{arguments[0]} ended with {done.returncode}: {said}")
    return done.stdout
