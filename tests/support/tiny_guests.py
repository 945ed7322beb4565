"""The tiny guest for tests: its image, made once in a clone, and how to get into it."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import hashlib
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import skep.compute.drivers.libvirt as driver
from skep.contracts.eventually import eventually
from skep.domain.errors import Misconfigured

KEPT = Path(__file__).parents[2] / ".skep-tools" / "tiny-guests"
PARTS = tuple(pytest.mark.needs_part(part) for part in ("apt-get", "dpkg-deb", "mke2fs", "ssh", "ssh-keygen"))
SSH_SECONDS = 20


@functools.cache
def tiny_image() -> Path:
    """Return the image: that of an earlier run, unless what makes it has changed. Skips where it cannot be made."""
    from skep.compute.drivers.libvirt.tiny.image import make  # it imports what may not be installed

    sources = sorted(path for path in (Path(driver.__path__[0]) / "tiny").iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    image = KEPT / f"{digest}.qcow2"
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.exists():
            try:
                make(image)
            except Misconfigured as error:
                if os.environ.get("CI") == "true":
                    raise
                pytest.skip(f"the tiny guest cannot be made: {error}")
    return image


def write_tiny_kernel(path: Path) -> None:
    """Write the kernel of the image into a file."""
    import pycdlib  # it may not be installed

    raw = path.with_name(f"{path.name}.raw")
    subprocess.run(["qemu-img", "convert", "-O", "raw", tiny_image(), raw], check=True)
    disk = pycdlib.PyCdlib()
    disk.open(str(raw))
    disk.get_file_from_iso(str(path), iso_path="/VMLINUZ.;1")
    disk.close()
    raw.unlink()


def ssh_command(key: Path, port: int, *command: str) -> list[str]:
    """Return the command of a user who has the key, and does not know the guest."""
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
    words = [word for option in options for word in ("-o", option)]
    return [
        "ssh",
        *words,
        "-o",
        f"ConnectTimeout={SSH_SECONDS}",
        "-i",
        str(key),
        "-p",
        str(port),
        "root@127.0.0.1",
        *command,
    ]


def make_key(path: Path) -> str:
    """Make a pair of keys without a passphrase; return the public one."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path], check=True)
    return path.with_suffix(".pub").read_text().strip()


async def run(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a command; return its status and what it said."""
    process = await asyncio.create_subprocess_exec(
        *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace")


async def inside(key: Path, port: int, command: str) -> str:
    """Run a command in a guest, once it lets us in; return what it said."""
    said = ""

    async def let_in() -> bool:
        nonlocal said
        status, said = await run(ssh_command(key, port, f"{command}; echo status=$?"))
        return status == 0

    try:
        await eventually(let_in, f"the guest runs {shlex.quote(command)}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {said}") from error
    return said
