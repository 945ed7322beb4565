"""Time: integers, microseconds since 1970-01-01 UTC."""

from __future__ import annotations

import datetime
import time
from functools import lru_cache
from typing import NewType

Timestamp = NewType("Timestamp", int)
"""Microseconds since the epoch, UTC."""

SECOND = 1_000_000


class Clock:
    """The system's wall clock. Tests pass one of their own making."""

    def now(self) -> Timestamp:
        """Return the current time in microseconds since the epoch."""
        return Timestamp(time.time_ns() // 1000)

    def elapsed(self) -> float:
        """Return seconds since some moment, by a clock that is never set and that counts while the machine sleeps."""
        return time.clock_gettime(_STEADY)


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def isoformat(at: int) -> str:
    """Format as Nova's API does: `2026-01-31T12:00:00Z`, whole seconds."""
    return _to_the_second(at // SECOND) + "Z"


def isoformat_micro(at: int) -> str:
    """Format with microseconds and without a zone, as Nova's actions and OS-SRV-USG fields do."""
    return f"{_to_the_second(at // SECOND)}.{at % SECOND:06}"


def parse_iso(text: str) -> Timestamp:
    """Parse an ISO 8601 date and time; without a zone it is taken as UTC.

    Raises ValueError when `text` is no such date.
    """
    parsed = datetime.datetime.fromisoformat(text.strip())
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=datetime.UTC)
    return Timestamp((parsed - _EPOCH) // _MICROSECOND)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


@lru_cache(maxsize=8192)
def _to_the_second(seconds: int) -> str:
    # Lists of servers have several times for each, some of them equal, and the next list has them again.
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()[:19]
