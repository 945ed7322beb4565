"""Nova's way of weighing: each weigher's values are scaled to 0..1 over the hosts that are left, then summed.

What a host is worth so depends on all others that are left, so every decision looks at each of them. The rules are
those of `nova/weights.py` and of the values that its weighers give; amounts are those that placement counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, Weigher

Rows = NDArray[np.intp]


class Weighed:
    """The hosts that are left, with their scores and what these consist of."""

    __slots__ = ("parts", "rows", "scores")

    def __init__(
        self,
        table: HostTable,
        request: PlacementRequest,
        weighers: Sequence[tuple[Weigher, float]],
        rows: Rows,
    ) -> None:
        """Weigh `rows`, which ascend."""
        hosts = HostView(table, rows)
        self.rows = rows
        self.scores: Floats = np.zeros(len(rows), dtype=np.float64)
        self.parts: dict[str, Floats] = {}
        """By weigher: its scaled values, before the multiplier. Of one host alone nothing is worked out."""
        if len(rows) < 2:
            return
        for weigher, multiplier in weighers:
            part = scaled(hosts, request, weigher)
            self.parts[weigher.name] = part
            column = hosts.multipliers(weigher.multiplier)
            self.scores += part * (multiplier if column is None else np.where(np.isnan(column), multiplier, column))

    def parts_of(self, row: int) -> dict[str, float]:
        """Return what each weigher gave a row; nothing where it was not weighed."""
        at = int(np.searchsorted(self.rows, row))
        if at == len(self.rows) or self.rows[at] != row:
            return {}
        return {name: part.item(at) for name, part in self.parts.items()}


def scaled(hosts: HostView, request: PlacementRequest, weigher: Weigher) -> Floats:
    """Return a weigher's values between 0 and 1; all 0 where they are equal."""
    way = weigher.scaled or Scaled(weigher.scores)
    values: Floats = way.values(hosts, request).astype(np.float64)
    if way.floor is not None:
        np.maximum(values, way.floor, out=values)
    least = values.min() if way.floor is None else way.floor
    span = values.max() - least
    if span == 0:
        return np.zeros(len(hosts), dtype=np.float64)
    if least != 0:
        values -= least
    values /= span
    return np.negative(values, out=values) if way.negated else values
