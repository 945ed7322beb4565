"""Which hosts could hold a server if nothing ran on them and they were up and enabled.

Explanations tell by it whether a request could never be held or only not now, and `capacity.py` which hosts are
suitable at all.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Floats, Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class EmptyHosts(HostView):
    """The same hosts as if nothing ran on them, and nothing were claimed. What they reported else is as it is."""

    __slots__ = ()

    @property
    def servers(self) -> Ints:
        """None on each."""
        return np.zeros(len(self), dtype=np.int64)

    @property
    def io_ops(self) -> Ints:
        """None on each."""
        return np.zeros(len(self), dtype=np.int64)

    def taken(self, resource_class: str) -> Ints:  # noqa: ARG002  # nothing of any
        """Return nothing for each."""
        return np.zeros(len(self), dtype=np.int64)

    def free(self, resource_class: str) -> Ints:
        """Return all that each has to give."""
        return self.capacity(resource_class)

    def free_share(self, resource_class: str) -> Floats:
        """Return the whole of what each has."""
        shares: Floats = (self.capacity(resource_class) > 0).astype(np.float64)
        return shares


def passing(entry: Filter, hosts: EmptyHosts, request: PlacementRequest) -> Mask | None:
    """Return whom a filter would let through; None: it cannot say.

    Nobody is ruled out by what he would have to report, and has not.
    """
    if entry.if_empty is not None:
        passed = entry.if_empty(hosts, request)
    elif _says_the_same(entry):
        passed = entry.passes(hosts, request)
    else:
        return None
    return passed if passed is None or entry.from_operator else passed | ~hosts.reported


def _says_the_same(entry: Filter) -> bool:
    """Tell whether a filter judges facts of the host, and of the request what all of its shape have in common."""
    return entry.steady and not entry.per_request


def could_hold(hosts: EmptyHosts, filters: Iterable[Filter], request: PlacementRequest) -> Mask:
    """Return who could hold the server, for all that is known. A filter that cannot say rules out nobody."""
    mask = hosts.mapped.copy()
    for entry in filters:
        passed = passing(entry, hosts, request)
        if passed is not None:
            mask &= passed
    return mask


def cannot_say(table: HostTable, filters: Iterable[Filter], request: PlacementRequest) -> tuple[str, ...]:
    """Return the stages that `could_hold` leaves aside, in the words that users read."""
    nobody = EmptyHosts(table, np.zeros(0, dtype=np.intp))
    silent = (
        entry
        for entry in filters
        if (not _says_the_same(entry) if entry.if_empty is None else entry.if_empty(nobody, request) is None)
    )
    return tuple(dict.fromkeys(entry.stage(request) for entry in silent))
