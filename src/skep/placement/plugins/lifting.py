"""From a plain function to a filter or a weigher: of whole columns, or of one host at a time.

What is declared decides what may be remembered. By default nothing is: the function is asked for each request, and of
those hosts only that all filters of Skep let through.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skep.placement.emptied import EmptyHosts
from skep.placement.filters.base import Filter, always
from skep.placement.hosts.columns import Floats, Mask
from skep.placement.hosts.view import HostView
from skep.placement.plugins.one_host import OneHost
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Weigher

Applies = Callable[[PlacementRequest], bool]


def column_filter(
    *,
    stage: str,
    applies: Applies = always,
    per_request: bool = True,
    steady: bool = False,
    when_forced: bool = False,
    of_empty: bool = False,
) -> Callable[[Callable[[HostView, PlacementRequest], Mask]], Filter]:
    """Make a filter of a function from some hosts and a request to a mask.

    `stage`: what users read after "N left by". `applies`: whether the request asks for it at all. `per_request`: False
    promises that the answer depends on the host and the request's shape alone (`request.py`), so that it is
    remembered until the host changes. `steady`: with that, promises that it never looks at what is free.
    `when_forced`: whether it judges hosts of `az:host:node`, too. `of_empty`: promises that, asked of hosts of which
    everything is free, it says whether an empty host could ever hold the server; explanations ask so.
    """

    def lift(function: Callable[[HostView, PlacementRequest], Mask]) -> Filter:
        return Filter(
            name=function.__name__,
            passes=function,
            stage=lambda _: stage,
            applies=applies,
            per_request=per_request,
            steady=steady,
            when_forced=when_forced,
            survivors_only=per_request,
            if_empty=function if of_empty else None,
        )

    return lift


def host_filter(
    *,
    stage: str,
    applies: Applies = always,
    per_request: bool = True,
    steady: bool = False,
    when_forced: bool = False,
    of_empty: bool = False,
) -> Callable[[Callable[[OneHost, PlacementRequest], bool]], Filter]:
    """Make a filter of a function that judges one host; flags as of `column_filter`.

    It is asked of hosts only that have reported.
    """

    def lift(function: Callable[[OneHost, PlacementRequest], bool]) -> Filter:
        def passes(hosts: HostView, request: PlacementRequest) -> Mask:
            is_empty = isinstance(hosts, EmptyHosts)
            mask = (hosts.reported if is_empty else hosts.ready).copy()
            rows = hosts.rows
            for at in mask.nonzero()[0].tolist():
                mask[at] = function(OneHost(hosts.table, int(rows[at]), is_empty=is_empty), request)
            return mask

        passes.__name__ = function.__name__
        flags = column_filter(
            stage=stage,
            applies=applies,
            per_request=per_request,
            steady=steady,
            when_forced=when_forced,
            of_empty=of_empty,
        )
        return flags(passes)

    return lift


def column_weigher(
    *, applies: Applies = always, per_request: bool = True
) -> Callable[[Callable[[HostView, PlacementRequest], Floats]], Weigher]:
    """Make a weigher of a function from some hosts and a request to scores: the larger the better; flags as above."""

    def lift(function: Callable[[HostView, PlacementRequest], Floats]) -> Weigher:
        return Weigher(
            name=function.__name__,
            scores=function,
            applies=applies,
            per_request=per_request,
            survivors_only=per_request,
        )

    return lift


def host_weigher(
    *, applies: Applies = always, per_request: bool = True
) -> Callable[[Callable[[OneHost, PlacementRequest], float]], Weigher]:
    """Make a weigher of a function that scores one host; flags as above. Hosts that have not reported get 0."""

    def lift(function: Callable[[OneHost, PlacementRequest], float]) -> Weigher:
        def scores(hosts: HostView, request: PlacementRequest) -> Floats:
            column = np.zeros(len(hosts), dtype=np.float64)
            rows = hosts.rows
            for at in hosts.ready.nonzero()[0].tolist():
                column[at] = function(OneHost(hosts.table, int(rows[at])), request)
            return column

        scores.__name__ = function.__name__
        return column_weigher(applies=applies, per_request=per_request)(scores)

    return lift
