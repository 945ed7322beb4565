"""The kinds of load, by the names that `skep bench scheduler --workload` takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from skep.cli.benchmarks.scheduler.inside import parts, report
from skep.cli.benchmarks.scheduler.requests import (
    Requests,
    any_of,
    grouped,
    hopeless,
    now_and_then,
    plain,
    small,
    various,
)
from skep.domain.groups import SpreadConstraint
from skep.domain.hosts import HostUsage
from skep.placement.settings import SchedulerSettings

MULTI = 1_000
"""Servers of one request."""
OVER_ZONES = SpreadConstraint(key="zone", max_skew=1)
"""Beside anti-affinity: no zone may have two members more than another."""
REPORTING_PART = 100
"""One host of so many reports each second."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked for, and what happens meanwhile."""

    asking: Callable[[int, random.Random], Requests]
    """From the number of shapes and the dice."""
    reporting: bool = False
    """Whether hosts report all the time."""
    report: Callable[[str, int], HostUsage] | None = None
    """What each host says, by its name and number, where it is nothing ordinary."""
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    """How hosts are chosen."""


WORKLOADS: dict[str, Workload] = {
    "basic": Workload(lambda shapes, dice: any_of(plain(shapes, dice), dice)),
    "mixed": Workload(lambda shapes, dice: any_of(various(shapes, dice), dice)),
    "affinity": Workload(lambda shapes, dice: grouped(small(shapes, dice), "affinity", dice)),
    "anti-affinity": Workload(lambda shapes, dice: grouped(plain(shapes, dice), "anti-affinity", dice)),
    "spread": Workload(lambda shapes, dice: grouped(plain(shapes, dice), "anti-affinity", dice, OVER_ZONES)),
    "unschedulable": Workload(
        lambda shapes, dice: now_and_then(any_of(various(shapes, dice), dice), hopeless(dice), dice)
    ),
    "churn": Workload(lambda shapes, dice: any_of(various(shapes, dice), dice), reporting=True),
    "min-max": Workload(
        lambda shapes, dice: any_of(various(shapes, dice), dice), settings=SchedulerSettings(normalization="min-max")
    ),
    "numa": Workload(lambda shapes, dice: any_of(parts(shapes, dice), dice), report=report),
    "multi": Workload(lambda shapes, dice: any_of(plain(shapes, dice), dice, MULTI)),
}
"""All but `load`, which reads a snapshot and decides nothing."""
