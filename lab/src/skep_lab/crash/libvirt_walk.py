"""A walk with a host of QEMU: the cloud and its agent are one process, killed between two calls of the driver."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from skep.config.sections import Config
from skep.domain.ids import InstanceUuid
from skep_lab.crash.operation import ALONE
from skep_lab.crash.points import Point
from skep_lab.crash.process import CrashProcess
from skep_lab.crash.walk import Walk, hosts_seen
from skep_lab.witnesses import witness
from skep_lab.witnesses.witness import Findings, Seen
from skep_lab.witnesses.witness_guests import Life
from skep_lab.witnesses.witness_qemu import QemuHost

HOST = "cell1-host1"
Place = tuple[str, InstanceUuid, int]
"""Host, instance and attempt."""
OPTIONS = {"virt_type": "qemu", "shutdown_seconds": 0}
_HEAD = bytes.fromhex(
    "fc 31c0 8ed8 8ec0 8ed0 bc007c"  # cld; ds = es = ss = 0; sp = 7c00
    "fe06 3c7c"  # one more boot: the byte at 7c3c
    "b80103 bb007c b90100 b600 cd13"  # write this sector back to the disk it came from
    "ba10ae 6631c0 66ef b204 66ed b208 66ef fb f4 ebec"  # let go of what is asked for (ae04), halt; and so on
)
COUNT = 0x3C
COUNTS_BOOTS = (_HEAD.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0")
"""A disk, raw: its guest counts in the byte at `COUNT` how often it has booted from it, and lets go of devices as a
system with ACPI does."""


class LibvirtWalk(Walk):
    """One host with the driver `libvirt`, and one server at a time."""

    together = 1
    image = COUNTS_BOOTS
    """The disk, raw, that servers are made of."""
    shared = False
    """Whether its hosts have one directory."""

    def __init__(self, root: Path, hosts: tuple[QemuHost, ...] = ()) -> None:
        """Make a cloud. Without `hosts` it has one, whose directory goes with `stop`."""
        self._own: Path | None = None
        if not hosts:
            # QEMU's user has to pass all directories above it, and its path has to be short.
            self._own = Path(tempfile.mkdtemp(prefix="skep-", dir="/tmp"))
            self._own.chmod(0o711)
            hosts = (QemuHost(name=HOST, directory=self._own),)
        self.hosts = {host.name: host for host in hosts}
        self._lived: dict[tuple[str, str, int], Life] = {}
        self._looks = 0
        self._booted: dict[str, int] = {}
        super().__init__(root, ALONE)

    def begun(self, root: Path, config: Config, cells: int, hosts: int) -> CrashProcess:
        """Return the cloud, whose host has QEMU."""
        return super().begun(root, self.with_qemu(config), cells, hosts)

    def with_qemu(self, config: Config, **options: Any) -> Config:
        """Return the configuration of a cloud whose host has QEMU, with more options."""
        own = {**OPTIONS, "directory": str(self._own), **options}
        compute = msgspec.structs.replace(config.compute, driver="libvirt", driver_options=own)
        return msgspec.structs.replace(config, compute=compute)

    def start(self) -> None:
        """Start the cloud, whose image is one of which guests say something."""
        self.process.start()
        raw, image = self.process.root / "image.raw", self.process.root / "image.qcow2"
        raw.write_bytes(self.image)
        _convert("raw", raw, "qcow2", image)
        self.process.replace_image(image.read_bytes())

    def stop(self) -> None:
        """Stop the cloud, and what a failed walk has left of guests."""
        super().stop()
        if self._own is not None:
            for host in self.hosts.values():
                for process in host.processes():
                    os.kill(process, signal.SIGKILL)
            shutil.rmtree(self._own)

    def crash(self, point: Point, trigger: Callable[[], object], *, comes: bool = True) -> None:
        """Have the process end at a point."""
        # A guest that is put aside is there no more, and counts: it has to be known before.
        self._lives()
        super().crash(point, trigger, comes=comes)

    def observe(self) -> Findings:
        """Look once: as at other clouds, and at what is on the hosts."""
        statuses, rows, hosts = self.statuses(), self.rows(), self.hosts.values()
        rightful = rows.kept | {(str(row.host), row.uuid, row.attempt) for row in rows.rows}
        seen = Seen(
            rows=rows,
            lives=self._lives(),
            disks=self._of_hosts(chain(*(host.disks() for host in hosts)), rightful),
            drives=self._of_hosts(chain(*(host.drives() for host in hosts)), rightful),
            statuses=statuses,
            hosts=hosts_seen(self.process),
        )
        found = witness.judge(seen, self.asked)
        left: list[str] = []
        for host in hosts:
            mine = {row.uuid for row in rows.rows if row.host == host.name}
            there = {(host.name if self.shared else name, uuid, attempt) for name, uuid, attempt in rightful}
            left += host.left(there, {uuid: status for uuid, status in statuses.items() if uuid in mine})
        return msgspec.structs.replace(found, leaked=(*found.leaked, *left))

    def _of_hosts(self, found: Iterable[Place], rightful: Iterable[tuple[str, str, int]]) -> tuple[Place, ...]:
        """Return whose a directory is that several hosts have: that of the host which has the attempt."""
        if not self.shared:
            return tuple(found)
        owners = {(uuid, attempt): host for host, uuid, attempt in rightful}
        return tuple({(owners.get((uuid, attempt), "none"), uuid, attempt) for _, uuid, attempt in found})

    def _lives(self) -> tuple[Life, ...]:
        """Return all guests that were ever seen: what is kept of one that was put aside counts.

        Their times are the numbers of the looks by which they were there.
        """
        self._looks += 1
        lives = chain(*(host.lives() for host in self.hosts.values()))
        there = {(one.host, str(one.instance), one.attempt): one for one in lives}
        for key, life in self._lived.items():
            if key not in there and life.ended is None:
                life.ended = self._looks
        for key, life in there.items():
            before = self._lived.get(key)
            life.began = self._looks if before is None else before.began
        self._lived |= there
        return tuple(self._lived.values())

    def write_disk(self, uuid: str, content: bytes) -> None:  # noqa: ARG002 - its guest writes
        """Wait until the guest has written that it has booted."""
        self.until(lambda: self._boots(uuid) > 0, "the guest has booted")
        self._booted[uuid] = self._boots(uuid)

    def has_disk(self, uuid: str, *, anew: bool) -> bool:
        """Tell whether the disk knows of the boots before; one that is anew knows of those since, of one at most."""
        return self._boots(uuid) <= 1 if anew else self._boots(uuid) >= self._booted[uuid]

    def _boots(self, uuid: str) -> int:
        row = self._row(uuid)
        out = self.process.root / "looked-at"
        disk = self.hosts[str(row.host)].disk(uuid, row.attempt)
        _convert("qcow2", disk, "raw", out)
        with out.open("rb") as file:
            return file.read(COUNT + 1)[COUNT]


def _convert(of: str, source: Path, to: str, made: Path) -> None:
    """Make a disk of another format; the guest of the source may run."""
    subprocess.run(["qemu-img", "convert", "-U", "-f", of, "-O", to, source, made], check=True)
