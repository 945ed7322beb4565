"""Which hosts each of several schedulers prefers, so that they seldom want the same one.

Rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998): every scheduler
weighs every host by a hash of both their names, and a host is preferred by whoever gives it the highest weight. So all
agree without talking, and when one comes or goes only its own share changes hands.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from skep.placement.hosts.columns import Mask
from skep.placement.hosts.host_columns import stable_hash
from skep.placement.hosts.table import HostTable

_WORD = (1 << 64) - 1


def mixed(hashes: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """Return another hash for each, which depends on the salt too (the finalizer of SplitMix64)."""
    mix = hashes ^ np.uint64(salt & _WORD)
    mix = (mix ^ (mix >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mix = (mix ^ (mix >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: NDArray[np.uint64] = mix ^ (mix >> np.uint64(31))
    return result


class Partition:
    """One scheduler's share of the rows of a table."""

    def __init__(self, table: HostTable) -> None:
        self.version = 0
        """Raised whenever rows change hands."""
        self._table = table
        self._own = ""
        self._others: tuple[str, ...] = ()
        self._mask: Mask = np.zeros(0, dtype=np.bool_)

    def set_members(self, own: str, others: Iterable[str]) -> bool:
        """Share the hosts between this scheduler, `own`, and the others that live; tell whether these are new."""
        before = self._others
        self._own, self._others = own, tuple(sorted(others))
        if before == self._others:
            return False
        self._mask = np.zeros(0, dtype=np.bool_)
        self.version += 1
        return True

    @property
    def members(self) -> tuple[str, tuple[str, ...]]:
        """This scheduler and the others that live, as they were set."""
        return self._own, self._others

    def own(self) -> Mask | None:
        """Return which rows are this scheduler's share; None when it is alone. Callers must not change it."""
        if not self._others:
            return None
        known, size = len(self._mask), self._table.size
        if known < size:
            hashes = self._table.node_hash[known:size]
            mine = mixed(hashes, stable_hash(self._own))
            share = np.ones(size - known, dtype=np.bool_)
            for other in self._others:
                share &= mine > mixed(hashes, stable_hash(other))
            self._mask = np.concatenate((self._mask, share))
        return self._mask
