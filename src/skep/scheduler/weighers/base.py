"""What a weigher is: a function from hosts and a request to scores. One score depends on one host and the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skep.scheduler.columns import Floats
from skep.scheduler.filters.base import always
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView


@dataclass(frozen=True, slots=True)
class Weigher:
    """One column of scores, before its multiplier."""

    name: str
    scores: Callable[[HostView, PlacementRequest], Floats]
    applies: Callable[[PlacementRequest], bool] = always
    of_row: Callable[[HostTable, int], float] | None = None
    """The same score of one row, of a weigher that looks at the host alone: then all requests share its scores."""
    per_request: bool = False
    """Whether it reads more of the request than its shape."""
