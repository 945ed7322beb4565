"""How records stand in a NATS stream: subjects that name them, frames that hold them, cursors that count them."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from skep.synchronizer.base import Cursor, Epoch, Key, Record

_PLAIN = re.compile(rb"[A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_EMPTY = "="
"""The token of an empty text; NATS allows no empty tokens."""

_FRAME = b"\x01"
"""First byte of every frame: the format of what follows."""
_GENERATION_BYTES = 8
_HEADER_BYTES = len(_FRAME) + _GENERATION_BYTES
FRAME_BYTES = 1024
"""Room that a message takes beside its body, at most: frame, subject, reply and headers."""


class BegunLife(msgspec.Struct, frozen=True, kw_only=True):
    """Which life of the records is the current one."""

    format: int
    epoch: Epoch


FORMAT = 1
"""Of streams, subjects and frames, as they are written here."""


class NatsLife(NamedTuple):
    """The names of one life's stream and subjects on the server."""

    cloud: str
    epoch: Epoch

    @property
    def stream(self) -> str:
        """The stream that holds the records."""
        return f"SKEP-{self.cloud}-{self.epoch}"

    @property
    def subject(self) -> str:
        """What every subject of this life begins with."""
        return f"skep_sync.{self.cloud}.life.{self.epoch}"

    @property
    def begun(self) -> str:
        """Subject of the message that was there before any record: a stream without it has lost something."""
        return f"{self.subject}.begun"

    @property
    def trimmed(self) -> str:
        """Subject of the mark that says up to which sequence removed records may have been forgotten."""
        return f"{self.subject}.trimmed"

    def record(self, key: Key) -> str:
        """Return the subject of a record."""
        return f"{self.subject}.record.{_token(key.namespace)}.{_token(key.name)}"

    def key(self, subject: str) -> Key | None:
        """Return which record a subject names, or None where it names none of this life."""
        prefix = f"{self.subject}.record."
        if not subject.startswith(prefix):
            return None
        tokens = subject[len(prefix) :].split(".")
        if len(tokens) != 2 or not all(tokens):
            return None
        try:
            key = Key(_text(tokens[0]), _text(tokens[1]))
        except ValueError:  # of bytes that are no UTF-8
            return None
        # Somebody else may have escaped what needs none, or left bare what does; that is another subject, and no
        # record of ours.
        return key if self.record(key) == subject else None

    def cursor(self, sequence: int) -> Cursor:
        """Return the cursor of who has read up to a sequence of the stream."""
        return Cursor(f"{self.epoch}/{sequence}")


def frame(generation: int, body: bytes) -> bytes:
    """Return the payload of a record's message."""
    return _FRAME + generation.to_bytes(_GENERATION_BYTES, "big") + body


def record_in(key: Key, sequence: int, payload: bytes) -> Record:
    """Return the record that a message holds.

    What others wrote under a record's subject is a record too, or nobody could ever write there again: the message's
    sequence is its generation, which is above all that were there before, and its body is whatever was found.
    """
    if not is_frame(payload):
        return Record(key=key, generation=sequence, body=payload)
    generation = int.from_bytes(payload[len(_FRAME) : _HEADER_BYTES], "big")
    return Record(key=key, generation=generation, body=payload[_HEADER_BYTES:])


def is_frame(payload: bytes) -> bool:
    """Whether a message was written by a synchronizer."""
    return payload.startswith(_FRAME) and len(payload) >= _HEADER_BYTES


def read_cursor(cursor: Cursor) -> tuple[Epoch, int] | None:
    """Return epoch and sequence of a cursor; None for what is none of ours."""
    epoch, _, sequence = cursor.rpartition("/")
    return (Epoch(epoch), int(sequence)) if epoch and sequence.isascii() and sequence.isdigit() else None


def _token(text: str) -> str:
    if text.isascii() and text.replace("-", "a").replace("_", "a").isalnum():
        return text
    return "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f"={byte:02X}" for byte in text.encode()) or _EMPTY


def _text(token: str) -> str:
    if "=" not in token:
        return token
    if token == _EMPTY:
        return ""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), token).encode("latin-1").decode()
