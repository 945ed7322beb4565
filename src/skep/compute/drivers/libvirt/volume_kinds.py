"""The kinds of volumes that a host connects, and how: a row for each kind of which the volume service tells.

QEMU itself reaches some; for the others the library os-brick, the volume service's own, makes a file or a device of the
host. What the host cannot connect is refused by name before anything is done.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.buses import DiskBus
from skep.compute.drivers.libvirt.volume_disks import BlockSource, FileSource, RbdSource, Source, VolumeDisk
from skep.domain.volumes import ConnectedVolume

NOT_SUPPORTED = "VolumeNotSupported"
NOT_REACHED = "VolumeUnavailable"
"""The error of a volume that cannot be connected now."""

FORMATS = frozenset({"raw", "qcow2"})
LIMITS = frozenset(
    f"{what}_{unit}_sec{peak}"
    for what in ("total", "read", "write")
    for unit in ("bytes", "iops")
    for peak in ("", "_max", "_max_length")
) | {"size_iops_sec"}
"""Keys of the `qos_specs` of a volume that QEMU keeps; others are for the storage."""


class Bricks(Protocol):
    """Makes devices and files of the host out of volumes that QEMU does not reach itself. All of it blocks."""

    def check(self, protocol: str) -> None:
        """Raise DriverError where this host cannot connect by this protocol."""

    def connect(self, protocol: str, data: Mapping[str, Any]) -> str:
        """Connect a volume, unless it is; return the path of its file or device. Raises DriverError."""

    def disconnect(self, protocol: str, data: Mapping[str, Any], path: str) -> None:
        """Let go of a volume; one that is not connected stays so. Raises DriverError."""

    def extend(self, protocol: str, data: Mapping[str, Any]) -> None:
        """Have the host see a volume as large as it is. Raises DriverError."""


BRICKS: Mapping[str, str] = {"iscsi": "ISCSI", "nfs": "NFS"}
"""Kinds of connections -> the protocols of os-brick for them."""


class VolumeKinds:
    """What one host connects."""

    def __init__(self, bricks: Bricks) -> None:
        self._bricks = bricks

    def check(self, volume: ConnectedVolume) -> None:
        """Raise DriverError for a volume that this host does not connect."""
        protocol = BRICKS.get(volume.driver)
        if protocol is None and volume.driver not in _READERS:
            known = ", ".join(sorted({*BRICKS, *_READERS}))
            raise _refused(volume, f"its connection is of the kind {volume.driver}; this host connects {known}")
        if volume.data.get("encrypted"):
            raise DriverError("VolumeEncryptionNotSupported", f"volume {volume.volume_id}: it is encrypted")
        if volume.data.get("format", "raw") not in FORMATS:
            raise _refused(volume, f"its format is {volume.data['format']}")
        if volume.shared and volume.data.get("format", "raw") != "raw":
            raise _refused(volume, "several servers may have it, and its format is not raw")
        if protocol is None:
            _READERS[volume.driver](volume)
        else:
            self._bricks.check(protocol)

    def connect(self, volume: ConnectedVolume) -> Source:
        """Connect a volume to this host; return where QEMU finds it. Raises DriverError."""
        protocol = BRICKS.get(volume.driver)
        if protocol is None:
            return _READERS[volume.driver](volume)
        return _on_host(volume, self._bricks.connect(protocol, volume.data))

    def disconnect(self, volume: ConnectedVolume, source: Source | None) -> None:
        """Let go of a volume; `source` is what `connect` returned, None where that is not known. Raises DriverError."""
        protocol = BRICKS.get(volume.driver)
        if protocol is not None:
            path = source.path if isinstance(source, FileSource | BlockSource) else ""
            self._bricks.disconnect(protocol, volume.data, path)

    def extend(self, volume: ConnectedVolume) -> None:
        """Have the host see a volume as large as it is. Raises DriverError."""
        protocol = BRICKS.get(volume.driver)
        if protocol is not None:
            self._bricks.extend(protocol, volume.data)


def disk_of(volume: ConnectedVolume, source: Source, bus: DiskBus) -> VolumeDisk:
    """Return a volume as a guest has it."""
    return VolumeDisk(
        volume_id=volume.volume_id,
        source=source,
        format=volume.data.get("format", "raw"),
        bus=bus,
        direct=not isinstance(source, FileSource) or _takes_direct(source.path),
        discard=bool(volume.data.get("discard")),
        readonly=volume.data.get("access_mode") == "ro",
        shareable=volume.shared,
        limits=dict(_limits(volume)),
    )


FILES: Mapping[str, str] = {"nfs": "name", "local": "device_path"}
"""Kinds of volumes that may be files -> what of their connection names the file."""


def in_file(volume: ConnectedVolume, path: str) -> ConnectedVolume:
    """Return a volume whose guest writes to another file beside its own, qcow2, as the volume service will tell."""
    key = FILES[volume.driver]
    named = str(Path(_text(volume, key)).with_name(Path(path).name))
    return msgspec.structs.replace(volume, data={**volume.data, key: named, "format": "qcow2"})


def _local(volume: ConnectedVolume) -> Source:
    """Return a file or a device that is on this host."""
    return _on_host(volume, _text(volume, "device_path"))


def _rbd(volume: ConnectedVolume) -> Source:
    hosts, ports = volume.data.get("hosts") or [], volume.data.get("ports") or []
    if not hosts or len(hosts) != len(ports):
        raise _refused(volume, "its connection names no monitors with their ports")
    user = _text(volume, "auth_username") if volume.data.get("auth_enabled") else ""
    try:
        secret = str(uuid.UUID(_text(volume, "secret_uuid"))) if user else ""
    except ValueError:
        raise _refused(volume, "the secret_uuid of its connection is no UUID") from None
    pairs = tuple((str(host), str(port)) for host, port in zip(hosts, ports, strict=True))
    return RbdSource(name=_text(volume, "name"), hosts=pairs, user=user, secret=secret)


_READERS: Mapping[str, Callable[[ConnectedVolume], Source]] = {"local": _local, "rbd": _rbd}
"""Kinds that need nothing of the host."""


def _on_host(volume: ConnectedVolume, path: str) -> Source:
    """Return what is at a path. Raises DriverError."""
    if not path.startswith("/"):
        raise _refused(volume, "the path of its connection is not absolute")
    found = Path(path)
    try:
        if found.is_block_device():
            return BlockSource(path=path)
        if found.is_file():
            return FileSource(path=path)
    except OSError as error:
        raise DriverError(NOT_REACHED, f"volume {volume.volume_id}: {error}") from error
    raise DriverError(NOT_REACHED, f"volume {volume.volume_id}: there is no file and no device {path}")


def _takes_direct(path: str) -> bool:
    """Tell whether a file can be used past the host's cache: not all file systems have that."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _limits(volume: ConnectedVolume) -> Iterator[tuple[str, int]]:
    specs = volume.data.get("qos_specs") or {}
    for name in sorted(LIMITS & specs.keys()):
        value = str(specs[name])
        if not (value.isascii() and value.isdecimal()):
            raise _refused(volume, f"qos_specs.{name}: {value[:80]} is no whole number")
        yield name, int(value)


def _text(volume: ConnectedVolume, key: str) -> str:
    value = volume.data.get(key)
    if not isinstance(value, str) or not value:
        raise _refused(volume, f"its connection has no {key}")
    return value


def _refused(volume: ConnectedVolume, why: str) -> DriverError:
    return DriverError(NOT_SUPPORTED, f"volume {volume.volume_id}: {why}")
