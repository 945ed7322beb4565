"""The buses of disks, and how the names of disks on them begin."""

from __future__ import annotations

from typing import Literal

DiskBus = Literal["virtio", "ide", "sata", "scsi"]
BUSES: tuple[DiskBus, ...] = ("virtio", "ide", "sata", "scsi")
NAMES: dict[str, str] = {"virtio": "vd", "ide": "hd", "sata": "sd", "scsi": "sd"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
