"""Which filters and weighers there are, by the names that an operator writes."""

from __future__ import annotations

from collections.abc import Callable, Collection

from skep.placement.filters import (
    aggregate_extra_specs,
    aggregate_image_properties,
    aggregate_membership,
    aggregate_multi_tenancy,
    aggregate_type_affinity,
    all_hosts,
    availability_zone,
    capacity,
    cell,
    cidr_affinity,
    compute,
    compute_capabilities,
    different_host,
    forced_host,
    group_affinity,
    group_anti_affinity,
    ignored_hosts,
    image_properties,
    io_ops,
    isolated_aggregates,
    isolated_hosts,
    json_query,
    metrics,
    num_instances,
    numa_topology,
    pci_passthrough,
    refused_keys,
    reports,
    requested_host,
    resource_groups,
    same_host,
    tenant_aggregate,
    topology_spread,
    traits,
    volume,
)
from skep.placement.filters.base import Filter, always
from skep.placement.options import PlacementOptions
from skep.placement.pipeline import Pipeline, stage_of
from skep.placement.plugins.loading import load_filter, load_weigher
from skep.placement.settings import SchedulerSettings
from skep.placement.weighers import (
    best_fit,
    build_failures,
    cpu,
    cross_cell,
    disk,
    fragmentation,
    hypervisor_version,
    lifetime,
    pci,
    ram,
    soft_affinity,
    soft_anti_affinity,
)
from skep.placement.weighers import image_properties as image_properties_weigher
from skep.placement.weighers import io_ops as io_ops_weigher
from skep.placement.weighers import metrics as metrics_weigher
from skep.placement.weighers import num_instances as num_instances_weigher
from skep.placement.weighers import topology_spread as topology_spread_weigher
from skep.placement.weighers.base import Weigher

FIRST = (reports.FILTER, forced_host.FILTER, requested_host.FILTER, cell.FILTER)
"""Always run, before the chosen ones."""

FILTERS: dict[str, Filter] = {
    "ComputeFilter": compute.FILTER,
    "AvailabilityZoneFilter": availability_zone.FILTER,
    "AggregateInstanceExtraSpecsFilter": aggregate_extra_specs.FILTER,
    "ServerGroupAffinityFilter": group_affinity.FILTER,
    "ServerGroupAntiAffinityFilter": group_anti_affinity.FILTER,
    "SameHostFilter": same_host.FILTER,
    "DifferentHostFilter": different_host.FILTER,
    "AggregateMultiTenancyIsolation": aggregate_multi_tenancy.FILTER,
    "AggregateTypeAffinityFilter": aggregate_type_affinity.FILTER,
    "SimpleCIDRAffinityFilter": cidr_affinity.FILTER,
    "JsonFilter": json_query.FILTER,
    "AllHostsFilter": all_hosts.FILTER,
}
"""Those of one stage that an operator may choose or leave out."""

FAMILIES: dict[str, tuple[Filter, ...]] = {
    "ComputeCapabilitiesFilter": compute_capabilities.FILTERS,
    "VolumeFilter": volume.FILTERS,
}
"""Those of several stages."""

CONFIGURED: dict[str, Callable[[PlacementOptions], tuple[Filter, ...]]] = {
    "ImagePropertiesFilter": image_properties.made,
    "AggregateImagePropertiesIsolation": aggregate_image_properties.made,
    "IsolatedHostsFilter": isolated_hosts.made,
    "IoOpsFilter": io_ops.made,
    "AggregateIoOpsFilter": io_ops.made_by_aggregate,
    "NumInstancesFilter": num_instances.made,
    "AggregateNumInstancesFilter": num_instances.made_by_aggregate,
    "MetricsFilter": metrics.made,
}
"""Those that options tell something."""

NESTED = (resource_groups.FILTER, pci_passthrough.FILTER, numa_topology.FILTER)
"""What looks into hosts; it costs only those requests that ask for it."""

LAST = (
    *(aggregate_membership.FILTER, traits.FILTER, refused_keys.FILTER, capacity.FILTER),
    *NESTED,
    *(ignored_hosts.FILTER, topology_spread.FILTER),
)
"""Always run, after the chosen ones of their kind."""

