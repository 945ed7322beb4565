"""What the units of one transaction share: it is made for the first that asks, and all of them store it together.

with once.shared(connection):
    ...
    moment = once.made(connection, key, make)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa

T = TypeVar("T")


class _Thread(threading.local):
    connection: sa.Connection | None = None
    values: dict[Hashable, Any]


_thread = _Thread()


@contextlib.contextmanager
def shared(connection: sa.Connection) -> Iterator[None]:
    """Share what is made in the transaction that this thread begins and ends within."""
    _thread.connection, _thread.values = connection, {}
    try:
        yield
    finally:
        _thread.connection = None


def forget() -> None:
    """Make everything anew: a unit was undone, and maybe with it what was made for it."""
    _thread.values = {}


def made(connection: sa.Connection, key: Hashable, make: Callable[[], T]) -> T:
    """Return what `make` returned for the first that asked in this transaction; outside of `shared`, make it anew."""
    if _thread.connection is not connection:
        return make()
    if key not in _thread.values:
        _thread.values[key] = make()
    value: T = _thread.values[key]
    return value
