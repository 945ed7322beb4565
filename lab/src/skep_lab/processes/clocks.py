"""What the clocks of hosts said when: logs of guests bear the time of their hosts, which may be wrong for a while."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from skep.compute.drivers.fake import GUESTS_FILE
from skep.compute.drivers.guest_log import read_events


class HostClocks:
    """By how much the clock of each host was ahead, for each event of its log."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[list[int], list[int]]] = {}
        """Of each host: numbers of events, and by how many microseconds the clock is ahead from there on."""

    def set(self, directory: Path, ahead: int) -> None:
        """Know that the host of `directory` writes by a clock that is ahead from now on. Nothing of it may run."""
        numbers, clocks = self._since.setdefault(directory.name, ([], []))
        numbers.append(len(read_events(directory / GUESTS_FILE)))
        clocks.append(ahead)

    def ahead(self, host: str, number: int) -> int:
        """Return by how many microseconds the clock was ahead when the host wrote an event; the first has number 0."""
        numbers, clocks = self._since.get(host, ([], []))
        place = bisect_right(numbers, number)
        return clocks[place - 1] if place else 0
