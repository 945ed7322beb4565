"""A decision log in memory: lines as files hold them, cut into segments wherever a test wants it."""

from __future__ import annotations

from typing import Any

from skep.domain.ids import new_uuid
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.entries import SCHEMA, Entry, Header, Kept, Known, decode, encode


class MemoryLog:
    """Lines of one scheduler."""

    def __init__(self, settings: SchedulerSettings, *, every: int = 10**9) -> None:
        """`every`: entries after which the next segment begins."""
        self.segment = 0
        self.segments: list[list[bytes]] = []
        self._settings = settings
        self._every = every
        self._noted = 0
        self._run = new_uuid()
        self._open = False

    def open(self, run: str) -> None:
        """Begin to write in the name of a scheduler's life."""
        self._run = run
        self._open = True

    def close(self) -> None:
        """Write no more."""
        self._open = False

    @property
    def wants_snapshot(self) -> bool:
        """Whether the next segment is to begin."""
        return self._open and (not self.segments or self._noted >= self._every)

    def begin(self, records: dict[str, dict[str, Any]], known: Known) -> None:
        """Begin a segment."""
        self.segment += 1
        self._noted = 0
        header: Entry = Header(
            schema=SCHEMA, release="0", run=self._run, segment=self.segment, at=0, settings=self._settings
        )
        kept: list[Entry] = [
            Kept(namespace, name, value) for namespace, values in records.items() for name, value in values.items()
        ]
        self.segments.append([encode(entry) for entry in [header, *kept, known]])

    def note(self, entry: Entry) -> None:
        """Take an entry."""
        if self.segments and self._open:
            self._noted += 1
            self.segments[-1].append(encode(entry))

    def entries(self) -> list[list[Entry]]:
        """Return what was written, by segment."""
        return [[decode(line) for line in lines] for lines in self.segments]
