"""What of the pipeline concerns one shape of request: which filters run, and what of their answers may be kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from skep.domain.resources import Resources
from skep.placement import explain
from skep.placement.pipeline import Pipeline, Stage
from skep.placement.ranking.standing import Standing
from skep.placement.request import PlacementRequest

FIRST_FILTER = 1
"""In the stage column: rejected by the first shared filter; the others follow."""


class ShapePlan(msgspec.Struct, frozen=True, eq=False):
    """What of the pipeline concerns one shape."""

    steady: tuple[tuple[int, Stage], ...]
    """With their number in the stage column."""
    varying: tuple[tuple[int, Stage], ...]
    stages: tuple[tuple[int, str, bool], ...]
    """Of those that run: the number, what users read, whether the user asked for it."""
    words_now: dict[int, Callable[[], str]]
    """By number: what users read as of now, of plug-ins, which may have failed and been left aside."""
    resources: Resources
    by_level: bool
    """Whether what is free is only compared with the request's amounts."""
    one_by_one: bool
    """Whether each of the varying can judge a row by itself."""
    in_order: bool
    """Whether every host that passes has a place in the order that all shapes share."""


def plan_of(pipeline: Pipeline, standing: Standing, request: PlacementRequest) -> ShapePlan:
    """Return the plan of the request's shape."""
    running = [
        (number, entry)
        for number, entry in enumerate(pipeline.shared_filters, FIRST_FILTER)
        if explain.runs(entry, request)
    ]
    varying = tuple(item for item in running if not item[1].steady)
    return ShapePlan(
        steady=tuple(item for item in running if item[1].steady),
        varying=varying,
        stages=tuple((number, entry.stage(request), entry.asked) for number, entry in running),
        words_now={number: partial(entry.stage, request) for number, entry in running if entry.plugin},
        resources=request.resources,
        by_level=all(entry.by_level for _, entry in varying),
        one_by_one=all(entry.fits is not None for _, entry in varying),
        in_order=standing.is_shared
        and standing.filters <= {entry.name for _, entry in running}
        and not any(weigher.applies(request) for weigher, _ in pipeline.occasional_weighers),
    )
