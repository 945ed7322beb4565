"""Near an address: the hints `build_near_host_ip` and `cidr`."""

from __future__ import annotations

from ipaddress import ip_address

from skep.domain.networks import Network, near
from skep.placement.filters.base import Filter
from skep.placement.hosts.attributes import attribute
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def wanted(request: PlacementRequest) -> Network | None:
    """Return the network of the hints; None where they are missing, or none (the API refuses such)."""
    try:
        return near(request.spec.scheduler_hints)
    except ValueError:
        return None


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts whose own address is in the network; nobody where the hints are none."""
    network = wanted(request)
    if network is None:
        return hosts.none()
    return attribute(hosts, ("host_ip",)).judge(lambda address: _is_in(address, network))


def _is_in(address: str, network: Network) -> bool:
    try:
        return ip_address(address) in network
    except ValueError:
        return False


FILTER = Filter(
    name="SimpleCIDRAffinityFilter",
    passes=passes,
    stage=lambda _: "hint build_near_host_ip",
    applies=lambda request: bool(request.spec.scheduler_hints.get("build_near_host_ip")),
    steady=True,
    shaped_by=lambda _, request: str(wanted(request)),
)
