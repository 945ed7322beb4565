"""Which aggregates each host is in, and so its zone. Aggregates name hosts; rows of the table have hosts' names."""

from __future__ import annotations

from collections.abc import Iterable

from skep.placement.hosts.aggregate_limits import AggregateLimits
from skep.placement.hosts.host_columns import HostColumns
from skep.placement.hosts.names import RowNames
from skep.placement.hosts.published import DEFAULT_ZONE, ZONE_KEY


class Memberships:
    """Keeps the table's columns `membership` and `zone` up to date, and what aggregates say of hosts to come.

    Aggregates of a host stand in order of their ids.
    """

    def __init__(self, table: HostColumns, names: RowNames, limits: AggregateLimits) -> None:
        """`names`: those of the hosts of all rows. `limits`: what aggregates leave of their hosts."""
        self._table = table
        self._names = names
        self._limits = limits
        self._zones = {DEFAULT_ZONE: 0}
        """Place of each zone in the table's list of zones."""
        self._to_come: dict[str, tuple[int, ...]] = {}
        """Aggregates of hosts that no row is named after."""
        self._alike: dict[tuple[int, ...], tuple[int, ...]] = {}
        """Hosts to come that are in the same aggregates share one tuple."""
        self._most = 0
        """Hosts to come, as many as there were since memory was given back."""

    def of(self, host: str) -> tuple[int, ...]:
        """Return the aggregates of a host."""
        row = self._names.first(host)
        return self._to_come.get(host, ()) if row is None else self.of_row(row)

    def of_row(self, row: int) -> tuple[int, ...]:
        """Return the aggregates of a row's host."""
        return self._table.aggregates_of_row(row)

    def regroup(self, number: int, before: Iterable[str], after: Iterable[str]) -> None:
        """Note which hosts an aggregate names now instead of others; the zone of those who stay may be new too."""
        left, joined = set(before), set(after)
        for host in left | joined:
            numbers = {*self.of(host)} - {number}
            if host in joined:
                numbers.add(number)
            ordered, rows = tuple(sorted(numbers)), self._names.rows(host)
            for row in rows:
                self._set_row(row, ordered)
            if not rows:
                self._await(host, ordered)

    def rename(self, row: int, host: str) -> None:
        """Give a row the name of another host."""
        former, left, numbers = self._names.names[row], self.of_row(row), self.of(host)
        self._names.assign(row, host)
        if former and self._names.first(former) is None:
            self._await(former, left)
        self._await(host, ())
        self._set_row(row, numbers)

    def _set_row(self, row: int, numbers: tuple[int, ...]) -> None:
        table = self._table
        table.membership.set_row(row, numbers)
        if table.multipliers.names:
            table.multipliers.set_row(row, numbers)
        named = (table.aggregates[number].metadata.get(ZONE_KEY) for number in numbers)
        zone = next((name for name in named if name), DEFAULT_ZONE)
        if zone not in self._zones:
            self._zones[zone] = len(table.zones)
            table.zones.append(zone)
        table.zone[row] = self._zones[zone]
        self._limits.limit((row,))
        table.log.facts(row)

    def _await(self, host: str, numbers: tuple[int, ...]) -> None:
        if numbers:
            self._to_come[host] = self._alike.setdefault(numbers, numbers)
            self._most = max(self._most, len(self._to_come))
        elif self._to_come.pop(host, None) and len(self._to_come) < self._most // 4:
            self._to_come = dict(self._to_come)  # a dict gives nothing back while it shrinks
            self._most = len(self._to_come)
