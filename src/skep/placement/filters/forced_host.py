"""The host and node of `az:host:node`, which only admins may name."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through what was named."""
    mask = hosts.all()
    # What a hypervisor is called is not known before its host reports; ReportsFilter holds such a host back.
    if request.spec.forced_host is not None:
        mask &= hosts.named((request.spec.forced_host,))
    if request.spec.forced_node is not None:
        mask &= hosts.called(request.spec.forced_node) | ~hosts.reported
    return mask


FILTER = Filter(
    name="ForcedHostFilter",
    passes=passes,
    stage=lambda _: "the forced host",
    applies=lambda request: request.is_forced,
    when_forced=True,
    steady=True,
    from_operator=True,
)
