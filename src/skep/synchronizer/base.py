"""The contract of a synchronizer's backend: snapshot, changes, publish with expected, trim.

A record is `(namespace, key) -> generation, body`. The body is bytes (JSON) that only schedulers understand. Expected
generation and epoch stand inside the record too, so that a backend that goes back in time is noticed.
"""

from __future__ import annotations

from typing import NewType, Protocol

import msgspec

Epoch = NewType("Epoch", str)
"""One life of a backend's data; another epoch means that everything must be told again."""

Cursor = NewType("Cursor", str)
"""Where in the stream of changes a reader stands; opaque, belongs to one epoch."""


KEEP_REMOVED_SECONDS = 3600.0
"""A backend remembers a removed record's generation at least for so long, so that the key's next record goes on
counting where readers believe it to be. Readers forget it themselves well before (`FORGET_REMOVED_SECONDS`)."""

FORGET_REMOVED_SECONDS = KEEP_REMOVED_SECONDS / 3


class Key(msgspec.Struct, frozen=True, array_like=True, order=True):
    """What names a record."""

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
    """Somebody else wrote first: the fresh record, or None when there is none."""

    record: Record | None


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
    """Where the records live. All methods may raise Unavailable; nothing is half done then."""

    async def epoch(self) -> Epoch:
        """Return the current epoch."""

    async def snapshot(self) -> Snapshot:
        """Return all records."""

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Return what changed after `cursor`; wait up to `wait` seconds for a change if there is none."""

    async def publish(self, writes: tuple[Write, ...]) -> tuple[Published | Refusal, ...]:
        """Try each write by compare-and-swap, many in one round trip; one refusal does not touch the others."""

    async def trim(self) -> int:
        """Forget what no reader should need any more: old changes, and records removed long ago; return how many.

        Records stay. A key whose removed record is forgotten begins anew with generation 1.
        """
