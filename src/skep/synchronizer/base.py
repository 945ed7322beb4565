"""The contract of a synchronizer's backend: snapshot, changes, publish with expected, trim.

A record is `(namespace, key) -> generation, body`. The body is bytes (JSON) that only schedulers understand. Expected
generation and epoch stand inside the record too, so that a backend that goes back in time is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, Protocol

import msgspec

Epoch = NewType("Epoch", str)
"""One life of a backend's data. After a change of epoch all records must be written again."""

Cursor = NewType("Cursor", str)
"""Where in the stream of changes a reader stands; opaque, belongs to one epoch."""


MAX_NAME_LENGTH = 200
"""Longest name of a record; a backend with a server that allows fewer bytes or characters encodes it."""

MAX_BODY_BYTES = 900 * 1024
"""Largest body of a record, so that every backend can hold it beside its own marks (memcached and NATS: 1 MiB)."""

KEEP_REMOVED_SECONDS = 3600.0
"""A backend remembers a removed record's generation at least for so long, so that the key's next record goes on
counting where readers believe it to be. Readers forget it themselves well before (`FORGET_REMOVED_SECONDS`)."""

FORGET_REMOVED_SECONDS = KEEP_REMOVED_SECONDS / 3


class Key(msgspec.Struct, frozen=True, array_like=True, order=True):
    """What names a record: any text without NUL; a name is at most MAX_NAME_LENGTH characters."""

    namespace: str
    name: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record as the backend holds it."""

    key: Key
    generation: int
    """1 for the first; each accepted publish adds one."""
    body: bytes
    """Empty when the record was removed: readers drop what they hold."""


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One record to be set, if it still is what the writer believes."""

    key: Key
    expected: int
    """The generation that the writer saw; 0: there was no record."""
    body: bytes
    """Empty removes the record; its generation goes on counting."""


class Published(msgspec.Struct, frozen=True):
    """The write was taken; the record has this generation now."""

    generation: int


class Refusal(msgspec.Struct, frozen=True):
    """Another writer was first: the present record, or None without one."""

    record: Record | None
    ended: bool = False
    """The epoch of the write is over: the refusal has no record, and the writer has to read everything again."""


def refuse_all(writes: Sequence[Write]) -> tuple[Refusal, ...]:
    """Return the refusals of writes of an ended epoch."""
    return (Refusal(None, ended=True),) * len(writes)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All records at one moment, and where to go on reading changes."""

    epoch: Epoch
    records: tuple[Record, ...]
    cursor: Cursor


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The latest states of the records that changed after a cursor; intermediate states may be left out."""

    records: tuple[Record, ...]
    cursor: Cursor


class CursorTooOld(msgspec.Struct, frozen=True):
    """The changes after this cursor are no longer kept, or the epoch is another: take a snapshot."""


class Backend(Protocol):
    """The store of the records. Any method may raise Unavailable.

    After Unavailable each write of a `publish` was stored as a whole or not at all, and it is unknown which. A writer
    that repeats it is refused by its own record and finds its write in the refusal.

    A backend that notices a loss (records evicted, its data wiped) begins a new epoch by itself: cursors of the old
    epoch are then too old. After an old copy of the data was put in place, a reader's cursor is too old; or, if later
    writes have hidden that, a snapshot shows known records with lower generations. A reader that finds either calls
    `begin_epoch`.

    Several handles, in any number of processes, may be open on one store. A closed handle raises Unavailable.
    """

    async def open(self) -> None:
        """Connect, and make what is not there yet; the first call, before any other.

        Raises Misconfigured when the server can never serve (its limits are too small, another format is in use), and
        Unavailable when it is away now; opening may be tried again then.
        """

    async def close(self) -> None:
        """Disconnect. Readers that wait for changes end with Unavailable."""

    async def epoch(self) -> Epoch:
        """Return the current epoch."""

    async def begin_epoch(self, expected: Epoch) -> Epoch:
        """Begin another life without records, unless the epoch is no longer `expected`; return the current epoch.

        For a reader that knows of records, or of generations, which the backend no longer has: a copy was restored.
        """

    async def snapshot(self) -> Snapshot:
        """Return all records but the removed ones.

        The cursor is not later than the reading of any record, so a reader that follows it misses no change.
        """

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Return the changes after `cursor`; wait up to `wait` seconds for one if there is none.

        Each key at most once, removed records included. A record that the reader knows already may be among them.
        """

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        """Try each write by compare-and-swap, many in one round trip; a refusal does not affect other writes.

        Generations begin again in each epoch, so they alone do not distinguish a record from one of another epoch: if
        `epoch` is not the current one, every write is refused as `ended`, and no record changes. None: any epoch. Each
        key occurs once among `writes`. Bodies are at most MAX_BODY_BYTES.
        """

    async def trim(self) -> int:
        """Forget old changes, and records removed long ago; return their number. Other records stay.

        A key whose removed record is forgotten begins again with generation 1.
        """
