"""Topology spread: which domains (hosts, racks, zones) may get the next member of a server group.

As in Kubernetes a domain counts if some host in it could be chosen for all that does not depend on what is free: zone,
traits, aggregates, being up and enabled. So a domain that is full still holds the others back, and one that is switched
off does not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skep.domain.groups import SpreadConstraint
from skep.domain.ids import InstanceUuid
from skep.domain.spread import RACK
from skep.scheduler.columns import Ints, Mask
from skep.scheduler.groups import GroupSlot
from skep.scheduler.table import HostTable

Codes = NDArray[np.int32]
"""The number of each row's domain."""
NOWHERE = 0
"""The number for rows in no domain: a host without a rack."""
_MOST_SHAPES = 64


@dataclass(frozen=True, slots=True)
class Domains:
    """One constraint, and how the other members of the group stand to it now."""

    constraint: SpreadConstraint
    codes: Codes
    excess: Ints
    """By number of the domain: by how much one more member there would exceed the skew; 0 or less: it would not."""

    def allowed(self) -> Mask:
        """Return which rows may get one more member."""
        may = self.excess <= 0
        may[NOWHERE] = False
        result: Mask = may[self.codes]
        return result


class Spreading:
    """Knows the domain of each row of a table, and which domains count for which shape of request."""

    def __init__(self, table: HostTable) -> None:
        self._table = table
        self._racks = _Racks(table)
        self._eligible: OrderedDict[tuple[object, ...], tuple[int, int, Mask]] = OrderedDict()

    def domains(
        self,
        constraints: Iterable[SpreadConstraint],
        shape: tuple[object, ...],
        judged: Mask,
        slots: Iterable[GroupSlot],
        instance: InstanceUuid,
    ) -> tuple[Domains, ...]:
        """Return how the other members stand to each constraint.

        `judged`: which rows pass all filters that do not look at what is free; the same for equal shapes while no facts
        of hosts change.
        """
        others = [
            (slot.instance, row)
            for slot in slots
            if slot.instance != instance and (row := self._table.row_of.get(slot.node)) is not None
        ]
        return tuple(self._domains(constraint, shape, judged, others) for constraint in constraints)

    def _domains(
        self,
        constraint: SpreadConstraint,
        shape: tuple[object, ...],
        judged: Mask,
        others: list[tuple[InstanceUuid, int]],
    ) -> Domains:
        codes, number = self._codes(constraint.key)
        counts = np.zeros(number, dtype=np.int64)
        for _, code in {(instance, codes.item(row)) for instance, row in others}:
            counts[code] += 1
        eligible = self._which(constraint.key, shape, judged, codes, number)
        least = counts[eligible].min(initial=len(others)) if eligible.any() else 0
        return Domains(constraint, codes, counts + (1 - least - constraint.max_skew))

    def _which(self, key: str, shape: tuple[object, ...], judged: Mask, codes: Codes, number: int) -> Mask:
        """Return which domains count, remembered while no facts of hosts change."""
        name = (key, *shape)
        now = (self._table.log.facts_noted, len(codes))
        known = self._eligible.get(name)
        if known is not None and known[:2] == now and len(known[2]) == number:
            self._eligible.move_to_end(name)
            return known[2]
        eligible: Mask = np.zeros(number, dtype=np.bool_)
        eligible[codes[judged]] = True
        eligible[NOWHERE] = False
        self._eligible[name] = (*now, eligible)
        if len(self._eligible) > _MOST_SHAPES:
            self._eligible.popitem(last=False)
        return eligible

    def _codes(self, key: str) -> tuple[Codes, int]:
        """Return the number of each row's domain, and one more than the largest."""
        table = self._table
        if key == "zone":
            return table.zone[: table.size] + np.int32(1), len(table.zones) + 1
        if key == "host":
            return np.arange(1, table.size + 1, dtype=np.int32), table.size + 1
        return self._racks.codes()


class _Racks:
    """The rack of each row: what its first aggregate with that metadata says."""

    def __init__(self, table: HostTable) -> None:
        self._table = table
        self._codes: Codes = np.zeros(0, dtype=np.int32)
        self._code_of: dict[str, int] = {}
        self._position = -1
        self._noted = -1
        """How many facts had been noted when the column was brought up to date."""

    def codes(self) -> tuple[Codes, int]:
        table = self._table
        if self._noted != table.log.facts_noted or len(self._codes) != table.size:
            changed = table.log.since(self._position, max(16, table.size // 4)) if self._position >= 0 else None
            rows: Iterable[int] = range(table.size)
            if changed is None:
                self._codes = np.zeros(table.size, dtype=np.int32)
            else:
                self._codes = np.concatenate((self._codes, np.zeros(table.size - len(self._codes), dtype=np.int32)))
                rows = changed.facts.tolist()
            for row in rows:
                self._codes[row] = self._code(row)
            self._noted = table.log.facts_noted
        self._position = table.log.position
        return self._codes, len(self._code_of) + 1

    def _code(self, row: int) -> int:
        table = self._table
        numbers = table.aggregates_of(table.hosts[row])
        rack = next((name for number in numbers if (name := _rack(table.aggregates[number].metadata))), None)
        return NOWHERE if rack is None else self._code_of.setdefault(rack, len(self._code_of) + 1)


def _rack(metadata: Mapping[str, str]) -> str | None:
    return metadata.get(RACK)
