"""What hosts would be worth, and whether they would still fit, after one, two or more members of a request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.domain.builds import Alternate
from skep.placement.batch.supposed import SupposedHosts
from skep.placement.choice import alternate
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.ranking.order import ranks
from skep.placement.ranking.shapes import PASSED
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Weigher, multiplied

_FIRST_STATES = 3
"""What a host is before any member, and after one and two: spread members seldom ask for more."""


def can_foresee(filters: Sequence[tuple[int, Filter]], weighers: Sequence[tuple[Weigher, float]]) -> bool:
    """Tell whether these can be asked about hosts as they would be."""
    return all(entry.foreseeable for _, entry in filters) and all(weigher.foreseeable for weigher, _ in weighers)


class States:
    """What some hosts would be after so many members each: one state after the other, host by host."""

    __slots__ = ("parts", "ranks", "stages")

    def __init__(self, scores: Floats, stages: NDArray[np.uint8], parts: Floats) -> None:
        self.ranks: list[int] = ranks(scores).tolist()
        """Scores, as numbers that are ordered alike."""
        self.stages: list[int] = stages.tolist()
        """The filter that would reject the host, PASSED if none would."""
        self.parts = parts
        """What each weigher would give it, before the multiplier."""


class ForeseenHost(msgspec.Struct, eq=False, gc=False):
    """One candidate, and what it is with the members that it has got."""

    row: int
    place: int
    """The larger the earlier it comes among hosts of the same score."""
    states: States
    at: int
    """Where the state of now is among these."""
    known: int
    """With so many members nothing is known of it yet."""
    after: int = 0
    """Members that it has got."""
    alternate: Alternate | None = None
    shown: dict[str, float] | None = None
    """What each weigher gives it now, once somebody wanted to know."""


class Foreseeing:
    """Asks the filters and weighers of one request about hosts as they would be."""

    def __init__(
        self,
        table: HostTable,
        request: PlacementRequest,
        filters: Sequence[tuple[int, Filter]],
        weighers: Sequence[tuple[Weigher, float]],
    ) -> None:
        """`filters`: those that look at what claims change, with their number in the stage column."""
        self._table = table
        self._request = request
        self._filters = filters
        self._weighers = weighers
        self._names = [weigher.name for weigher, _ in weighers]

    def begin(self, rows: list[int], places: list[int]) -> list[ForeseenHost]:
        """Look at hosts that fit now."""
        states = self._look(rows, 0, _FIRST_STATES)
        starts = range(0, len(rows) * _FIRST_STATES, _FIRST_STATES)
        return [
            ForeseenHost(row, place, states, at, _FIRST_STATES)
            for row, place, at in zip(rows, places, starts, strict=True)
        ]

    def take(self, host: ForeseenHost) -> int:
        """Let a host have one more member; return the filter that rejects it from then on, PASSED if none does."""
        host.after += 1
        host.at += 1
        host.shown = None
        if host.after == host.known:
            host.states, host.at = self._look([host.row], host.known, host.known), 0
            host.known *= 2
        return host.states.stages[host.at]

    def shown(self, host: ForeseenHost) -> dict[str, float]:
        """Return what each weigher gives a host now, before its multiplier. Callers must not change it."""
        if host.shown is None:
            host.shown = dict(zip(self._names, host.states.parts[host.at].tolist(), strict=True))
        return host.shown

    def alternate(self, host: ForeseenHost) -> Alternate:
        """Return a host as an alternate."""
        if host.alternate is None:
            host.alternate = alternate(self._table, host.row)
        return host.alternate

    def _look(self, rows: list[int], first: int, count: int) -> States:
        """Return what each host would be after `first` members and the next numbers of them, so many in all."""
        every = np.array(rows, dtype=np.intp).repeat(count)
        more = np.tile(np.arange(first, first + count, dtype=np.int64), len(rows))
        supposed = SupposedHosts(self._table, every, more, self._request.resources)
        parts = np.empty((len(every), len(self._weighers)), dtype=np.float64)
        score = np.zeros(len(every), dtype=np.float64)
        for number, (weigher, multiplier) in enumerate(self._weighers):
            part = parts[:, number] = weigher.scores(supposed, self._request)
            score += multiplied(supposed, weigher, multiplier, part)
        stage = np.full(len(every), PASSED, dtype=np.uint8)
        for number, entry in self._filters:
            passed = entry.passes(supposed, self._request)
            stage = np.where(passed, stage, np.minimum(stage, np.uint8(number)))
        return States(score, stage, parts)