WEIGHERS: dict[str, Weigher] = {
    "CPUWeigher": cpu.WEIGHER,
    "RAMWeigher": ram.WEIGHER,
    "DiskWeigher": disk.WEIGHER,
    "BuildFailureWeigher": build_failures.WEIGHER,
    "ServerGroupSoftAffinityWeigher": soft_affinity.WEIGHER,
    "ServerGroupSoftAntiAffinityWeigher": soft_anti_affinity.WEIGHER,
    "TopologySpreadWeigher": topology_spread_weigher.WEIGHER,
    "CrossCellWeigher": cross_cell.WEIGHER,
    "HypervisorVersionWeigher": hypervisor_version.WEIGHER,
    "BestFitWeigher": best_fit.WEIGHER,
    "PCIWeigher": pci.WEIGHER,
    "LifetimeWeigher": lifetime.WEIGHER,
}

CONFIGURED_WEIGHERS: dict[str, Callable[[PlacementOptions], Weigher | None]] = {
    "IoOpsWeigher": io_ops_weigher.made,
    "NumInstancesWeigher": num_instances_weigher.made,
    "ImagePropertiesWeigher": image_properties_weigher.made,
    "MetricsWeigher": metrics_weigher.made,
    "FragmentationWeigher": fragmentation.made,
}
"""Those that options tell something."""


def pipeline(settings: SchedulerSettings, called: Collection[str] = ()) -> Pipeline:
    """Look up what `settings` name. `called`: keys of multipliers by which aggregates call weighers that have 0.

    A name that is not in the tables is looked for in other packages. Raises Misconfigured where there is none.
    """
    filters: dict[str, tuple[Filter, ...]] = {name: (entry,) for name, entry in FILTERS.items()}
    filters |= dict.fromkeys((entry.name for entry in NESTED), ())
    filters |= FAMILIES | {name: made(settings.options) for name, made in CONFIGURED.items()}
    chosen = [
        *FIRST,
        *tenant_aggregate.chosen(settings.options),
        *isolated_aggregates.chosen(settings.options),
        *(
            entry
            for name in _chosen(settings)
            for entry in (filters[name] if name in filters else (load_filter(name, filters),))
        ),
        *(_required_metrics(settings)),
        *LAST,
    ]
    stages = [stage_of(entry) for entry in chosen]
    shared = tuple(entry for entry in stages if not entry.per_request)
    known = WEIGHERS | {name: made(settings.options) for name, made in CONFIGURED_WEIGHERS.items()}
    named = [
        (known[name] if name in known else load_weigher(name, known), multiplier)
        for name, multiplier in settings.weighers.items()
    ]
    weighed = [(entry, number) for entry, number in named if entry and (number or entry.multiplier in called)]
    by_shape = [entry for entry in weighed if not entry[0].per_request]
    parts = [entry.shaped_by for entry in shared] + [weigher.shaped_by for weigher, _ in by_shape]
    return Pipeline(
        shared_filters=shared,
        request_filters=tuple(entry for entry in stages if entry.per_request),
        shared_weighers=tuple(entry for entry in by_shape if entry[0].applies is always),
        request_weighers=tuple(entry for entry in weighed if entry[0].per_request),
        occasional_weighers=tuple(entry for entry in by_shape if entry[0].applies is not always),
        shape_parts=tuple(part for part in parts if part is not None),
    )


def _chosen(settings: SchedulerSettings) -> tuple[str, ...]:
    """Return the filters that settings name, and that of zones: Nova looks at the zone whatever filters run."""
    zones = availability_zone.FILTER.name
    return settings.filters if zones in settings.filters else (zones, *settings.filters)


def _required_metrics(settings: SchedulerSettings) -> tuple[Filter, ...]:
    """Return MetricsFilter where hosts are weighed by metrics that all must have, and it is not chosen anyway."""
    options = settings.options
    weighed = settings.weighers.get("MetricsWeigher", 0.0) and options.metrics_weight_setting
    if not weighed or not options.metrics_required or "MetricsFilter" in settings.filters:
        return ()
    return metrics.made(options)
