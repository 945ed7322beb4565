"""What guests have written to their disks, seen from outside: it is there as long as nobody asked for a disk anew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from skep.compute.drivers.fake import DISKS
from skep_lab.witnesses.witness_rows import Row

BESIDE = "written"
"""A file of a host while a guest writes."""


class WrittenDisks:
    """The disks of the hosts of one state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._written: set[str] = set()
        self._anew: set[str] = set()

    def write(self, server: str, host: str) -> None:
        """Have the guest of a server write what only it could have; nothing where it has no disk, or no room."""
        disks = sorted(self._state.glob(f"hosts/*/{host}/{DISKS}/{server}_*"), key=_attempt)
        if not disks:
            return
        # Not into the file: it may be that of an image, too.
        fresh = disks[-1].parent.parent / BESIDE
        with contextlib.suppress(OSError):
            fresh.write_bytes(server.encode())
            fresh.replace(disks[-1])
            self._written.add(server)

    def anew(self, server: str) -> None:
        """Know that somebody asked for the disk of a server to be made anew."""
        self._anew.add(server)

    def lost(self, rows: tuple[Row, ...]) -> Iterator[str]:
        """Say which of these servers has not what its guest wrote. The image of one that is on no host is not read."""
        for row in rows:
            if row.uuid not in self._written - self._anew or row.host is None or row.state in ("error", "deleted"):
                continue
            for disk in self._state.glob(f"hosts/*/{row.host}/{DISKS}/{row.uuid}_{row.attempt}"):
                if disk.read_bytes() != row.uuid.encode():
                    yield f"what {row.uuid} has written is not on its disk on {row.host}"

    @property
    def number(self) -> int:
        """Of how many servers something is known."""
        return len(self._written - self._anew)


def _attempt(disk: Path) -> int:
    return int(disk.name.rpartition("_")[2])
