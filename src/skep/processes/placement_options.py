"""What the configuration tells single filters, weighers and pre-filters."""

from __future__ import annotations

import math

from skep.config.sections import Config
from skep.domain.errors import Misconfigured
from skep.placement.options import PlacementOptions


def placement_options(config: Config) -> PlacementOptions:
    """Return the options. Raises Misconfigured for a list of `NAME=NUMBER` that is none."""
    section, metrics = config.scheduler, config.metrics
    return PlacementOptions(
        max_io_ops_per_host=section.max_io_ops_per_host,
        max_instances_per_host=section.max_instances_per_host,
        isolated_images=section.isolated_images,
        isolated_hosts=section.isolated_hosts,
        restrict_isolated_hosts_to_isolated_images=section.restrict_isolated_hosts_to_isolated_images,
        aggregate_image_properties_isolation_namespace=section.aggregate_image_properties_isolation_namespace or None,
        aggregate_image_properties_isolation_separator=section.aggregate_image_properties_isolation_separator,
        image_properties_default_architecture=section.image_properties_default_architecture or None,
        image_props_weight_setting=numbers("scheduler.image_props_weight_setting", section.image_props_weight_setting),
        metrics_weight_setting=numbers("metrics.weight_setting", metrics.weight_setting),
        metrics_required=metrics.required,
        metrics_weight_of_unavailable=metrics.weight_of_unavailable,
        limit_tenants_to_placement_aggregate=section.limit_tenants_to_placement_aggregate,
        placement_aggregate_required_for_tenants=section.placement_aggregate_required_for_tenants,
        query_placement_for_image_type_support=section.query_placement_for_image_type_support,
        enable_isolated_aggregate_filtering=section.enable_isolated_aggregate_filtering,
        image_metadata_prefilter=section.image_metadata_prefilter,
        fragmentation_size_exponent=section.fragmentation_size_exponent,
        fragmentation_slot_exponent=section.fragmentation_slot_exponent,
        fragmentation_departures=section.fragmentation_departures,
    )


def multipliers(config: Config) -> dict[str, float]:
    """Return how much the weighers count that have a key of their own."""
    section = config.scheduler
    return {
        "CPUWeigher": section.cpu_weight_multiplier,
        "RAMWeigher": section.ram_weight_multiplier,
        "DiskWeigher": section.disk_weight_multiplier,
        "BuildFailureWeigher": section.build_failure_weight_multiplier,
        "ServerGroupSoftAffinityWeigher": section.soft_affinity_weight_multiplier,
        "ServerGroupSoftAntiAffinityWeigher": section.soft_anti_affinity_weight_multiplier,
        "TopologySpreadWeigher": section.topology_spread_weight_multiplier,
        "IoOpsWeigher": section.io_ops_weight_multiplier,
        "NumInstancesWeigher": section.num_instances_weight_multiplier,
        "HypervisorVersionWeigher": section.hypervisor_version_weight_multiplier,
        "PCIWeigher": section.pci_weight_multiplier,
        "CrossCellWeigher": section.cross_cell_move_weight_multiplier,
        "LifetimeWeigher": section.lifetime_weight_multiplier,
        "ImagePropertiesWeigher": section.image_props_weight_multiplier,
        "BestFitWeigher": section.best_fit_weight_multiplier,
        "FragmentationWeigher": section.fragmentation_weight_multiplier,
        "MetricsWeigher": config.metrics.weight_multiplier,
    }


def numbers(key: str, named: tuple[str, ...]) -> dict[str, float]:
    """Read a list of `NAME=NUMBER`. Raises Misconfigured, naming `key`, for anything else."""
    found = {}
    for text in named:
        name, _, number = text.rpartition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError as error:
            raise Misconfigured(f"{key}: expected NAME=NUMBER, got {text!r}") from error
        if not name.strip() or not math.isfinite(found[name.strip()]):
            raise Misconfigured(f"{key}: {text!r} has no name, or no finite number")
    return found
