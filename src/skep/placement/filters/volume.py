"""What the volume service's namespace says of hosts: extra specs `volume:...` and the hint `same_host_as_volume`.

Chosen as `VolumeFilter`; three stages, so that an explanation tells them apart. It is also the pattern for filters that
read other namespaces: conditions on numbers, and a hint that names what a host holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from skep.domain.conditions import Operator, amount
from skep.placement.filters.base import Filter, nobody_can_say
from skep.placement.hosts.columns import Floats, Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest

NAMESPACE = "volume"
VOLUMES = "volumes"
"""The field that lists the ids of the volumes on a host."""

COMPARE: dict[Operator, Callable[[Any, float], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def compared(values: Floats, how: Operator, with_what: float) -> Mask:
    """Return which values compare so; one that is not known (NaN) never does."""
    mask: Mask = COMPARE[how](values, with_what)
    return mask & ~np.isnan(values)


def _told(hosts: HostView, _request: PlacementRequest) -> Mask:
    return hosts.told(NAMESPACE)


def _satisfies(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts whose numbers satisfy every condition; nobody, where a condition is none."""
    mask = hosts.all()
    for field, wanted in request.volume_specs:
        condition = amount(wanted)
        if condition is None:
            return hosts.none()
        mask &= compared(hosts.number(NAMESPACE, field), condition.operator, condition.value)
    return mask


def _holds(hosts: HostView, request: PlacementRequest) -> Mask:
    return hosts.having(NAMESPACE, VOLUMES, request.volume_wanted or "")


def _conditions(request: PlacementRequest) -> str:
    return ", ".join(f"volume:{field} {wanted}" for field, wanted in request.volume_specs)


FILTERS = (
    Filter(
        name="VolumeStateFilter",
        passes=_told,
        stage=lambda _: "hosts that the volume service reports",
        applies=lambda request: bool(request.volume_specs),
        steady=True,
        namespace=NAMESPACE,
        if_empty=nobody_can_say,
    ),
    Filter(
        name="VolumeFilter",
        passes=_satisfies,
        stage=_conditions,
        applies=lambda request: bool(request.volume_specs),
        steady=True,
        namespace=NAMESPACE,
        if_empty=nobody_can_say,
    ),
    Filter(
        name="SameHostAsVolumeFilter",
        passes=_holds,
        stage=lambda _: "hint same_host_as_volume",
        applies=lambda request: request.volume_wanted is not None,
        per_request=True,
        steady=True,
        namespace=NAMESPACE,
        if_empty=nobody_can_say,
    ),
)
