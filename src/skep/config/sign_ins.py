"""When a connection signs in anew: once a file by which it signed in was replaced, until it is let in."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
"""Seconds between two tries with the same files, doubled each time."""

Version = tuple[tuple[int, int], ...]


class SignIns:
    """The sign-ins that one connection has tried. `version` returns the present version of the files."""

    def __init__(self, version: Callable[[], Version], clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is due until the files change."""
        self._version = version
        self._clock = clock
        self._tried = self._used = version()
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self.failures = 0
        """Tries that failed since the last one that did not."""

    @property
    def is_followed(self) -> bool:
        """Whether the last sign-in that was taken is that of the files as they are."""
        return self._version() == self._used

    @property
    def is_due(self) -> bool:
        """Whether to sign in anew now: files that were not tried yet at once, those that failed after a pause."""
        version = self._version()
        return version != self._used and (version != self._tried or self._clock() >= self._not_before)

    def begin(self) -> None:
        """Note that the files are read now."""
        version = self._version()
        if version != self._tried:
            self._pause = FIRST_PAUSE
        self._tried = version

    def succeed(self) -> None:
        """Note that what was read is taken."""
        self._used, self.failures = self._tried, 0

    def fail(self) -> None:
        """Note that what was read is not taken, or that nothing answered."""
        self.failures += 1
        self._not_before = self._clock() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
