"""Spread of a server group's members over hosts, racks or zones: the hard constraints (`domain/spread.py`)."""

from __future__ import annotations

from skep.placement.filters.base import Filter, nobody_can_say
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.spreading import Domains


class WithinSpread:
    """The question for domains that may get one more member."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through hosts in domains that may get one more member; one without such a domain never."""
        mask = hosts.all()
        for domains in request.spread:
            if domains.constraint.hard:
                mask &= domains.allowed()[hosts.selected]
        return mask

    def domains(self, request: PlacementRequest) -> Domains | None:
        """Return the hard constraint, if there is but one."""
        hard = [one for one in request.spread if one.constraint.hard]
        return hard[0] if len(hard) == 1 else None


def stage(request: PlacementRequest) -> str:
    """Name the constraints: they come from the hint and the flavor, which the user chose."""
    spread = request.spec.group.spread if request.spec.group is not None else ()
    words = [f"{one.key} {one.max_skew}" for one in spread if one.hard]
    unknown = [one.constraint.key for one in request.spread if one.constraint.hard and one.has_none()]
    return f"topology spread ({', '.join(words)}{''.join(f'; no host reports a {key}' for key in unknown)})"


FILTER = Filter(
    name="TopologySpreadFilter",
    passes=WithinSpread(),
    stage=stage,
    applies=lambda request: request.spec.group is not None and any(one.hard for one in request.spec.group.spread),
    per_request=True,
    when_forced=True,
    if_empty=nobody_can_say,
)
