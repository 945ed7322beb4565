"""What hosts with QEMU have, read from outside: libvirt's files, the files of guests, and processes. Nothing is asked
of libvirt, nor of the driver."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.bases import NEW
from skep.compute.drivers.libvirt.disks import BASES, CONFIG_DRIVE, DISK, GUESTS
from skep.compute.drivers.libvirt.domain import GuestLabel, label_in
from skep.domain.ids import InstanceUuid
from skep_lab.witnesses.witness_guests import Life

RUNNING = frozenset({"ACTIVE", "PAUSED", "RESCUE", "VERIFY_RESIZE"})
"""What users see of servers whose QEMU runs."""
HALF_MADE = (NEW, ".part")
STATE = "libvirt"


class Devices(msgspec.Struct, frozen=True):
    """What a guest has that it may get and lose."""

    macs: frozenset[str]
    """Of its interfaces."""
    volumes: frozenset[str]
    """Their ids."""


class QemuHost(msgspec.Struct, frozen=True, kw_only=True):
    """One host, by the directory of its driver."""

    name: str
    directory: Path
    daemon: Path | None = None
    """The root of its libvirtd, which has a mount namespace of its own; None: libvirt is inside the agent."""

    @property
    def state(self) -> Path:
        """Return the directory of libvirt's files."""
        return self.directory / STATE if self.daemon is None else self.daemon

    def labels(self) -> list[GuestLabel]:
        """Return the labels of the domains that libvirt has in its files."""
        found = (_text(path) for path in sorted((self.state / "etc" / "qemu").glob("*.xml")))
        labels = (label_in(text) for text in found if text)
        return [label for label in labels if label is not None]

    def lives(self) -> list[Life]:
        """Return the guests that are there."""
        return [
            Life(
                host=self.name,
                instance=label.instance,
                attempt=label.attempt,
                began=0,
                finished=int(label.whole),
                resources=label.resources,
            )
            for label in self.labels()
        ]

    def attempts(self, file: str = "") -> list[tuple[str, InstanceUuid, int]]:
        """Return host, instance and attempt of those that have a directory, or this file in it."""
        found = []
        for place in sorted((self.directory / GUESTS).iterdir()):
            instance, _, attempt = place.name.partition("_")
            if not file or (place / file).exists():
                found.append((self.name, InstanceUuid(instance), int(attempt)))
        return found

    def disks(self) -> list[tuple[str, InstanceUuid, int]]:
        """Return those that have a root disk."""
        return self.attempts(DISK)

    def drives(self) -> list[tuple[str, InstanceUuid, int]]:
        """Return those that have a config drive."""
        return self.attempts(CONFIG_DRIVE)

    def devices(self, instance: str) -> Iterator[Devices]:
        """Yield what a guest has when it starts next, and what it has now, by libvirt's files."""
        places = (self.state / "etc" / "qemu", self.state / "run" / "qemu")
        for path in (path for place in places for path in place.glob("*.xml")):
            text = _text(path)
            found = ET.fromstring(text) if text else None
            domain = found if found is None or found.tag == "domain" else found.find("domain")
            if domain is not None and domain.findtext("uuid") == instance:
                yield Devices(
                    macs=frozenset(one.get("address", "") for one in domain.findall("devices/interface/mac")),
                    volumes=frozenset(one.text or "" for one in domain.findall("devices/disk/serial")),
                )

    def processes(self) -> dict[int, str]:
        """Return the processes of QEMU of this host, and the servers that they are of."""
        found = dict(_processes(self.directory))
        if self.daemon is None:
            return found
        # Hosts that share the storage have the same paths.
        mine = _space((self.daemon / "pid").read_text().strip())
        return {process: server for process, server in found.items() if _space(process) == mine}

    def disk(self, instance: str, attempt: int) -> Path:
        """Return the file of a root disk."""
        return self.directory / GUESTS / f"{instance}_{attempt}" / DISK

    def left(self, rightful: Iterable[tuple[str, str, int]], statuses: dict[str, str]) -> Iterator[str]:
        """Yield what belongs to no server, or does not run as its server does.

        `rightful`: host, instance and attempt of all that may have something here.
        """
        known = {(instance, attempt) for host, instance, attempt in rightful if host == self.name}
        for _, instance, attempt in self.attempts():
            if (instance, attempt) not in known:
                yield f"directory without its server: {instance} attempt {attempt} on {self.name}"
        for path in (*(self.directory / GUESTS).glob("*/*"), *(self.directory / BASES).iterdir()):
            if path.name.endswith(HALF_MADE):
                yield f"{path} is half made"
        run, wanted = set(self.processes().values()), {uuid for uuid, is_ in statuses.items() if is_ in RUNNING}
        for uuid in sorted(run - wanted):
            yield f"QEMU runs for {uuid}, which is {statuses.get(uuid, 'gone')}"
        for uuid in sorted(wanted - run):
            yield f"no QEMU runs for {uuid}, which is {statuses[uuid]}"
        for path in (self.state / "run" / "storage").glob("*.xml"):
            yield f"libvirt has the pool {path.stem}"
        lib = self.state / "lib" / "qemu"
        states = {"domain-*": len(run), "save/*.save": sum(is_ == "SUSPENDED" for is_ in statuses.values())}
        for pattern, most in states.items():
            found = list(lib.glob(pattern))
            if len(found) > most:
                yield f"libvirt has {len(found)} {pattern} for {most} guests: {found}"


def _processes(directory: Path) -> Iterator[tuple[int, str]]:
    wanted = os.fsencode(f"{directory}/")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                said = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            words = said.split(b"\0")
            if wanted in said and b"qemu-system" in words[0] and b"-uuid" in words:
                yield int(entry.name), os.fsdecode(words[words.index(b"-uuid") + 1])


def _space(process: int | str) -> str:
    """Return the mount namespace of a process, if it is there."""
    try:
        return str(Path(f"/proc/{process}/ns/mnt").readlink())
    except FileNotFoundError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""  # removed meanwhile
