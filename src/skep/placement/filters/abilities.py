"""What the question of a filter may answer beyond a mask: one protocol for each, and most filters have none.

`Filter.passes` is a function, or an object that is called like one and has methods of these protocols. Which it has is
looked up once, when a pipeline is made (`pipeline.py`); decisions find a function or None there.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.spreading import Domains

PLENTY = 2**61
"""Servers that a filter would let onto a host where something else ends it."""
UNCOUNTED = 2**62
"""Servers that a filter would let onto a host on which it did not count them."""


@dataclass(frozen=True, slots=True)
class Named:
    """The answer of a filter that knows the rows it is about by name, and so need not look at all others."""

    rows: Set[int]
    only: bool = False
    """Whether these alone are let through; else all but these."""

    def of(self, mask: Mask) -> Mask:
        """Return which of a mask over all rows are let through; the mask itself may be changed."""
        rows = list(self.rows)
        if not self.only:
            mask[rows] = False
            return mask
        through: Mask = np.zeros(len(mask), dtype=np.bool_)
        through[rows] = mask[rows]
        return through


class Recorded(NamedTuple):
    """What the record of a host holds in the moment when a claim is to be added to it."""

    row: int
    usage: HostUsage
    claims: tuple[Claim, ...]

    @property
    def servers(self) -> int:
        """Servers that the host counts, and those that are only claimed yet; as of `HostView`."""
        return max(self.usage.instances, self.usage.servers) + len(self.claims)

    @property
    def io_ops(self) -> int:
        """Operations on whole disks under way; each claim is a build that will be one."""
        return self.usage.io_ops + len(self.claims)


@runtime_checkable
class JudgesRows(Protocol):
    """Gives its answer for one row, so that it may be asked for few rows at a time."""

    def fits(self, table: HostTable, request: PlacementRequest, row: int) -> bool:
        """Return whether the row passes."""
        ...


@runtime_checkable
class NamesRows(Protocol):
    """Gives its answer by row: it is about few rows whatever the number of hosts."""

    def named(self, table: HostTable, request: PlacementRequest) -> Named:
        """Return the rows that it is about."""
        ...


@runtime_checkable
class JudgesDomains(Protocol):
    """Gives its answer by the domains of hosts: it lets through hosts of some of them."""

    def domains(self, request: PlacementRequest) -> Domains | None:
        """Return the domains; None where the answer is not as simple as that."""
        ...


@runtime_checkable
class CountsRoom(Protocol):
    """Looks at what is free, and counts for how many servers, one after the other, that lasts."""

    def room(self, hosts: HostView, request: PlacementRequest) -> Ints:
        """Return how many such servers each host gets; PLENTY without an end, UNCOUNTED if it is unknown."""
        ...


@runtime_checkable
class JudgesRecords(Protocol):
    """Limits how much comes onto a host, and so is asked again when the claim is stored.

    Another scheduler may have been quicker. A host's own capacity is checked anyway.
    """

    def still(self, table: HostTable, request: PlacementRequest, record: Recorded) -> bool:
        """Return whether the host's record still admits the server."""
        ...


@runtime_checkable
class TellsCauses(Protocol):
    """Stands for several causes."""

    def cause(self, table: HostTable, row: int) -> str:
        """Return for which of them it rejects a row: for admins."""
        ...
