"""What a SQL server must offer to the backend: short operations on an open connection, run in threads."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from skep.domain.errors import SkepError
from skep.synchronizer.base import Changes, Cursor, CursorTooOld, Epoch, Key, Record, Snapshot, Write

C = TypeVar("C")

KEEP_COMMITS = 100_000
"""Readings of the clock whose marks are kept by `trim`: how far back a cursor may be."""


class Wiped(SkepError):
    """The tables are not there, or empty: what was in them is lost. Never leaves the backend."""


class SqlPosition(msgspec.Struct, frozen=True, array_like=True):
    """What a cursor of this backend means."""

    epoch: str
    clock: int
    mark: int

    def cursor(self) -> Cursor:
        """Return it as readers carry it."""
        return Cursor(f"{self.epoch}/{self.clock}/{self.mark}")

    @classmethod
    def of(cls, cursor: Cursor) -> SqlPosition | None:
        """Read a cursor; None when it is not of this backend."""
        epoch, _, rest = cursor.partition("/")
        clock, _, mark = rest.partition("/")
        if not (clock.isdecimal() and mark.isdecimal()) or len(clock) > 18 or len(mark) > 18:
            return None
        return cls(epoch, int(clock), int(mark))


class SqlServer(ABC, Generic[C]):
    """One kind of SQL server. All methods block and run in threads; each leaves the connection outside a transaction.

    They raise what the driver raises; `is_away` tells whether trying again may help.
    """

    @abstractmethod
    def connect(self) -> C:
        """Return a connection of one thread."""

    @abstractmethod
    def abort(self, connection: C) -> None:
        """End what another thread waits for on this connection; it is not used again."""

    @abstractmethod
    def close(self, connection: C) -> None:
        """Close a connection."""

    @abstractmethod
    def is_away(self, error: Exception) -> bool:
        """Tell an error of the server or the way to it from a bug."""

    @abstractmethod
    def is_wiped(self, error: Exception) -> bool:
        """Tell that a table is not there."""

    @abstractmethod
    def prepare(self, connection: C, epoch: Epoch) -> None:
        """Make the tables if there are none, in a new life `epoch`.

        Raises Misconfigured when they have another format, or the server is one that cannot serve.
        """

    @abstractmethod
    def epoch(self, connection: C) -> Epoch:
        """Return the current epoch."""

    @abstractmethod
    def begin_epoch(self, connection: C, expected: Epoch, epoch: Epoch) -> Epoch:
        """Begin the life `epoch` if the current one is `expected`; return which one it is now."""

    @abstractmethod
    def snapshot(self, connection: C) -> Snapshot:
        """Return all living records, as of one moment."""

    @abstractmethod
    def changes(self, connection: C, position: SqlPosition) -> Changes | CursorTooOld:
        """Return what bears a later clock than `position`, as of one moment."""

    @abstractmethod
    def publish(self, connection: C, writes: Sequence[Write], epoch: Epoch | None) -> frozenset[Key] | None:
        """Try all writes in one transaction; return the keys of those that were taken.

        None, and nothing is written, when `epoch` is given and is not the current one.
        """

    @abstractmethod
    def held(self, connection: C, keys: Sequence[Key]) -> dict[Key, Record]:
        """Return these records, removed ones too; a key without a record is left out."""

    @abstractmethod
    def trim(self, connection: C, *, keep_commits: int, keep_removed: float) -> int:
        """Forget old marks, and records that were removed more than `keep_removed` seconds ago; return how many."""

    @abstractmethod
    def watch(self, connection: C, wake: Callable[[], None], stopping: threading.Event) -> None:
        """Call `wake` whenever something may have changed, until `stopping`."""


def new_mark() -> int:
    """Return a mark of a reading of the clock: two lives of a database never have the same by chance."""
    return random.getrandbits(59)


def records_of(rows: Sequence[Sequence[Any]]) -> tuple[Record, ...]:
    """Return records of rows (namespace, name, generation, body)."""
    return tuple(
        Record(key=Key(namespace, name), generation=generation, body=body) for namespace, name, generation, body in rows
    )
