"""What a filter is: a question that makes a mask of hosts and a request, and the words for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def always(request: PlacementRequest) -> bool:  # noqa: ARG001  # the signature of `applies`
    """Return True: the filter concerns every request."""
    return True


def whatever_it_is(hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG001  # the signature of `if_empty`
    """Let everybody through: the `if_empty` of filters that judge a state which hosts leave again."""
    return hosts.all()


def nobody_can_say(hosts: HostView, request: PlacementRequest) -> None:
    """Give no answer: the `if_empty` of filters about other servers, or about facts of other services."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One stage of placement: the question that it asks of hosts, and what it promises of the answer."""

    name: str
    """Nova's name where Nova has such a filter."""
    passes: Callable[[HostView, PlacementRequest], Mask]
    """The question. An object with methods of `abilities.py` answers more than that."""
    stage: Callable[[PlacementRequest], str]
    """What users read after "N left by"; names no host."""
    applies: Callable[[PlacementRequest], bool] = always
    """Whether it can exclude a host; if not it is skipped."""
    asked: bool = True
    """Whether the user requested it, if it applies: then its stage is shown even if it excluded no host."""
    per_request: bool = False
    """Whether it reads more of the request than its shape."""
    when_forced: bool = False
    """Whether it judges a forced host too."""
    steady: bool = False
    """Whether it never looks at what is free, used or claimed: then claims do not have it asked again."""
    by_level: bool = False
    """Whether it reads free amounts only to compare them with the request's: then it judges a host again only if a
    requested amount became free or used up."""
    foreseeable: bool = False
    """Whether `passes` asks the view's own methods for all that a claim changes, so that it can be asked about hosts as
    they would be (`batch/supposed.py`)."""
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
    """Its answer for hosts that are empty, up and enabled, in open cells: it separates "never" from "not now". It gets
    hosts with everything free (`emptied.py`). None: no answer, because it is no property of the host. A `steady`
    filter whose answer would not change needs none."""
