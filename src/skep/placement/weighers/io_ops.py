"""Operations on whole disks under way: with the default multiplier, -1, hosts with fewer of them come first."""

from __future__ import annotations

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, ScoreOfRow, Weigher


def made(options: PlacementOptions) -> Weigher:
    """Return the weigher: the operations under way, as a part of those that IoOpsFilter allows."""
    most = options.max_io_ops_per_host

    def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
        shares: Floats = hosts.io_ops / most
        return shares

    def of_row(table: HostTable) -> ScoreOfRow:
        io_ops, claimed = table.io_ops.data, table.claimed_servers.data
        return lambda row: (io_ops[row] + claimed[row]) / most

    return Weigher(
        name="IoOpsWeigher",
        scores=scores,
        of_row=of_row,
        foreseeable=True,
        multiplier="io_ops_weight_multiplier",
        scaled=Scaled(lambda hosts, _: hosts.io_ops, floor=0.0),
    )
