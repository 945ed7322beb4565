"""Servers on the host: a negative multiplier spreads them, a positive one stacks them."""

from __future__ import annotations

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, ScoreOfRow, Weigher


def made(options: PlacementOptions) -> Weigher:
    """Return the weigher: the servers, as a part of those that NumInstancesFilter allows."""
    most = options.max_instances_per_host

    def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
        shares: Floats = hosts.servers / most
        return shares

    def of_row(table: HostTable) -> ScoreOfRow:
        instances, claimed = table.instances.data, table.claimed_servers.data
        return lambda row: (instances[row] + claimed[row]) / most

    return Weigher(
        name="NumInstancesWeigher",
        scores=scores,
        of_row=of_row,
        foreseeable=True,
        multiplier="num_instances_weight_multiplier",
        scaled=Scaled(lambda hosts, _: hosts.servers),
    )
