"""What single filters, weighers and pre-filters may be told. Names, meanings and defaults are Nova's."""

from __future__ import annotations

import msgspec


class PlacementOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options beside which filters and weighers run, and how much a weigher counts."""

    max_io_ops_per_host: int = 8
    max_instances_per_host: int = 50
    isolated_images: tuple[str, ...] = ()
    isolated_hosts: tuple[str, ...] = ()
    restrict_isolated_hosts_to_isolated_images: bool = True
    aggregate_image_properties_isolation_namespace: str | None = None
    aggregate_image_properties_isolation_separator: str = "."
    image_properties_default_architecture: str | None = None
    image_props_weight_setting: dict[str, float] = {}
    """How much each property counts; empty: all of them count alike."""
    metrics_weight_setting: dict[str, float] = {}
    """How much each metric counts; empty: none does."""
    metrics_required: bool = True
    metrics_weight_of_unavailable: float = -10000.0
    limit_tenants_to_placement_aggregate: bool = False
    placement_aggregate_required_for_tenants: bool = False
    query_placement_for_image_type_support: bool = False
    enable_isolated_aggregate_filtering: bool = False
    image_metadata_prefilter: bool = False
    fragmentation_size_exponent: float = 0.5
    fragmentation_slot_exponent: float = 0.5
    fragmentation_departures: int = 1

    @property
    def of_prefilters(self) -> tuple[object, ...]:
        """What pre-filters are told (`prefilters.py`)."""
        return (self.query_placement_for_image_type_support, self.image_metadata_prefilter)


DEFAULT_OPTIONS = PlacementOptions()
