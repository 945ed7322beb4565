"""Where a database is in its time, so that one that went back is noticed: restored, or a replica that had lagged."""

from __future__ import annotations

import msgspec

API = "api"
"""What moments call the API database; a cell's bear the cell's UUID."""


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """An observed state of a database. If a database is behind it, the database has lost writes."""

    database: str
    timeline: int
    """Raised each time the database is found to have gone back."""
    tick: int
    """Raised with every lease."""
    owner: str
    """The process that raised it: two lives of a database may count the same ticks."""

    @property
    def order(self) -> tuple[int, int]:
        """What grows as the database lives."""
        return (self.timeline, self.tick)


def later(one: Moment | None, other: Moment | None) -> Moment | None:
    """Return the later of two moments of one database; of two databases the second."""
    if one is None or other is None:
        return other if one is None else one
    if one.database != other.database:
        return other
    return one if one.order > other.order else other
