"""Who gets the next member: the hosts that have none yet, in their order, merged with those that have some.

The order of all hosts is not touched meanwhile. It is gone down once, as far as members need hosts; who was met stands
in the line of its cell, by what it is worth with the members that it has got.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from itertools import islice

import numpy as np

from skep.placement.batch.foreseeing import Foreseeing, ForeseenHost
from skep.placement.hosts.table import HostTable
from skep.placement.ranking.shapes import PASSED

_FEWEST_MET, _MOST_MET = 32, 512
"""So many hosts are looked at together."""
_PLACE_BITS = 96
_ROW_BITS = 32
_ROW = (1 << _ROW_BITS) - 1


class Merging:
    """Members of one request get hosts, one after the other."""

    def __init__(
        self,
        table: HostTable,
        foreseeing: Foreseeing,
        passing: Iterator[int],
        fitting: int,
        *,
        salt: int,
        members: int,
        others: int,
    ) -> None:
        """`passing`: those that fit, best first, of `fitting` in all; it may end early. `others`: alternates wanted."""
        self._table = table
        self._cell = table.cell.data
        self._foreseeing = foreseeing
        self._passing = passing
        self._fitting = fitting
        self._salt = np.uint64(salt)
        self._need = others + 1
        self._together = min(max(2 * members, _FEWEST_MET), _MOST_MET)
        self._hosts: dict[int, ForeseenHost] = {}
        self._lines: dict[int, list[int]] = {}
        """By cell: the keys of those that may get the next member, ascending. A key is score, place, row."""
        self._heads: list[int] = []
        """The last key of each line, ascending."""
        self._lowest = -1
        """The key of the last host that was met: whoever was not met has a lower one. -1: all were met."""
        self._ended = False
        if fitting:
            self._meet()

    def best(self) -> list[ForeseenHost] | None:
        """Return the best host and after it the best others of its cell; empty: nobody fits.

        None where that is not known, because the way down ended early.
        """
        while not self._heads or self._heads[-1] < self._lowest:
            if self._lowest < 0:
                return []
            if not self._meet():
                return None
        line = self._lines[self._cell[self._heads[-1] & _ROW]]
        need = self._need
        while self._lowest >= 0 and (len(line) < need or line[-need] < self._lowest):
            if not self._meet():
                return None
        hosts = self._hosts
        return [hosts[key & _ROW] for key in line[: -need - 1 : -1]]

    def take(self, host: ForeseenHost) -> int:
        """Let the best host have a member; return the filter that rejects it from then on, PASSED if none does."""
        key = self._heads.pop()
        line = self._lines[self._cell[key & _ROW]]
        line.pop()
        stage = self._foreseeing.take(host)
        if stage == PASSED:
            insort(line, _key(host))
        if line:
            insort(self._heads, line[-1])
        return stage

    def _meet(self) -> bool:
        """Go on down the order; tell whether there was anybody."""
        if self._ended:
            return False
        wanted = self._together
        rows = list(islice(self._passing, wanted))
        self._ended = len(rows) < wanted
        places = np.invert(self._table.node_hash[rows] - self._salt).tolist() if rows else []
        cells = self._table.cell[rows].tolist() if rows else []
        met = self._foreseeing.begin(rows, places) if rows else []
        for host, cell in zip(met, cells, strict=True):
            self._hosts[host.row] = host
            self._lines.setdefault(cell, []).append(_key(host))
        for line in self._lines.values():
            line.sort()
        self._heads = sorted(line[-1] for line in self._lines.values() if line)
        if len(self._hosts) == self._fitting:
            self._lowest, self._ended = -1, True
        elif met:
            self._lowest = _key(met[-1])
        return bool(met)


def _key(host: ForeseenHost) -> int:
    return host.states.ranks[host.at] << _PLACE_BITS | host.place << _ROW_BITS | host.row
