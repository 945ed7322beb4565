"""Compiled statements, one cache for all databases of a process.

SQLAlchemy keeps compiled statements for each engine. The cells of a cloud have equal tables and run equal statements:
a process would compile each statement once for each of its databases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import Compiled
from sqlalchemy.util import LRUCache

SIZE = 2000
"""So many statements are kept, those in use for longest."""

KEPT: Mapping[str, Any] = MappingProxyType({})
UNKEPT: Mapping[str, Any] = MappingProxyType({"compiled_cache": None})
"""Options of `execute`; the latter for statements whose shape a client makes, who could fill the memory with shapes."""

_Key = tuple[Any, ...]


class CompiledStatements(MutableMapping[_Key, Compiled]):
    """What engines take as `compiled_cache`. Their keys begin with a dialect, of which each engine has its own."""

    def __init__(self, size: int = SIZE) -> None:
        self._kept: LRUCache[_Key, Compiled] = LRUCache(size)

    def __getitem__(self, key: _Key) -> Compiled:
        return self._kept[_shared(key)]

    def __setitem__(self, key: _Key, compiled: Compiled) -> None:
        self._kept[_shared(key)] = compiled

    def __delitem__(self, key: _Key) -> None:
        del self._kept[_shared(key)]

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def _shared(key: _Key) -> _Key:
    """Return the key with what of its dialect decides how a statement is written: servers may differ in release."""
    dialect: Dialect = key[0]
    return (type(dialect), dialect.server_version_info, getattr(dialect, "_backslash_escapes", None), *key[1:])


STATEMENTS = CompiledStatements()
"""Those of this process; any thread may use them."""
