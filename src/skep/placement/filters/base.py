"""What a filter is: a function from hosts and a request to a mask, and the words for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass
from typing import NamedTuple

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
"""The same of a host on which it did not count them."""


def always(request: PlacementRequest) -> bool:  # noqa: ARG001  # the signature of `applies`
    """Tell that the filter concerns every request."""
    return True


def whatever_it_is(hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG001  # the signature of `if_empty`
    """Let everybody through: the `if_empty` of filters that judge a state which hosts leave again."""
    return hosts.all()


def nobody_can_say(hosts: HostView, request: PlacementRequest) -> None:
    """Give no answer: the `if_empty` of filters that are about other servers, or about what other services tell."""


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


@dataclass(frozen=True, slots=True)
class Filter:
    """One stage of placement."""

    name: str
    """Nova's name where Nova has such a filter."""
    passes: Callable[[HostView, PlacementRequest], Mask]
    stage: Callable[[PlacementRequest], str]
    """What users read after "N left by"; names no host."""
    cause: Callable[[HostTable, int], str] | None = None
    """Which of several causes it is for which it rejects a row, of one whose stage stands for several: for admins."""
    applies: Callable[[PlacementRequest], bool] = always
    """Whether it can remove anybody; if not it is skipped."""
    asked: bool = True
    """Whether the user asked for it where it applies, so that it is shown even when it removed nobody."""
    per_request: bool = False
    """Whether it reads more of the request than its shape."""
    when_forced: bool = False
    """Whether it judges a forced host too."""
    steady: bool = False
    """Whether it never looks at what is free, used or claimed: then claims do not have it asked again."""
    by_level: bool = False
    """Whether it looks at what is free only to compare it with the request's amounts: then it is asked again only where
    an amount that somebody asks for went or came."""
    foreseeable: bool = False
    """Whether `passes` asks the view's own methods for all that a claim changes, so that it can be asked about hosts as
    they would be (`batch/supposed.py`)."""
    fits: Callable[[HostTable, PlacementRequest, int], bool] | None = None
    """The same answer for one row, of a filter that may be asked for few rows at a time."""
    named: Callable[[HostTable, PlacementRequest], Named] | None = None
    """The same answer by row, of a filter that is about few rows whatever the number of hosts."""
    domains: Callable[[PlacementRequest], Domains | None] | None = None
    """The same answer by the domains of hosts, of one that lets through who stands in some of them; None where it is
    not as simple as that."""
    of_host: bool = False
    """Whether it judges the host alone, whatever is asked for, without looking at what is free."""
    namespace: str | None = None
    """The namespace of another service that it reads; in a new epoch it is empty until that service writes."""
    shaped_by: Callable[[HostTable, PlacementRequest], Hashable] | None = None
    """What of the request it reads that is not in every shape, worked out by the table: where the filter is chosen,
    this becomes a part of the shape. Few requests should differ in it."""
    survivors_only: bool = False
    """Of one that is asked for each request: whether it is slow, and so asked of those hosts only that are left."""
    plugin: bool = False
    """Whether another package brought it: what it does wrong is held against its name (`plugins/guarding.py`)."""
    from_operator: bool = False
    """Whether it needs only what the operator published, so that it can judge a host that has not reported."""
    if_empty: Callable[[HostView, PlacementRequest], Mask | None] | None = None
    """What it would say of hosts on which nothing runs, up and enabled, in cells that are open: tells "never" from "not
    now". It gets hosts of which everything is free (`emptied.py`); None: it cannot say, because that is no property of
    the host. A `steady` filter needs none if it would say the same as now."""
    room: Callable[[HostView, PlacementRequest], Ints] | None = None
    """How many such servers, one after the other, it would let onto each host, of one that looks at what is free;
    PLENTY where that never ends, UNCOUNTED where it cannot say."""
    still: Callable[[HostTable, PlacementRequest, Recorded], bool] | None = None
    """The same answer by a host's record, of one that limits how much comes onto a host: it is asked again when the
    claim is stored, since another scheduler may have been quicker. A host's own capacity is checked anyway."""
