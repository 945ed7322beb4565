"""The library os-brick: makes devices and files of the host out of volumes on iSCSI and NFS.

It runs inside the agent, with the agent's own rights, so that there is no helper that raises them: such volumes need an
agent that is root. The library is imported when the first of them is connected.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.volume_kinds import NOT_REACHED, NOT_SUPPORTED
from skep.domain.volumes import initiator_of

LIBRARY = "os_brick"
PROGRAMS: Mapping[str, str] = {"ISCSI": "iscsiadm", "NFS": "mount.nfs"}
"""Protocols -> the program of the host that each needs."""
INITIATOR = Path("/etc/iscsi/initiatorname.iscsi")
"""Where a host has the name by which iSCSI knows it."""
EXTENDED = frozenset({"ISCSI"})
"""Protocols by which the host has to be told that a volume has grown: a file is as large as it is."""


class OsBricks:
    """A `Bricks` of one host."""

    def __init__(self, host: str, mounts: Path, *, library: Any = None, initiator: Path = INITIATOR) -> None:
        """`mounts`: the directory below which NFS is mounted. `library` stands for os-brick where it is given."""
        self._host = host
        self._mounts = mounts
        self._library = library
        self._initiator = initiator
        self._importing = threading.Lock()

    def check(self, protocol: str) -> None:
        """Raise DriverError for what this host lacks."""
        if self._library is None and importlib.util.find_spec(LIBRARY) is None:
            raise _refused(protocol, "the package os-brick is not installed: the extra skep[volumes]")
        if os.geteuid() != 0:
            raise _refused(protocol, "the agent is not root")
        if shutil.which(PROGRAMS[protocol]) is None:
            raise _refused(protocol, f"the host has no program {PROGRAMS[protocol]}")
        if protocol == "ISCSI":
            self._check_initiator()

    def connect(self, protocol: str, data: Mapping[str, Any]) -> str:
        """Have os-brick connect a volume."""
        connector = self._connector(protocol, data)
        try:
            return str(connector.connect_volume(dict(data))["path"])
        except Exception as error:  # the library raises errors of many others
            raise DriverError(NOT_REACHED, f"os-brick: {type(error).__name__}: {error}") from error

    def disconnect(self, protocol: str, data: Mapping[str, Any], path: str) -> None:
        """Have os-brick let go of a volume. One that may not be connected whole is let go of by force."""
        connector = self._connector(protocol, data)
        is_whole = bool(path)
        try:
            connector.disconnect_volume(
                dict(data), {"type": "block", "path": path} if is_whole else None, force=not is_whole
            )
        except Exception as error:  # the library raises errors of many others
            raise DriverError(NOT_REACHED, f"os-brick: {type(error).__name__}: {error}") from error

    def extend(self, protocol: str, data: Mapping[str, Any]) -> None:
        """Have os-brick tell the host of the new size."""
        if protocol not in EXTENDED:
            return
        try:
            self._connector(protocol, data).extend_volume(dict(data))
        except Exception as error:  # the library raises errors of many others
            raise DriverError(NOT_REACHED, f"os-brick: {type(error).__name__}: {error}") from error

    def _connector(self, protocol: str, data: Mapping[str, Any]) -> Any:
        if self._library is None:
            with self._importing:
                self._library = _imported(self._mounts)
        more: dict[str, Any] = {}
        if protocol == "NFS":
            self._mounts.mkdir(mode=0o711, parents=True, exist_ok=True)
            more = {"conn": dict(data), "nfs_mount_point_base": str(self._mounts)}
            if data.get("options"):
                more["nfs_mount_options"] = data["options"]
        return self._library.InitiatorConnector.factory(protocol, None, use_multipath=False, **more)

    def _check_initiator(self) -> None:
        """The volume service is told a name that is made of the host's: what the host says of itself has to be that."""
        wanted = initiator_of(self._host)
        try:
            lines = self._initiator.read_text().splitlines()
        except OSError as error:
            raise _refused("ISCSI", str(error)) from error
        if f"InitiatorName={wanted}" not in (line.strip() for line in lines):
            raise _refused("ISCSI", f"the initiator of the host is not {wanted}: say so in {self._initiator}")


def _imported(mounts: Path) -> Any:
    """Return the part of os-brick with the connectors; its calls run in this process and not in a helper."""
    lockutils = importlib.import_module("oslo_concurrency.lockutils")
    locks = mounts.with_name(f"{mounts.name}-locks")
    locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    lockutils.set_defaults(str(locks))
    importlib.import_module(LIBRARY).setup(importlib.import_module("oslo_config.cfg").CONF)
    privileged = importlib.import_module(f"{LIBRARY}.privileged")
    for context in (privileged.default, privileged.brick_privsep_hide_output):
        context.set_client_mode(False)
    return importlib.import_module(f"{LIBRARY}.initiator.connector")


def _refused(protocol: str, why: str) -> DriverError:
    return DriverError(NOT_SUPPORTED, f"volumes by {protocol}: {why}")
