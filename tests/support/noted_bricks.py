"""A library that stands for os-brick: it notes what it is asked, and its volumes are files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.volume_kinds import Bricks


class NotedBricks(Bricks):
    """Notes what it is asked, and makes a file of each volume."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asked: list[tuple[str, ...]] = []
        self.lacking = ""
        """The protocol that the host does not have."""
        self.failing = ""
        """The volume that cannot be connected."""
        self.names: dict[str, str] = {}
        """Volumes that have the devices of others."""
        self.boots = 0
        """How often the host has booted: its devices have other names then."""
        self.stuck = False
        """Whether the host lets go of nothing."""

    def check(self, protocol: str) -> None:
        if protocol == self.lacking:
            raise DriverError("VolumeNotSupported", f"volumes by {protocol}: not here")

    def connect(self, protocol: str, data: Mapping[str, Any]) -> str:
        if data["name"] == self.failing:
            raise DriverError("VolumeUnavailable", f"{self.failing} is not there")
        self.asked.append(("connect", protocol, data["name"]))
        path = self.directory / f"{self.names.get(data['name'], data['name'])}{self.boots or ''}"
        before = self.directory / f"{data['name']}{self.boots - 1 or ''}"
        if self.boots and before.exists():
            before.rename(path)
        path.touch()
        os.truncate(path, 1 << 20)
        return str(path)

    def disconnect(self, protocol: str, data: Mapping[str, Any], path: str) -> None:
        if self.stuck:
            raise DriverError("VolumeUnavailable", "the device is busy")
        if data["name"] == self.failing:
            return
        self.asked.append(("disconnect", protocol, data["name"], path))

    def extend(self, protocol: str, data: Mapping[str, Any]) -> None:
        self.asked.append(("extend", protocol, data["name"]))
