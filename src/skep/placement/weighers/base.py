"""What a weigher is: a function from hosts and a request to scores. One score depends on one host and the request."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from skep.domain.providers import Allocation
from skep.placement.filters.base import always
from skep.placement.hosts.columns import Floats, Ints
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest

ScoreOfRow = Callable[[int], float]
"""From a row of the table to its score."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The values that Nova's weigher of this name scales to 0..1, for `normalization = "min-max"`."""

    values: Callable[[HostView, PlacementRequest], Floats | Ints]
    floor: float | None = None
    """What is less counts as this, which becomes 0; None: the least value becomes 0."""
    negated: bool = False
    """Whether the scaled values are negated: more is worse."""


@dataclass(frozen=True, slots=True)
class Weigher:
    """One column of scores, before its multiplier."""

    name: str
    scores: Callable[[HostView, PlacementRequest], Floats]
    applies: Callable[[PlacementRequest], bool] = always
    """Whether it applies to a request; if not it is skipped, and costs nothing."""
    of_row: Callable[[HostTable], ScoreOfRow] | None = None
    """The score of one row, of a weigher that reads the host alone: then all requests share its scores. It may hold
    columns of the table: it is created again when these move (`HostTable.moved`)."""
    foreseeable: bool = False
    """Whether `scores` asks the view's own methods for all that a claim changes, so that it can be asked about hosts as
    they would be (`batch/supposed.py`)."""
    per_request: bool = False
    """Whether it reads more of the request than its shape."""
    survivors_only: bool = False
    """Of one that is asked for each request: whether it is slow, and so asked of those hosts only that are left."""
    plugin: bool = False
    """Whether another package brought it."""
    multiplier: str = ""
    """The key by which metadata of an aggregate sets another multiplier for its hosts, such as `cpu_weight_multiplier`.
    """
    shaped_by: Callable[[HostTable, PlacementRequest], Hashable] | None = None
    """As of a filter: what it reads of the request that is not in every shape."""
    learns: bool = False
    """Whether it reads what requests came before (`mix.py`), so that they must be counted."""
    way: Callable[[HostTable, PlacementRequest, int], Allocation | None] | None = None
    """Of one that judges how a request is served inside of hosts: the way that it likes best on a row, if it fits."""
    scaled: Scaled | None = None
    """What is scaled where Nova's way of weighing is chosen; None: the scores."""


def weighted(hosts: HostView, request: PlacementRequest, weigher: Weigher, multiplier: float) -> Floats:
    """Return the scores times the multiplier, the configured one where no aggregate sets another."""
    return multiplied(hosts, weigher, multiplier, weigher.scores(hosts, request))


def multiplied(hosts: HostView, weigher: Weigher, multiplier: float, scores: Floats) -> Floats:
    """Return scores that the weigher gave times its multiplier."""
    column = hosts.multipliers(weigher.multiplier)
    return multiplier * scores if column is None else np.where(np.isnan(column), multiplier, column) * scores
