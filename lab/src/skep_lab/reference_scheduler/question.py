"""What filters and weighers are asked about each host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from skep.domain.groups import SpreadConstraint
from skep.domain.ids import NodeUuid
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest
from skep_lab.reference_scheduler.cloud import ReferenceCloud, ReferenceHost


@dataclass(frozen=True, slots=True)
class Question:
    """One request for one member, in one state of the cloud."""

    cloud: ReferenceCloud
    request: PlacementRequest
    options: PlacementOptions
    members: dict[NodeUuid, int] = field(default_factory=dict)
    """How many other members of the server group each node holds."""
    excess: dict[SpreadConstraint, dict[str, int]] = field(default_factory=dict)
    """By how much one more member in a domain would exceed the skew, for each constraint of topology spread."""


Rule = Callable[[ReferenceHost, Question], bool]
