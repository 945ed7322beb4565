"""The policy soft-affinity: nodes that hold more members of the server group come first."""

from __future__ import annotations

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:
    """Return the node's share of the group's placed members."""
    members = sum(request.group_nodes.values())
    return hosts.counted(request.group_nodes) / max(members, 1)


WEIGHER = Weigher(
    name="ServerGroupSoftAffinityWeigher",
    scores=scores,
    applies=lambda request: request.spec.group is not None and request.spec.group.policy == "soft-affinity",
    per_request=True,
    multiplier="soft_affinity_weight_multiplier",
    scaled=Scaled(lambda hosts, request: hosts.counted(request.group_nodes)),
)
