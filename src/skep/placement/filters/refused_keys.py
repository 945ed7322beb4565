"""What flavor and image ask of the guest: hosts whose drivers refuse one of the keys are left out.

A host tells what it refuses (`domain/guest_keys.py`). One that tells nothing is taken for one that refuses nothing.
"""

from __future__ import annotations

import numpy as np

from skep.domain.hosts import HostUsage
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class GivesWhatIsAsked:
    """The question whether a host refuses none of the keys."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through who refuses none. Equal answers are one object (`scheduler/sharing.py`): each is asked once."""
        given: dict[int, bool] = {}
        passing = []
        for usage in hosts.usages():
            number = id(None if usage is None else usage.refused_keys)
            verdict = given.get(number)
            if verdict is None:
                verdict = given[number] = _gives(usage, request)
            passing.append(verdict)
        return np.array(passing, dtype=np.bool_)

    def fits(self, table: HostTable, request: PlacementRequest, row: int) -> bool:
        """Judge one row."""
        return _gives(table.usages[row], request)


def _gives(usage: HostUsage | None, request: PlacementRequest) -> bool:
    asked = request.of_guest
    if usage is None or usage.refused_keys is None or asked is None:
        return True
    return next(usage.refused_keys.of(asked), None) is None


def _stage(request: PlacementRequest) -> str:
    """Name the keys: hosts may refuse different ones of them."""
    keys = request.of_guest.keys() if request.of_guest is not None else ()
    return f"what their guests can have ({', '.join(keys)})"


FILTER = Filter(
    name="RefusedKeysFilter",
    passes=GivesWhatIsAsked(),
    stage=_stage,
    applies=lambda request: request.of_guest is not None,
    asked=False,
    when_forced=True,
    steady=True,
)
