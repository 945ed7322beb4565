"""Says which filter or weigher of another package keeps its scheduler from everything else.

A decision waits for each plug-in that it asks, and the whole process with it. So only another thread can tell: it looks
four times a second whether the same question is still open. It ends nothing, since nobody can end a function of Python
from outside; and a function that never lets other threads run (native code, say) keeps this one waiting too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from skep.placement.plugins.guarding import Guard

SLOW_SECONDS = 1.0
"""How long a plug-in may run before it is named."""
LOOKS = 4
"""In that time."""

log = structlog.get_logger("skep.scheduler")


class PluginWatch:
    """A thread beside one scheduler, where plug-ins are chosen."""

    def __init__(
        self,
        guard: Guard,
        on_slow: Callable[[str], None],
        *,
        seconds: float = SLOW_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_slow` is told once, by the other thread, of each question that was open for so many `seconds`."""
        self._guard = guard
        self._on_slow = on_slow
        self._seconds = seconds
        self._monotonic = monotonic
        self._question = -1
        self._since = 0.0
        self._told: str | None = None
        """Who was named for the question that is open."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look, if there is any plug-in to look at."""
        if self._guard.guards:
            self._thread = threading.Thread(target=self._run, name="plugin-watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """Look once; name who has been running for too long."""
        now, (question, name) = self._monotonic(), self._guard.open
        if question != self._question or name is None:
            if self._told is not None:
                log.warning("slow plug-in answered", plugin=self._told)
            self._question, self._since, self._told = question, now, None
        elif self._told is None and now - self._since >= self._seconds:
            self._told = name
            log.error("plug-in did not answer yet, its scheduler waits for it", plugin=name)
            self._on_slow(name)

    def _run(self) -> None:
        while not self._ending.wait(self._seconds / LOOKS):
            self.look()
