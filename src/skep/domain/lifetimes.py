"""The hint `lifetime`: for how long its user expects a server to live."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skep.domain.clock import SECOND

HINT = "lifetime"
MOST_SECONDS = 100 * 365 * 86_400
"""A hundred years: with them the end is still a number that every reader of JSON can hold."""


class Lifetime(msgspec.Struct, frozen=True):
    """From when to when a server is expected to be there, microseconds since the epoch. Nothing ends it."""

    begin: int
    end: int
    """Later than `begin`."""


def read_hint(given: Mapping[str, object]) -> int | None:
    """Return the seconds that the hint names; None where it was not given.

    Raises ValueError, saying what was expected, for anything but a positive whole number or its digits.
    """
    if HINT not in given:
        return None
    said = given[HINT]
    seconds = int(said) if isinstance(said, str) and said.isascii() and said.isdigit() and len(said) < 20 else said
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= MOST_SECONDS:
        raise ValueError(f"how many seconds the server will live, a whole number, 1 to {MOST_SECONDS}")
    return seconds


def lifetime_from(given: Mapping[str, object], now: int) -> Lifetime | None:
    """Return the lifetime of a server requested `now`; None: no hint gives one. Raises as `read_hint`."""
    seconds = read_hint(given)
    return None if seconds is None else Lifetime(begin=now, end=now + seconds * SECOND)
