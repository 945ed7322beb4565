"""A mapping that changes while it is used, but never under a running iteration."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LiveMapping(Mapping[K, V], Generic[K, V]):
    """Looks into whatever mapping `current` returns now. That one is replaced, never changed, so a loop over keys,
    values or items sees one moment to its end, however long it waits between two of them.

    A key that a loop has seen may be gone when it looks it up: use `get`, or loop over `items`.
    """

    def __init__(self, current: Callable[[], Mapping[K, V]]) -> None:
        self._current = current

    def __getitem__(self, key: K) -> V:
        """Return what stands under `key` now. Raises KeyError."""
        return self._current()[key]

    def __iter__(self) -> Iterator[K]:
        """Loop over the keys of this moment."""
        return iter(self._current())

    def __len__(self) -> int:
        """Return how many there are now."""
        return len(self._current())

    def keys(self) -> KeysView[K]:
        """Return the keys of this moment."""
        return self._current().keys()

    def values(self) -> ValuesView[V]:
        """Return the values of this moment."""
        return self._current().values()

    def items(self) -> ItemsView[K, V]:
        """Return the pairs of this moment."""
        return self._current().items()
