"""How much work something makes, counted and not timed: calls of functions, statements, memory at its peak.

Two sizes of an input are compared. Work that grows with the size doubles; work that grows with its square becomes four
times as much, on any machine.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

LINEAR = 2.6
"""How many times as much twice the size may take: what grows faster than n log n takes four times."""
ALWAYS = {"calls": 400, "statements": 2, "characters": 2_000, "peak": 96 * 1024}
"""What may come on top whatever the size is: caches that are filled, tables that grow."""


@dataclass
class Work:
    """What was counted."""

    calls: int = 0
    """Of functions, in all threads that began while it was watched, and in the one that watches."""
    statements: int = 0
    characters: int = 0
    """Of statements, which have one condition for each thing that is asked."""
    peak: int = 0
    """Bytes held at once beyond what was held before."""
    _begun: list[int] = field(default_factory=list)

    def grows_no_faster_than(self, less: Work) -> list[str]:
        """Return what grew faster than the size, which is twice that of `less`."""
        return [
            f"{name}: {getattr(less, name)} -> {getattr(self, name)}"
            for name, always in ALWAYS.items()
            if getattr(self, name) > LINEAR * getattr(less, name) + always
        ]


class Watch:
    """Counts what happens between `begin` and `end`. Threads that are to be counted are started inside `watching`."""

    def __init__(self) -> None:
        self._work = Work()
        self._on = False

    def begin(self) -> None:
        """Begin to count."""
        self._work = Work()
        tracemalloc.start()
        self._on = True

    def end(self) -> Work:
        """Return what was counted since."""
        self._on = False
        self._work.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return self._work

    def of(self, act: Callable[[], object]) -> Work:
        """Return the work of an act."""
        self.begin()
        try:
            act()
        finally:
            work = self.end()
        return work

    def called(self, _frame: Any, what: str, _argument: Any) -> None:
        """Count a call; Python's own hook."""
        if self._on and what in ("call", "c_call"):
            self._work.calls += 1

    def asked(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        """Count a statement; SQLAlchemy's hook."""
        if self._on:
            self._work.statements += 1
            self._work.characters += len(statement)


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Have calls and statements seen. Garbage of what ran before is collected first, and none while it lasts.

    Its finalizers would be counted as calls of whatever runs when the collector happens to begin.
    """
    watch = Watch()
    gc.collect()
    gc.disable()
    event.listen(sa.Engine, "before_cursor_execute", watch.asked)
    threading.setprofile(watch.called)
    sys.setprofile(watch.called)
    try:
        yield watch
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()
        event.remove(sa.Engine, "before_cursor_execute", watch.asked)
