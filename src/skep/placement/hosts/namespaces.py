"""States of other services beside the host table: joined to its rows, seen by filters as columns.

Pure, like the table. A state finds its hosts by its key or by one of its fields (`domain/namespaces.py`); it may be
there before its host and a host before its state. Columns are made when a filter first asks for one, then follow each
change. Who holds evaluated columns learns of changes from the table's own log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from skep.domain.ids import NodeUuid
from skep.domain.namespaces import Schema
from skep.placement.hosts.columns import Floats, Mask, grown
from skep.placement.hosts.host_columns import HostColumns

State = Mapping[str, Any]


class JoinedStates:
    """All namespaces that other services registered, joined to the rows of one host table."""

    def __init__(self, table: HostColumns) -> None:
        self._table = table
        self._namespaces: dict[str, _Namespace] = {}
        self._orphans: dict[str, dict[str, State]] = {}
        """States that came before the schema of their namespace."""
        self._seen: list[str] = []
        """The host name by which each row was joined."""
        self._position = -1

    def set_schema(self, name: str, schema: Schema | None) -> None:
        """Register a namespace, change its schema (compatibly), or forget it. Its states stay known."""
        before = self._namespaces.pop(name, None)
        states = before.states if before is not None else self._orphans.pop(name, {})
        if before is not None:
            self._table.mark_changed(before.keys_of_row)
        if schema is None:
            if states:
                self._orphans[name] = states
            return
        fresh = self._namespaces[name] = _Namespace(schema)
        for key, state in states.items():
            self._table.mark_changed(fresh.set_state(self._table, key, state))

    def set_state(self, name: str, key: str, state: State | None) -> None:
        """Set one state; None removes it."""
        namespace = self._namespaces.get(name)
        if namespace is not None:
            self._table.mark_changed(namespace.set_state(self._table, key, state))
        elif state is not None:
            self._orphans.setdefault(name, {})[key] = state
        elif name in self._orphans:
            self._orphans[name].pop(key, None)

    def schema(self, name: str) -> Schema | None:
        """Return the schema of a namespace."""
        namespace = self._namespaces.get(name)
        return namespace.schema if namespace is not None else None

    def count(self, name: str) -> int:
        """Return how many states a namespace has."""
        namespace = self._namespaces.get(name)
        return len(namespace.states) if namespace is not None else 0

    def names_told(self) -> list[str]:
        """Return the namespaces that have any states."""
        return [name for name, namespace in self._namespaces.items() if namespace.states]

    def keys(self, name: str) -> list[str]:
        """Return the keys of a namespace's states in their order. Callers must not change the list."""
        namespace = self._namespaces.get(name)
        return namespace.sorted_keys() if namespace is not None else []

    def number(self, name: str, field: str) -> Floats:
        """Return a number for each row, the largest of all states that join it; NaN where none has the field."""
        namespace = self._followed(name)
        if namespace is None:
            return np.full(self._table.size, np.nan)
        return namespace.number(field, self._table.size)

    def having(self, name: str, field: str, value: str | bool) -> Mask:
        """Return which rows a state joins whose field is `value`, or holds it."""
        mask = np.zeros(self._table.size, dtype=np.bool_)
        namespace = self._followed(name)
        if namespace is not None:
            mask[namespace.rows_having(field, value)] = True
        return mask

    def told(self, name: str) -> Mask:
        """Return which rows any state of the namespace joins."""
        namespace = self._followed(name)
        if namespace is None:
            return np.zeros(self._table.size, dtype=np.bool_)
        return namespace.told(self._table.size)

    def of_row(self, name: str, row: int) -> list[State]:
        """Return the states that join one row, by key."""
        namespace = self._followed(name)
        if namespace is None:
            return []
        return [namespace.states[key] for key in sorted(namespace.keys_of_row.get(row, ()))]

    def nodes_of(self, name: str, key: str) -> tuple[NodeUuid, ...]:
        """Return the known nodes that a state joins."""
        namespace = self._followed(name)
        rows = namespace.rows_of_key.get(key, ()) if namespace is not None else ()
        return tuple(sorted(self._table.nodes[row] for row in rows))

    def _followed(self, name: str) -> _Namespace | None:
        """Return a namespace, once rows that are new or have another host name are joined."""
        table = self._table
        if self._namespaces and self._position != table.position:
            for row in self._renamed():
                for namespace in self._namespaces.values():
                    namespace.join_row(table, row)
                self._seen[row] = table.hosts[row]
            self._position = table.position
        return self._namespaces.get(name)

    def _renamed(self) -> list[int]:
        table, seen = self._table, self._seen
        known = len(seen)
        seen.extend([""] * (table.size - known))
        new = range(known, table.size)
        changed = table.changed_since(self._position) if self._position >= 0 else None
        if changed is not None:
            old = [int(row) for row in changed if row < known and table.hosts[row] != seen[row]]
        elif table.hosts[:known] == seen[:known]:
            old = []
        else:
            old = [row for row in range(known) if table.hosts[row] != seen[row]]
        return [*old, *new]


