"""What an operator may choose about placement. Wiring maps the configuration onto it."""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.placement.options import PlacementOptions

DEFAULT_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "AvailabilityZoneFilter",
    "AggregateInstanceExtraSpecsFilter",
    "ServerGroupAffinityFilter",
    "ServerGroupAntiAffinityFilter",
    "SameHostFilter",
    "DifferentHostFilter",
)
"""The filters that can be left out; what is not negotiable (capacity, cells, reports, ...) always runs."""

DEFAULT_WEIGHERS = {
    "CPUWeigher": 1.0,
    "RAMWeigher": 1.0,
    "DiskWeigher": 1.0,
    "BuildFailureWeigher": 1_000_000.0,
    "ServerGroupSoftAffinityWeigher": 1.0,
    "ServerGroupSoftAntiAffinityWeigher": 1.0,
    "TopologySpreadWeigher": 2.0,
    "IoOpsWeigher": -1.0,
    "HypervisorVersionWeigher": 1.0,
    "PCIWeigher": 1.0,
    "CrossCellWeigher": 1_000_000.0,
    "LifetimeWeigher": 10.0,
    "MetricsWeigher": 1.0,
    "NumInstancesWeigher": 0.0,
    "ImagePropertiesWeigher": 0.0,
    "BestFitWeigher": 0.0,
    "FragmentationWeigher": 0.0,
}
"""Multiplier by weigher; the defaults are Nova's."""


OnPluginError = Literal["fail", "skip"]


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a host is chosen."""

    filters: tuple[str, ...] = DEFAULT_FILTERS
    """Names of the optional filters, in the order in which they run."""
    weighers: dict[str, float] = msgspec.field(default_factory=DEFAULT_WEIGHERS.copy)
    """Multiplier by name; a weigher that is not named, or has 0, does not run."""
    normalization: Literal["host", "min-max"] = "host"
    """`host`: a score depends on one host and the request; `min-max`: Nova's, scaled over all hosts that are left."""
    host_subset_size: int = 1
    """Choose among so many of the best hosts."""
    shuffle: bool = False
    """Equally good hosts are always spread by a hash of server and node. False: a fixed seed, so that a decision can be
    repeated; True: another seed for each request."""
    seed: int = 0
    partition: bool = True
    """Several schedulers: each looks first among its own share of the hosts, and at all when nothing fits there."""
    beat_lapse_seconds: float = 10.0
    """A cell whose beat did not change for so long sends none."""
    host: str = ""
    """Where this scheduler runs, as lists of services say."""
    max_rejected_hosts: int = 50
    """Most hosts named in an explanation."""
    max_near_misses: int = 5
    options: PlacementOptions = PlacementOptions()
    """What single filters, weighers and pre-filters are told."""
    on_plugin_error: OnPluginError = "fail"
    """What follows when a filter or weigher of another package fails: the request fails and says so, or the plug-in is
    left out of that decision."""
    cached_shapes: int = 64
    """Kinds of requests whose evaluated columns are kept."""
