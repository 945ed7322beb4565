"""Hosts with a newer hypervisor come first."""

from __future__ import annotations

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, ScoreOfRow, Weigher

TEN_MAJOR_VERSIONS = 10_000_000
"""Three digits to a part. One major version counts as much as a tenth of a host's memory, say."""


def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
    """Return the version, in tens of major versions."""
    versions: Floats = hosts.hypervisor_version / TEN_MAJOR_VERSIONS
    return versions


def of_row(table: HostTable) -> ScoreOfRow:
    """Return what tells the same of one row."""
    versions = table.hypervisor_version.data
    return lambda row: versions[row] / TEN_MAJOR_VERSIONS


WEIGHER = Weigher(
    name="HypervisorVersionWeigher",
    scores=scores,
    of_row=of_row,
    foreseeable=True,
    multiplier="hypervisor_version_weight_multiplier",
    scaled=Scaled(lambda hosts, _: hosts.hypervisor_version),
)
