"""How many more servers of each kind would fit, and what hosts are worth to whoever comes next.

The worth of a host is the sum, over the kinds of servers that are asked for lately, of how many of each would still fit
there: its *slots*. A decision that leaves many slots of large and frequent kinds leaves little stranded. This counts
what "Beware of Fragmentation" (Weng et al., USENIX ATC 2023) calls the fragmentation gradient, in slots instead of in
GPUs, so that it holds for any resource.

A host is its flat amounts and its *parts*: NUMA cells, or devices that are shared. A server takes some of the flat
amounts, and the same amounts of each of so many different parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.placement.hosts.columns import Floats, Ints

_ANY = np.inf
"""As many slots as a kind has that asks for nothing."""
_DIGITS = 9
"""Worth is rounded to so many digits, so that it does not depend on the order in which numbers were added."""


class ServerKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of server. Amounts are in the order of the columns that are looked at."""

    flat: tuple[int, ...]
    """Of the host as a whole."""
    part: tuple[int, ...] = ()
    """Of each part that it takes; empty or all 0: it takes none."""
    parts: int = 1
    """From so many different parts."""
    count: float = 1.0
    """How often it is asked for, against others."""


class Worthing(msgspec.Struct, frozen=True, kw_only=True):
    """What counts for how much."""

    size_exponent: float = 0.5
    """A kind counts as often as it is asked for, times its size to this power; its size is its mean share of an
    average host."""
    slot_exponent: float = 0.5
    """Slots of one host count to this power; below 1 the last slot of a host counts for more than the others."""
    departures: int = 1
    """Slots are also counted as if a share of what runs had gone: for so many shares, evenly from none on."""
    departures_decay: float = 0.64
    """Each further tenth of what runs that must go first counts for less by this factor."""


class HostAmounts(msgspec.Struct, frozen=True, eq=False):
    """What is free on some hosts, and what they have: a row for each host."""

    flat: Ints
    """Hosts x classes."""
    flat_capacity: Ints
    part: Ints
    """Hosts x parts x classes; parts that a host does not have are 0."""
    part_capacity: Ints


class Worth:
    """The worth of hosts under one mix of kinds."""

    def __init__(self, kinds: Sequence[ServerKind], how: Worthing, *, mean_flat: Floats, mean_part: Floats) -> None:
        """`mean_flat`, `mean_part`: what an average host has, of parts in sum; it says how large a kind is."""
        self._flat = np.array([kind.flat for kind in kinds], dtype=np.int64).reshape(len(kinds), len(mean_flat))
        self._part = np.array([kind.part or (0,) * len(mean_part) for kind in kinds], dtype=np.int64)
        self._part = self._part.reshape(len(kinds), len(mean_part))
        self._parts = np.array([kind.parts for kind in kinds], dtype=np.int64)
        self._in_parts = self._part.any(axis=1)
        self._some_in_parts = bool(self._in_parts.any())
        self._of_flat, self._of_parts = _Asked(self._flat), _Asked(self._part[self._in_parts])
        self._all_ask = bool((self._flat.any(axis=1) | self._in_parts).all())
        counts = np.array([kind.count for kind in kinds], dtype=np.float64)
        sizes = np.concatenate((shares(self._flat, mean_flat), shares(self._part * self._parts[:, None], mean_part)), 1)
        weights = counts * sizes.mean(axis=1) ** how.size_exponent
        self._weights: Floats = weights / max(float(weights.sum()), np.finfo(np.float64).tiny)
        self._exponent = how.slot_exponent
        self._gone = np.arange(how.departures) / how.departures
        likely = how.departures_decay ** (10 * self._gone)
        self._likely: Floats = likely / likely.sum()

    def of(self, hosts: HostAmounts) -> Floats:
        """Return the worth of each host."""
        slots = self.slots(self._later(hosts.flat, hosts.flat_capacity), self._later(hosts.part, hosts.part_capacity))
        counted = slots if self._exponent == 1 else slots**self._exponent
        worth = self._likely @ (counted @ self._weights).reshape(len(self._likely), len(hosts.flat))
        rounded: Floats = np.round(worth, _DIGITS)
        return rounded

    def _later(self, free: Ints, capacity: Ints) -> Ints:
        """Return what is free when each share of what runs has gone, one share after the other."""
        if self._gone.size == 1:
            return free
        gone = self._gone.reshape(-1, *(1,) * free.ndim)
        later: Ints = (free + (gone * (capacity - free)).astype(np.int64)).reshape(
            gone.size * len(free), *free.shape[1:]
        )
        return later

    def slots(self, flat: Ints, part: Ints) -> Floats:
        """Return hosts x kinds: how many of each kind would fit if no other kind came. Whole numbers."""
        slots = self._of_flat.times(flat)
        if self._some_in_parts:
            slots[:, self._in_parts] = np.minimum(slots[:, self._in_parts], self._in(part))
        if not self._all_ask:
            slots[slots == _ANY] = 0
        return slots

    def _in(self, part: Ints) -> Floats:
        """Return how many find their parts: the most rounds in which as many different parts are there as one takes."""
        parts = self._parts[self._in_parts]
        times = self._of_parts.times(part)
        rounds: Floats = np.floor(times.sum(axis=1) / parts)
        while True:
            # Of a part only as many count as there are rounds: each server takes from it once.
            fewer = np.floor(np.minimum(times, rounds[:, None, :]).sum(axis=1) / parts)
            if (fewer == rounds).all():
                return rounds
            rounds = fewer


def shares(amounts: Ints, of: Floats) -> Floats:
    """Return amounts as shares of a host; of what no host has, none."""
    result: Floats = np.divide(amounts, of, out=np.zeros(amounts.shape, dtype=np.float64), where=of > 0)
    return result


class _Asked:
    """What kinds ask for, prepared for dividing by it."""

    def __init__(self, amounts: NDArray[np.int64]) -> None:
        self._kinds = len(amounts)
        asked = amounts > 0
        self._by_all = [(column, amounts[:, column].astype(np.float64)) for column in np.flatnonzero(asked.all(axis=0))]
        """Columns of which every kind asks."""
        self._by_some = [
            (column, kinds, amounts[kinds, column].astype(np.float64))
            for column in np.flatnonzero(asked.any(axis=0) & ~asked.all(axis=0))
            for kinds in [np.flatnonzero(asked[:, column])]
        ]

    def times(self, free: Ints) -> Floats:
        """Return how often each kind is in `free`, whose last axis has the same columns.

        Quotients of whole numbers below 2^52 are rounded down rightly in floating point, and much faster.
        """
        left = np.maximum(free, 0).astype(np.float64)[..., None]
        times: Floats
        if self._by_all:
            (column, amounts), *others = self._by_all
            times = left[..., column, :] / amounts
            for column, amounts in others:
                np.minimum(times, left[..., column, :] / amounts, out=times)
        else:
            times = np.full((*free.shape[:-1], self._kinds), _ANY, dtype=np.float64)
        for column, kinds, amounts in self._by_some:
            times[..., kinds] = np.minimum(times[..., kinds], left[..., column, :] / amounts)
        return np.floor(times, out=times)
