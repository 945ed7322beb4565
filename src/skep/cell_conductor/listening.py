"""Since when this process could have heard hosts. What it could not have heard is nobody's silence."""

from __future__ import annotations

import time
from collections.abc import Callable


class Listening:
    """Looked at again and again; begins anew after each time in which this process could not hear."""

    def __init__(self, standstill: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take more than `standstill` seconds between two looks to mean that this process stood still."""
        self._standstill = standstill
        self._monotonic = monotonic
        self._since: float | None = None
        self._looked_at = 0.0

    def look(self, *, able: bool) -> None:
        """Note whether hosts can be heard now."""
        now = self._monotonic()
        if not able:
            self._since = None
        elif self._since is None or now - self._looked_at > self._standstill:
            self._since = now
        self._looked_at = now

    @property
    def since(self) -> float | None:
        """The reading of the monotonic clock since which hosts could be heard; None: they cannot be."""
        return self._since

    def heard_for(self, seconds: float) -> bool:
        """Tell whether hosts could be heard during all of the last `seconds`."""
        return self._since is not None and self._looked_at - self._since >= seconds
