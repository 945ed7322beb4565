"""Claims that come or go together, counted in one pass over the columns."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

import numpy as np

from skep.domain.claims import Claim
from skep.domain.resources import Resources
from skep.placement.hosts.columns import Ints
from skep.placement.hosts.table import HostTable

_RESOURCES, _NODE = attrgetter("resources"), attrgetter("node")


def count(table: HostTable, claims: Iterable[Claim], sign: int = 1) -> None:
    """Count what these claims take of their hosts; with `sign` -1, count it no longer.

    Of a claim that holds parts of a host, these are not looked at.
    """
    alike: dict[int, tuple[Resources, list[int]]] = {}
    for resources, some in groupby(claims, _RESOURCES):
        _, mine = alike.setdefault(id(resources), (resources, []))
        mine.extend(map(table.row_of.__getitem__, map(_NODE, some)))
    if not alike:
        return
    every = np.concatenate([np.array(rows, dtype=np.int64) for _, rows in alike.values()])
    rows, places = np.unique(every, return_inverse=True)
    changes: dict[str, Ints] = {}
    begin = 0
    for resources, mine in alike.values():
        number = np.bincount(places[begin : begin + len(mine)], minlength=len(rows))
        begin += len(mine)
        for name, amount in resources.items():
            change = sign * amount * number
            changes[name] = changes[name] + change if name in changes else change
    table.claimed_servers[rows] += sign * np.bincount(places, minlength=len(rows))
    crossed = np.zeros(len(rows), dtype=np.bool_)
    for name, change in changes.items():
        free = table.amounts(name).add_all_claimed(rows, change)
        crossed |= table.levels.cross_all(name, rows, free + change, free)
    table.log.all_claimed(rows, rows[crossed])
