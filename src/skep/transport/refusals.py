"""What a transport did not send or not hand over: counted, and warned of without flooding the log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

import structlog

Kind = Literal["call", "cast", "answer"]
Reason = Literal["overloaded", "away", "too_large", "slow_consumer"]
"""`overloaded`: a bound was reached; `away`: there was no connection; `too_large`: beyond what the wire takes;
`slow_consumer`: messages came faster than this process took them."""

OnRefused = Callable[[Kind, Reason], None]
"""Told of each."""

QUIET_SECONDS = 1.0
"""The same kind of refusal is logged at most once in this time, with how many there were since."""

log = structlog.get_logger("skep.transport")


class RefusedMessages:
    """Counts by kind of message and reason."""

    def __init__(self, on_refused: OnRefused | None = None, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[tuple[Kind, Reason]] = Counter()
        self._on_refused = on_refused
        self._monotonic = monotonic
        self._said: dict[tuple[Kind, Reason], tuple[float, int]] = {}
        """When each was logged last, and the count then."""

    def note(self, kind: Kind, reason: Reason, address: str) -> None:
        """Count one; the log names its address and how many there were since the last line."""
        what = (kind, reason)
        self.counts[what] += 1
        if self._on_refused is not None:
            self._on_refused(kind, reason)
        now = self._monotonic()
        when, count = self._said.get(what, (now - QUIET_SECONDS, 0))
        if now - when >= QUIET_SECONDS:
            since = self.counts[what] - count
            self._said[what] = (now, self.counts[what])
            log.warning("messages refused", kind=kind, reason=reason, address=address, count=since)
