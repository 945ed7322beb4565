"""Hosts as they would be with some more servers of one kind on each: what weighers and filters would say then."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skep.domain.resources import Resources
from skep.placement.hosts.columns import Floats, Ints
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView


class SupposedHosts(HostView):
    """Rows of the table, each with so many more claims on it. A row may stand there several times.

    What a claim changes is asked for through the methods here; who reads it from the table itself is told what is, not
    what would be (`Weigher.foreseeable`).
    """

    __slots__ = ("_more", "_resources")

    def __init__(self, table: HostTable, rows: NDArray[np.intp], more: Ints, resources: Resources) -> None:
        """`more`: of each row, how many claims; `resources`: what each of them takes."""
        super().__init__(table, rows)
        self._more = more
        self._resources = resources

    @property
    def servers(self) -> Ints:
        """Servers that each host would count, and those that would only be claimed yet."""
        return super().servers + self._more

    @property
    def io_ops(self) -> Ints:
        """Operations on whole disks that would be under way."""
        return super().io_ops + self._more

    def taken(self, resource_class: str) -> Ints:
        """Return what would be used and claimed of a resource class."""
        return super().taken(resource_class) + self._asked(resource_class)

    def free(self, resource_class: str) -> Ints:
        """Return what would be free of it."""
        return super().free(resource_class) - self._asked(resource_class)

    def free_share(self, resource_class: str) -> Floats:
        """Return the part of each host's own capacity that would be free."""
        if not self._resources.get(resource_class):
            return super().free_share(resource_class)
        capacity = self.capacity(resource_class)
        share: Floats = np.where(capacity > 0, self.free(resource_class) / np.maximum(capacity, 1), 0.0)
        return share

    def _asked(self, resource_class: str) -> Ints:
        return self._more * self._resources.get(resource_class, 0)
