"""Hosts whose guests are virtual machines: what their agents are told, and what the first server of a cloud boots."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from skep.compute.drivers.libvirt.setup import LONGEST_DIRECTORY, check_client
from skep.config.sections import Config
from skep.domain.errors import Misconfigured
from skep.processes.directory import StateDirectory
from skep.processes.seeds import IMAGE_NAME, FirstImage
from skep.processes.supervisor.servers import OPEN_TO_OTHERS

DRIVER = "libvirt"
HOSTS = 1
"""Hosts of each new cell, unless more are asked for."""
PROGRAMS = ("qemu-system-x86_64", "qemu-img")
DEFAULTS = {"virt_type": "qemu"}
"""Options of the driver where the configuration has none: in software, which works on every machine."""
OF_HOME = ".skep-guests"
"""Below the home directory of a plain user: the directories of hosts whose state directory has a long path."""
FIRST_HOST = "cell1-host1"
PIECE = 1 << 20


def has_real_hosts(config: Config) -> bool:
    """Whether guests are made by the driver `libvirt`."""
    return config.compute.driver == DRIVER


def check_machine() -> None:
    """Look whether this machine can run guests. Raises Misconfigured that says what to install."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise Misconfigured(
            f"compute.driver: libvirt needs {', '.join(missing)}, not installed here (make install-libvirt)"
        )
    check_client()


def host_settings(
    config: Config,
    directory: StateDirectory,
    host: str,
    options: Mapping[str, object] | None = None,
    *,
    metadata_url: str | None = None,
) -> tuple[tuple[str, str], ...]:
    """Return the variables of the agent of one host: each has a directory of its own, and one that has bridges asks the
    metadata service of the cloud. Raises Misconfigured.

    `options` of the driver are those that its place asks for.
    """
    options = {**(config.compute.driver_options or DEFAULTS), **(options or {})}
    if "directory" not in options:
        options = {**options, "directory": str(guests_directory(directory.root, host))}
    if metadata_url is not None and options.get("networks") == "bridge":
        secret = config.metadata.metadata_proxy_shared_secret
        options = {"metadata_url": metadata_url, "metadata_secret": secret, **options}
    return (
        ("SKEP_COMPUTE__DRIVER", DRIVER),
        ("SKEP_COMPUTE__DRIVER_OPTIONS", msgspec.json.encode(options).decode()),
    )


def guests_directory(state: Path, host: str) -> Path:
    """Return where a host has its guests: QEMU, which never runs as root, gets there, and libvirt bounds the length.

    Those of a plain user are below the state directory, or below the home directory where that path is too long.
    Raises Misconfigured where this is, too.
    """
    if os.geteuid() == 0:
        return OPEN_TO_OTHERS / _hashed(state) / host
    place, other = state / "guests" / host, Path.home() / OF_HOME / _hashed(state / host)
    found = next((one for one in (place, other) if len(os.fsencode(one)) <= LONGEST_DIRECTORY), None)
    if found is None:
        raise Misconfigured(
            f"the state directory {state} is too long for libvirt, which takes {LONGEST_DIRECTORY} bytes for {place}, "
            f"and so is {other}: choose a shorter one (SKEP_STATE__DIRECTORY)"
        )
    return found


def where_guests_are(config: Config, state: Path) -> str:
    """Return what is said of guests that are not below the state directory; nothing of others.

    Raises Misconfigured where they can be nowhere.
    """
    if not has_real_hosts(config) or "directory" in config.compute.driver_options:
        return ""
    place = guests_directory(state, FIRST_HOST)
    if place.is_relative_to(state / "guests"):
        return ""
    why = (
        "QEMU does not run as root" if os.geteuid() == 0 else "the path of the state directory is too long for libvirt"
    )
    return f"guests are in {place.parent}, since {why}"


def _hashed(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:8]


def tiny_image(file: str = "") -> FirstImage:
    """Return the image of the first server: that of the file, or else of the tiny guest, made when it is read.

    Its servers read of themselves on a disk.
    """
    said = {
        "name": IMAGE_NAME,
        "visibility": "public",
        "disk_format": "qcow2",
        "container_format": "bare",
        "img_config_drive": "mandatory",
        "hw_qemu_guest_agent": "yes",
    }
    return FirstImage(said, partial(_pieces, Path(file)) if file else _made)


async def _made() -> AsyncIterator[bytes]:
    from skep.compute.drivers.libvirt.tiny.image import make  # it imports what few machines have

    with tempfile.TemporaryDirectory(prefix="skep-tiny-") as folder:
        made = Path(folder) / "tiny.qcow2"
        await asyncio.to_thread(make, made)
        async for piece in _pieces(made):
            yield piece


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    """Yield the bytes of an image. Raises Misconfigured."""
    try:
        with path.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece
    except OSError as error:
        raise Misconfigured(f"images.first_image: {path}: {error.strerror}") from error
