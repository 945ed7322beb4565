"""What a weigher is: a function from hosts and a request to scores. One score depends on one host and the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skep.scheduler.columns import Floats
from skep.scheduler.filters.base import always
from skep.scheduler.request import PlacementRequest
from skep.scheduler.view import HostView


@dataclass(frozen=True, slots=True)
class Weigher:
    """One column of scores, before its multiplier."""

    name: str
    scores: Callable[[HostView, PlacementRequest], Floats]
    applies: Callable[[PlacementRequest], bool] = always
    per_request: bool = False
    """Whether it reads more of the request than its shape."""
