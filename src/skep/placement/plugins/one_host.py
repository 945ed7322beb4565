"""One host as functions see it that judge hosts one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skep.domain.ids import NodeUuid
from skep.placement.hosts.table import HostTable


class OneHost:
    """A host that has reported, read-only. Holds nothing: do not keep it for the next decision."""

    __slots__ = ("_is_empty", "_row", "_table")

    def __init__(self, table: HostTable, row: int, *, is_empty: bool = False) -> None:
        """`is_empty`: show it as if nothing ran on it."""
        self._is_empty = is_empty
        self._table = table
        self._row = row

    @property
    def node(self) -> NodeUuid:
        """The UUID of its node, which never changes."""
        return self._table.nodes[self._row]

    @property
    def name(self) -> str:
        """The host's name."""
        return self._table.hosts[self._row]

    @property
    def cell(self) -> str:
        """The UUID of its cell."""
        return self._table.cell_of(self._row)

    @property
    def zone(self) -> str:
        """Its availability zone."""
        return self._table.zone_of(self._row)

    @property
    def metadata(self) -> tuple[Mapping[str, str], ...]:
        """The metadata of each of its aggregates, in the order of the aggregates' numbers."""
        return tuple(self._table.aggregates[number].metadata for number in self._table.aggregates_of_row(self._row))

    @property
    def failed_builds(self) -> int:
        """Builds failed since the last that succeeded."""
        return int(self._table.failed_builds[self._row])

    def has_trait(self, trait: str) -> bool:
        """Tell whether it reported a trait."""
        return bool(self._table.traits.having(trait, np.array([self._row]))[0])

    def capacity(self, resource_class: str) -> int:
        """Return (total - reserved) x ratio, in the units of the class; 0 without any."""
        amounts = self._table.resources.get(resource_class)
        return int(amounts.capacity[self._row]) if amounts else 0

    def free(self, resource_class: str) -> int:
        """Return what is neither used nor claimed."""
        if self._is_empty:
            return self.capacity(resource_class)
        amounts = self._table.resources.get(resource_class)
        return amounts.free_of(self._row) if amounts else 0

    def states(self, namespace: str) -> list[Mapping[str, Any]]:
        """Return what another service says of it (docs/namespaces.md)."""
        return self._table.joined.of_row(namespace, self._row)
