"""A walk with a host of QEMU: the cloud and its agent are one process, killed between two calls of the driver."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import msgspec

from skep.config.sections import Config
from skep_lab.crash.operation import ALONE
from skep_lab.crash.process import CrashProcess
from skep_lab.crash.walk import Walk, hosts_seen
from skep_lab.witnesses import witness, witness_rows
from skep_lab.witnesses.witness import Findings, Seen
from skep_lab.witnesses.witness_guests import Life
from skep_lab.witnesses.witness_qemu import QemuHost

HOST = "cell1-host1"
OPTIONS = {"virt_type": "qemu", "shutdown_seconds": 0}
_HEAD = bytes.fromhex(
    "fc 31c0 8ed8 8ec0 8ed0 bc007c"  # cld; ds = es = ss = 0; sp = 7c00
    "fe06 3c7c"  # one more boot: the byte at 7c3c
    "b80103 bb007c b90100 b600 cd13"  # write this sector back to the disk it came from
    "f4 ebfd"  # halt
)
COUNT = 0x3C
COUNTS_BOOTS = (_HEAD.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0")
"""A disk, raw: its guest counts in the byte at `COUNT` how often it has booted from it."""


class LibvirtWalk(Walk):
    """One host with the driver `libvirt`, and one server at a time."""

    together = 1

    def __init__(self, root: Path) -> None:
        """Make a cloud; the directory of its host goes with `stop`."""
        # QEMU's user has to pass all directories above it, and its path has to be short.
        self.host = QemuHost(name=HOST, directory=Path(tempfile.mkdtemp(prefix="skep-", dir="/tmp")))
        self.host.directory.chmod(0o711)
        self._lived: dict[tuple[str, int], Life] = {}
        self._looks = 0
        self._booted: dict[str, int] = {}
        super().__init__(root, ALONE)

    def begun(self, root: Path, config: Config, cells: int, hosts: int) -> CrashProcess:
        """Return the cloud, whose host has QEMU."""
        options = {**OPTIONS, "directory": str(self.host.directory)}
        compute = msgspec.structs.replace(config.compute, driver="libvirt", driver_options=options)
        return super().begun(root, msgspec.structs.replace(config, compute=compute), cells, hosts)

    def start(self) -> None:
        """Start the cloud, whose image is one that counts boots."""
        self.process.start()
        raw, image = self.process.root / "counts-boots.raw", self.process.root / "counts-boots.qcow2"
        raw.write_bytes(COUNTS_BOOTS)
        _convert("raw", raw, "qcow2", image)
        self.process.replace_image(image.read_bytes())

    def stop(self) -> None:
        """Stop the cloud, and what a failed walk has left of guests."""
        super().stop()
        for process in self.host.processes():
            os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.host.directory)

    def observe(self) -> Findings:
        """Look once: as at other clouds, and at what is on the host."""
        statuses = self.statuses()
        rows = witness_rows.read(self.process.state)
        seen = Seen(
            rows=rows,
            lives=self._lives(),
            disks=tuple(self.host.disks()),
            drives=tuple(self.host.drives()),
            statuses=statuses,
            hosts=hosts_seen(self.process),
        )
        found = witness.judge(seen, self.asked)
        rightful = rows.kept | {(str(row.host), row.uuid, row.attempt) for row in rows.rows}
        return msgspec.structs.replace(found, leaked=(*found.leaked, *self.host.left(rightful, statuses)))

    def _lives(self) -> tuple[Life, ...]:
        """Return all guests that were ever seen: what is kept of one that was put aside counts.

        Their times are the numbers of the looks by which they were there.
        """
        self._looks += 1
        there = {(str(one.instance), one.attempt): one for one in self.host.lives()}
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
        disk = self.host.disk(uuid, row.attempt)
        _convert("qcow2", disk, "raw", out)
        with out.open("rb") as file:
            return file.read(COUNT + 1)[COUNT]


def _convert(of: str, source: Path, to: str, made: Path) -> None:
    """Make a disk of another format; the guest of the source may run."""
    subprocess.run(["qemu-img", "convert", "-U", "-f", of, "-O", to, source, made], check=True)
