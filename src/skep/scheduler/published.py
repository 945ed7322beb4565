"""What operators publish of cells and aggregates, as the table of hosts holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class CellFlags:
    """What is known of one cell."""

    code: int
    known: bool = False
    """The operator has named it."""
    disabled: bool = False
    asserted: bool = False
    living: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: hosts by name, and its metadata."""

    hosts: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)


class Memberships:
    """The aggregates of each host by name, in order. Hosts in the same aggregates share one tuple."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, ...]] = {}
        self._alike: dict[tuple[int, ...], tuple[int, ...]] = {}

    def of(self, host: str) -> tuple[int, ...]:
        """Return the aggregates of a host."""
        return self._of.get(host, ())

    def join(self, host: str, number: int) -> None:
        """Note that a host is in an aggregate now."""
        self._set(host, tuple(sorted((*self.of(host), number))))

    def leave(self, host: str, number: int) -> None:
        """Note that a host is not in an aggregate any more."""
        self._set(host, tuple(other for other in self.of(host) if other != number))

    def _set(self, host: str, numbers: tuple[int, ...]) -> None:
        if numbers:
            self._of[host] = self._alike.setdefault(numbers, numbers)
        else:
            self._of.pop(host, None)
