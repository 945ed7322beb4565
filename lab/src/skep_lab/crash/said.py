"""Reads what a child says on its standard output, a JSON object in a line."""

from __future__ import annotations

import os
import select
import time

import msgspec

from skep_lab.crash.child import Said


class HeardLines:
    """The lines of one life of a child."""

    def __init__(self, file: int) -> None:
        """Take the descriptor of the pipe."""
        self._file = file
        self._rest = b""

    def next(self, deadline: float) -> Said | None:
        """Return the next line; None when the child ends, or is silent until `deadline` (of `time.monotonic`)."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._file], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._file, 65536) if ready else b""
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line, type=Said)
