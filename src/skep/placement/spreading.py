"""Topology spread: which domains (hosts, racks, zones) may get the next member of a server group.

As in Kubernetes a domain counts if some host in it could be chosen for all that does not depend on what is free: zone,
traits, aggregates, being up and enabled. So a domain that is full still holds the others back, and one that is switched
off does not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.domain.groups import SpreadConstraint
from skep.domain.ids import InstanceUuid
from skep.domain.spread import RACK
from skep.placement.groups import GroupSlot
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable

Codes = NDArray[np.int32]
"""The number of each row's domain."""
NOWHERE = 0
"""The number for rows in no domain: a host without a rack."""
_MOST_SHAPES = 64


class Domains(msgspec.Struct, frozen=True, eq=False):
    """One constraint, and how the other members of the group stand to it now."""

    constraint: SpreadConstraint
    codes: Codes
    excess: Ints
    """By number of the domain: by how much one more member there would exceed the skew; 0 or less: it would not."""
    fitting: Ints
    """By number of the domain: hosts that all filters let through that look at the shape of the request alone."""

    def may(self) -> Mask:
        """Return which domains may get one more member, by their number."""
        may: Mask = self.excess <= 0
        may[NOWHERE] = False
        return may

    def has_none(self) -> bool:
        """Tell whether no host is in any such domain."""
        return not self.fitting[NOWHERE + 1 :].any() and not self.codes.any()

    def allowed(self) -> Mask:
        """Return which rows may get one more member."""
        result: Mask = self.may()[self.codes]
        return result


class Passing(msgspec.Struct, frozen=True, eq=False):
    """Who passes the filters that all requests of one shape share."""

    shape: tuple[object, ...]
    judged: Callable[[], Mask]
    """Which rows pass all that do not look at what is free: the same while no facts of hosts change."""
    fitting: Callable[[], Mask]
    """Which rows pass all of them."""
    state: object
    """Another object when other rows fit of those that were mapped already."""


class _ShapeDomains:
    """What is known of the domains of one key for one shape."""

    __slots__ = ("eligible", "eligible_at", "fitting", "fitting_at")

    def __init__(self) -> None:
        self.eligible_at: tuple[int, int, int] | None = None
        self.eligible: Mask = np.zeros(0, dtype=np.bool_)
        """Which domains count."""
        self.fitting_at: tuple[object, Codes, int] | None = None
        self.fitting: Ints = np.zeros(0, dtype=np.int64)
        """How many rows of each fit."""


class Spreading:
    """Knows the domain of each row of a table, and which domains count for which shape of request."""

    def __init__(self, table: HostTable) -> None:
        self._table = table
        self._racks = _Racks(table)
        self._known: OrderedDict[tuple[str, tuple[object, ...]], _ShapeDomains] = OrderedDict()
        self._zones: Codes = np.zeros(0, dtype=np.int32)
        self._zones_at = -1
        """How many facts had been noted when the zones were read."""
        self._rows: Codes = np.zeros(0, dtype=np.int32)

    def domains(
        self,
        constraints: Iterable[SpreadConstraint],
        passing: Passing,
        slots: Iterable[GroupSlot],
        instance: InstanceUuid,
    ) -> tuple[Domains, ...]:
        """Return how the other members stand to each constraint."""
        row_of = self._table.row_of
        others = [
            (slot.instance, row_of[slot.node]) for slot in slots if slot.instance != instance and slot.node in row_of
        ]
        return tuple([self._domains(constraint, passing, others) for constraint in constraints])

    def _domains(
        self, constraint: SpreadConstraint, passing: Passing, others: list[tuple[InstanceUuid, int]]
    ) -> Domains:
        codes, number = self._codes(constraint.key)
        known = self._of_shape(constraint.key, passing.shape)
        self._look(known, passing, codes, number)
        counts = np.zeros(number, dtype=np.int64)
        code_of = codes.data
        for _, code in {(instance, code_of[row]) for instance, row in others}:
            counts[code] += 1
        counted = counts[known.eligible]
        least = int(np.minimum.reduce(counted)) if len(counted) else 0
        return Domains(constraint, codes, counts + (1 - least - constraint.max_skew), known.fitting)

    def _of_shape(self, key: str, shape: tuple[object, ...]) -> _ShapeDomains:
        name = (key, shape)
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _ShapeDomains()
            if len(self._known) > _MOST_SHAPES:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(name)
        return known

    def _look(self, known: _ShapeDomains, passing: Passing, codes: Codes, number: int) -> None:
        """Find out which domains count and how many rows of each fit, unless that is known still."""
        now = (self._table.log.facts_noted, len(codes), number)
        if known.eligible_at != now:
            known.eligible = np.zeros(number, dtype=np.bool_)
            known.eligible[codes[passing.judged()]] = True
            known.eligible[NOWHERE] = False
            known.eligible_at = now
        at, noted = known.fitting_at, self._table.log.facts_noted
        if at is None or at[0] is not passing.state or at[1] is not codes or at[2] != noted:
            known.fitting = np.bincount(codes[passing.fitting()], minlength=number)
            known.fitting_at = (passing.state, codes, noted)

    def _codes(self, key: str) -> tuple[Codes, int]:
        """Return the number of each row's domain, and one more than the largest. Another object when they change."""
        table = self._table
        if key == "rack":
            return self._racks.codes()
        if key == "zone":
            if self._zones_at != table.log.facts_noted:
                self._zones = table.zone[: table.size] + np.int32(1)
                self._zones_at = table.log.facts_noted
            return self._zones, len(table.zones) + 1
        if len(self._rows) != table.size:
            self._rows = np.arange(1, table.size + 1, dtype=np.int32)
        return self._rows, table.size + 1


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
        numbers = table.aggregates_of_row(row)
        rack = next((name for number in numbers if (name := _rack(table.aggregates[number].metadata))), None)
        return NOWHERE if rack is None else self._code_of.setdefault(rack, len(self._code_of) + 1)


def _rack(metadata: Mapping[str, str]) -> str | None:
    return metadata.get(RACK)
