"""Which records there are, by namespace and in the order of their names: so that a range of them is found at once."""

from __future__ import annotations

from bisect import bisect_right

from skep.synchronizer.base import Key


class Names:
    """The names of records that have a value."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}
        self._sorted: dict[str, list[str]] = {}
        self._changed: dict[str, set[str]] = {}
        """Names that came or went since their namespace was sorted."""

    def note(self, key: Key, *, present: bool) -> None:
        """Note that a record has a value now, or none any more."""
        names = self._names.get(key.namespace)
        if names is None:
            names = self._names[key.namespace] = {}
        if present == (key.name in names):
            return
        if present:
            names[key.name] = None
        else:
            del names[key.name]
        if key.namespace in self._sorted:
            self._changed.setdefault(key.namespace, set()).add(key.name)

    def of(self, namespace: str) -> list[str]:
        """Return the names of a namespace, in no order."""
        return list(self._names.get(namespace, ()))

    def count(self, namespace: str) -> int:
        """Return how many records a namespace has."""
        return len(self._names.get(namespace, ()))

    def between(self, namespace: str, after: str, until: str | None) -> list[str]:
        """Return the names with `after` < name <= `until` in their order; None: to the end."""
        names = self._in_order(namespace)
        end = len(names) if until is None else bisect_right(names, until)
        return names[bisect_right(names, after) : end]

    def _in_order(self, namespace: str) -> list[str]:
        """Return all names in their order. A few that came or went are worked into what was sorted before."""
        present = self._names.get(namespace, {})
        names = self._sorted.get(namespace)
        if names is None:
            names = self._sorted[namespace] = sorted(present)
        elif changed := self._changed.pop(namespace, None):
            kept = [name for name in names if name not in changed]
            # Two sorted runs: merging them costs their length.
            names = self._sorted[namespace] = sorted(kept + sorted(name for name in changed if name in present))
        return names
