"""What the backend stores in memcached, as bytes; the picture of it all is in the package's docstring."""

from __future__ import annotations

import struct
from base64 import b64encode
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from skep.domain.decoding import msgpack_decoder
from skep.synchronizer.base import Key, Record

FORMAT = 1
"""Of all items; the first byte, or member, of each."""

DIGEST = 16
"""Bytes of a key's digest, which names its value in the index, in logs and on the server."""

RING = 4096
"""Places of a writer's log; the oldest entry gives way to the newest."""

_FRAME = struct.Struct(">BQQHH")
_ENTRY = struct.Struct(">BQ")
_INDEX = bytes((FORMAT,))


class Damaged(ValueError):
    """An item is not what the backend stores."""


class Root(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The item that says which life it is."""

    format: int = FORMAT
    epoch: str
    shards: int
    """Items of the index; the same number for the whole epoch."""
    losses: int
    """The server's count of lost items when the epoch began (`capacity.losses`)."""
    writers: tuple[str, ...] = ()
    """Whose logs are to be followed."""
    ended: tuple[tuple[str, int], ...] = ()
    """The logs that ended last, with their last entries: whoever has not read so far still has to."""
    forgotten: int = 0
    """How many logs ended before those."""

    @property
    def endings(self) -> int:
        """How many logs have ended in this epoch."""
        return self.forgotten + len(self.ended)


class HeldItem(NamedTuple):
    """A value: a record, or (generation 0) that there is none any more."""

    record: Record
    removed_at: int
    """Microseconds since 1970; 0: it was not removed."""


class ItemNames:
    """What the items of one epoch are called."""

    def __init__(self, name: str, epoch: str, shards: int) -> None:
        self._prefix = f"{name}:{epoch}:".encode()
        self._value = self._prefix + b"v"
        self._shards = shards

    def value(self, digest: bytes) -> bytes:
        """Return the name of a record's value."""
        return self._value + b64encode(digest)

    def shard_of(self, digest: bytes) -> int:
        """Return the number of the part of the index that lists a key."""
        return int.from_bytes(digest[:4]) % self._shards

    def shard(self, number: int) -> bytes:
        """Return the name of a part of the index."""
        return self._prefix + b"i%d" % number

    def head(self, writer: str) -> bytes:
        """Return the name of the item that says how far a writer's log has come."""
        return self._prefix + b"h" + writer.encode()

    def entry(self, writer: str, number: int) -> bytes:
        """Return the name of an entry of a writer's log."""
        return self._prefix + b"l%b.%d" % (writer.encode(), number % RING)


def root_name(name: str) -> bytes:
    """Return the name of the root, the one item that outlives an epoch."""
    return f"{name}:root".encode()


def digest_of(key: Key) -> bytes:
    """Return what stands for a key; no two keys that anybody makes share one."""
    return blake2b(f"{key.namespace}\0{key.name}".encode(), digest_size=DIGEST).digest()


def encode_root(root: Root) -> bytes:
    """Return the root's value."""
    return msgspec.msgpack.encode(root)


def decode_root(value: bytes) -> Root:
    """Read a root.

    Raises Damaged when it is none, or of another format.
    """
    try:
        root = msgpack_decoder(Root).decode(value)
    except (msgspec.DecodeError, ValueError) as error:
        raise Damaged(f"not a root: {error}") from error
    if root.format != FORMAT:
        raise Damaged(f"format {root.format}, not {FORMAT}")
    return root


def encode_held(key: Key, generation: int, body: bytes, *, removed_at: int) -> bytes:
    """Return a record's value; `removed_at` counts only where the body is empty."""
    namespace, name = key.namespace.encode(), key.name.encode()
    head = _FRAME.pack(FORMAT, generation, 0 if body else removed_at, len(namespace), len(name))
    return b"".join((head, namespace, name, body))


def decode_held(value: bytes) -> HeldItem:
    """Read a record's value.

    Raises Damaged when it is none.
    """
    try:
        form, generation, removed_at, namespaced, named = _FRAME.unpack_from(value)
        start = _FRAME.size + namespaced
        key = Key(value[_FRAME.size : start].decode(), value[start : start + named].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise Damaged(f"not a record: {error}") from error
    if form != FORMAT or len(value) < start + named:
        raise Damaged("not a record")
    return HeldItem(Record(key=key, generation=generation, body=value[start + named :]), removed_at)


def encode_entry(number: int, digests: list[bytes]) -> bytes:
    """Return an entry of a log: which values are about to change, or have."""
    return _ENTRY.pack(FORMAT, number) + b"".join(digests)


def decode_entry(value: bytes) -> tuple[int, list[bytes]]:
    """Return an entry's number and digests.

    Raises Damaged when it is no entry.
    """
    if len(value) < _ENTRY.size or value[0] != FORMAT or (len(value) - _ENTRY.size) % DIGEST:
        raise Damaged("not an entry of a log")
    return _ENTRY.unpack_from(value)[1], _split(value, _ENTRY.size)


def encode_index(digests: list[bytes]) -> bytes:
    """Return a part of the index. Further digests are appended to it as they are."""
    return _INDEX + b"".join(digests)


def decode_index(value: bytes) -> list[bytes]:
    """Return the digests that a part of the index lists, as often as it does.

    Raises Damaged when it is no such part.
    """
    if value[:1] != _INDEX or len(value) % DIGEST != 1:
        raise Damaged("not a part of the index")
    return _split(value, 1)


def _split(value: bytes, start: int) -> list[bytes]:
    return [value[position : position + DIGEST] for position in range(start, len(value), DIGEST)]
