"""What is remembered of tokens: bounded, by a hash of the token or of its id, never the token."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class TokenCache(Generic[T]):
    """The least recently used entry goes when it is full. Entries end at a time of the caller's clock."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._generation = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def generation(self) -> int:
        """Rises when something is forgotten. What was read before that must not be put in afterwards."""
        return self._generation

    def get(self, token: str, now: int) -> T | None:
        """Return what is remembered of the token at `now` (microseconds)."""
        key = _key(token)
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry[1] <= now:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, token: str, value: T, until: int, generation: int) -> None:
        """Remember a value until a time, unless something was forgotten since `generation` was read."""
        if generation != self._generation or self._size <= 0:
            return
        self._entries[_key(token)] = (value, until)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def forget(self, token: str) -> None:
        """Forget one token."""
        self._generation += 1
        self._entries.pop(_key(token), None)

    def clear(self) -> None:
        """Forget all tokens."""
        self._generation += 1
        self._entries.clear()


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
