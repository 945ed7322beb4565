"""How well a cloud is used at one moment: shares that are in use, and free amounts that nobody can have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skep.placement.filters.inside import passing
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.simulator.events import AskedFor


def utilisation(table: HostTable) -> dict[str, float]:
    """Return the share of each resource class that is used or claimed, of all hosts together."""
    shares = {}
    size = table.size
    for name, amounts in sorted(table.resources.items()):
        capacity = int(amounts.capacity[:size].sum())
        if capacity > 0:
            shares[name] = 1.0 - int(amounts.free[:size].sum()) / capacity
    return shares


def fragmentation(table: HostTable, requests: Sequence[AskedFor]) -> dict[str, float]:
    """Return the share of each class's free amount that lies where the next request would not fit.

    The next request is one of `requests`, with its probability: the mean over them, as in Weng et al., "Beware of
    Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023), section 3.
    Amounts are looked at, also inside of hosts; traits of hosts are not.
    """
    size = table.size
    free = {name: np.maximum(amounts.free[:size], 0) for name, amounts in sorted(table.resources.items())}
    totals = {name: int(column.sum()) for name, column in free.items()}
    lost = dict.fromkeys(free, 0.0)
    for request in requests:
        fits: Mask = np.ones(size, dtype=np.bool_)
        for name, amount in request.resources.items():
            fits &= free[name] >= amount if name in free else np.zeros(size, dtype=np.bool_)
        if request.nested is not None:
            rows = fits.nonzero()[0]
            fits[rows] = passing(HostView(table, rows), request.nested)
        for name, column in free.items():
            lost[name] += request.share * int(column[~fits].sum())
    return {name: lost[name] / total if (total := totals[name]) else 0.0 for name in free}


def empty_hosts(table: HostTable) -> int:
    """Return how many hosts hold nothing."""
    size = table.size
    busy: Mask = np.zeros(size, dtype=np.bool_)
    for amounts in table.resources.values():
        busy |= amounts.free[:size] != amounts.capacity[:size]
    return int(size - np.count_nonzero(busy))
