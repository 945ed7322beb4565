"""`host` and `hypervisor_hostname` of API 2.74: these, and all other filters judge them too."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through what was asked for."""
    mask = hosts.all()
    # What a hypervisor is called is not known before its host reports; ReportsFilter holds such a host back.
    if request.spec.requested_host is not None:
        mask &= hosts.named((request.spec.requested_host,))
    if request.spec.requested_node is not None:
        mask &= hosts.called(request.spec.requested_node) | ~hosts.reported
    return mask


FILTER = Filter(
    name="RequestedHostFilter",
    passes=passes,
    stage=lambda _: "the requested host",
    applies=lambda request: request.spec.requested_host is not None or request.spec.requested_node is not None,
    steady=True,
    from_operator=True,
)
