"""What guests have written to their disks, seen from outside: it is there as long as nobody asked for a disk anew."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from skep.compute.drivers.fake import DISKS
from skep_lab.witnesses.witness_rows import Rows

BESIDE = "written"
"""A file of a host while a guest writes."""


class WrittenDisks:
    """The disks of the hosts of one state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._written: dict[str, bytes] = {}
        self._asked: Counter[str] = Counter()
        self._unanswered: Counter[str] = Counter()
        self._times = 0

    def asked(self, server: str) -> int:
        """Return how often a disk of a server was asked for anew."""
        return self._asked[server]

    def write(self, server: str, host: str, asked: int) -> None:
        """Have the guest of a server write what no disk had before; nothing where it has no room, or not one disk.

        A host with two disks of a server still removes one of them. `asked`: as it was before the server was looked at
        and had nothing to do; nothing is written if more was asked since.
        """
        disks = list(self._state.glob(f"hosts/*/{host}/{DISKS}/{server}_*"))
        if len(disks) != 1 or self._unanswered[server] or asked != self._asked[server]:
            return
        # Not into the file: it may be that of an image, too.
        fresh = disks[0].parent.parent / BESIDE
        content = f"{server} {self._times + 1}".encode()
        with contextlib.suppress(OSError):
            fresh.write_bytes(content)
            fresh.replace(disks[0])
            self._times += 1
            self._written[server] = content

    def anew(self, server: str, *, answered: bool = False) -> None:
        """Know that the disk of a server is about to be asked for anew, or was, and that an answer came.

        Without an answer it may be made anew at any time: the guest never writes again.
        """
        self._asked[server] += 1
        self._unanswered[server] += -1 if answered else 1
        self._written.pop(server, None)

    def lost(self, seen: Rows) -> Iterator[str]:
        """Say which of these servers has not what its guest wrote, and which host keeps something else of one.

        The image of a server that is on no host is not read.
        """
        for row in seen.rows:
            if row.host is not None and row.state not in ("error", "deleted"):
                yield from self._other(row.uuid, row.host, row.attempt)
        for host, server, attempt in seen.kept:
            yield from self._other(server, host, attempt)

    def _other(self, server: str, host: str, attempt: int) -> Iterator[str]:
        wrote = self._written.get(server)
        if wrote is None:
            return
        for disk in self._state.glob(f"hosts/*/{host}/{DISKS}/{server}_{attempt}"):
            if disk.read_bytes() != wrote:
                yield f"what {server} has written is not on its disk of attempt {attempt} on {host}"

    @property
    def number(self) -> int:
        """Of how many servers something is known."""
        return len(self._written)