class _Namespace:
    """The states of one namespace, indexed in both directions."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.states: dict[str, State] = {}
        self.rows_of_key: dict[str, set[int]] = {}
        self.keys_of_row: dict[int, set[str]] = {}
        self._told: Mask = np.zeros(0, dtype=np.bool_)
        self._sorted: list[str] | None = None
        self._keys_of_name: dict[str, set[str]] = {}
        """By what is joined: a host name or a node's UUID."""
        self._numbers: dict[str, Floats] = {}
        self._holders: dict[str, dict[str | bool, set[str]]] = {}

    def set_state(self, table: HostColumns, key: str, state: State | None) -> set[int]:
        """Set one state; return the rows of which something may have changed."""
        if (state is None) == (key in self.states):
            self._sorted = None
        before = self.states.pop(key, None)
        if before is not None:
            self._forget(key, before)
        rows = self.rows_of_key.pop(key, set())
        for row in rows:
            self._keys_at(row).discard(key)
        if state is not None:
            self.states[key] = state
            fresh: set[int] = set()
            for name in self._names(key, state):
                self._keys_of_name.setdefault(name, set()).add(key)
                fresh |= self._rows_of_name(table, name)
            self.rows_of_key[key] = fresh
            for row in fresh:
                self._keys_at(row).add(key)
            self._index(key, state)
            rows = rows | fresh
        for row in rows:
            self._refresh(row)
        return rows

    def sorted_keys(self) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(self.states)
        return self._sorted

    def join_row(self, table: HostColumns, row: int) -> None:
        """Join one row that is new, or had another host name."""
        name = table.nodes[row] if self.schema.join.names == "node" else table.hosts[row]
        wanted = self._keys_of_name.get(name, set()) if name else set()
        held = self.keys_of_row.get(row, set())
        for key in held - wanted:
            self.rows_of_key[key].discard(row)
        for key in wanted - held:
            self.rows_of_key[key].add(row)
        self.keys_of_row[row] = set(wanted)
        self._refresh(row)

    def told(self, length: int) -> Mask:
        if len(self._told) < length:
            self._told = grown(self._told, length)
        return self._told[:length]

    def number(self, field: str, length: int) -> Floats:
        column = self._numbers.get(field)
        if column is None:
            column = self._numbers[field] = np.full(length, np.nan)
            for row in self.keys_of_row:
                self._refresh(row)
            column = self._numbers[field]
        if len(column) < length:
            column = self._numbers[field] = _longer(column, length)
        return column[:length]

    def rows_having(self, field: str, value: str | bool) -> list[int]:
        if field not in self._holders:
            self._holders[field] = {}
            for key, state in self.states.items():
                self._index(key, state, field)
        keys = self._holders[field].get(value, ())
        return [row for key in keys for row in self.rows_of_key[key]]

    def _names(self, key: str, state: State) -> Iterable[str]:
        field = self.schema.join.field
        if field is None:
            return (key,)
        return _strings(state.get(field))

    def _rows_of_name(self, table: HostColumns, name: str) -> set[int]:
        if self.schema.join.names == "host":
            return set(table.rows_named(name)) if name else set()
        row = table.row_of.get(NodeUuid(name))
        return set() if row is None else {row}

    def _keys_at(self, row: int) -> set[str]:
        return self.keys_of_row.setdefault(row, set())

    def _refresh(self, row: int) -> None:
        """Bring what is derived from the states of one row up to date."""
        keys = self.keys_of_row.get(row)
        if not keys:
            self.keys_of_row.pop(row, None)
        if row >= len(self._told):
            self._told = grown(self._told, 2 * row + 16)
        self._told[row] = bool(keys)
        for field in self._numbers:
            if row >= len(self._numbers[field]):
                self._numbers[field] = _longer(self._numbers[field], row + 1)
            values = [value for key in keys or () if isinstance(value := self.states[key].get(field), int | float)]
            self._numbers[field][row] = max(values) if values else np.nan

    def _index(self, key: str, state: State, field: str | None = None) -> None:
        for name in self._holders if field is None else (field,):
            for value in _held(state.get(name)):
                self._holders[name].setdefault(value, set()).add(key)

    def _forget(self, key: str, state: State) -> None:
        for name in self._names(key, state):
            _drop(self._keys_of_name, name, key)
        for field, holders in self._holders.items():
            for value in _held(state.get(field)):
                _drop(holders, value, key)


def _held(value: Any) -> Iterable[str | bool]:
    return (value,) if isinstance(value, bool) else _strings(value)


def _strings(value: Any) -> Iterable[str]:
    """Return a string, or the strings of a list. A damaged record may hold anything: what is none is left out."""
    if isinstance(value, str):
        return (value,)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else ()


def _drop(index: dict[Any, set[str]], name: str | bool, key: str) -> None:
    keys = index.get(name)
    if keys is not None:
        keys.discard(key)
        if not keys:
            del index[name]


def _longer(column: Floats, length: int) -> Floats:
    larger = np.full(max(length, 2 * len(column)), np.nan)
    larger[: len(column)] = column
    return larger
