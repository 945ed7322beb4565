"""Metrics that hosts report, each times its ratio (`[metrics] weight_setting`)."""

from __future__ import annotations

import numpy as np

from skep.domain.hosts import HostUsage
from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import ScoreOfRow, Weigher


def made(options: PlacementOptions) -> Weigher | None:
    """Return the weigher, if any metric counts. A host that lacks one of them gets `weight_of_unavailable`."""
    ratios = tuple((name, ratio) for name, ratio in options.metrics_weight_setting.items() if ratio)
    if not ratios:
        return None
    unavailable = options.metrics_weight_of_unavailable

    def score(usage: HostUsage | None) -> float:
        total = 0.0
        for name, ratio in ratios:
            value = None if usage is None else usage.metrics.get(name)
            if value is None:
                return unavailable
            total += ratio * value
        return total

    def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
        return np.array([score(usage) for usage in hosts.usages()], dtype=np.float64)

    def of_row(table: HostTable) -> ScoreOfRow:
        usages = table.usages
        return lambda row: score(usages[row])

    return Weigher(
        name="MetricsWeigher",
        scores=scores,
        of_row=of_row,
        foreseeable=True,
        multiplier="metrics_weight_multiplier",
    )
