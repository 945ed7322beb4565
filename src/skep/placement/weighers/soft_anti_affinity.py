"""The policy soft-anti-affinity: nodes that hold fewer members of the server group come first."""

from __future__ import annotations

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:
    """Return minus the node's share of the group's placed members."""
    members = sum(request.group_nodes.values())
    return hosts.counted(request.group_nodes) / -max(members, 1)


WEIGHER = Weigher(
    name="ServerGroupSoftAntiAffinityWeigher",
    scores=scores,
    applies=lambda request: request.spec.group is not None and request.spec.group.policy == "soft-anti-affinity",
    per_request=True,
    multiplier="soft_anti_affinity_weight_multiplier",
    scaled=Scaled(lambda hosts, request: -hosts.counted(request.group_nodes)),
)
