"""Hosts whose builds failed lately come last."""

from __future__ import annotations

import numpy as np

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, ScoreOfRow, Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
    """Return minus the number of builds that failed since the last success."""
    return np.subtract(0.0, hosts.failed_builds)


def of_row(table: HostTable) -> ScoreOfRow:
    """Return what tells the same of one row."""
    failed = table.failed_builds.data
    return lambda row: 0.0 - failed[row]


WEIGHER = Weigher(
    name="BuildFailureWeigher",
    scores=scores,
    of_row=of_row,
    foreseeable=True,
    multiplier="build_failure_weight_multiplier",
    scaled=Scaled(lambda hosts, _: hosts.failed_builds, negated=True),
)
